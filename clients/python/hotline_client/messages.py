"""Messages of a conversation."""

from hotline.v1 import conversation_pb2

Message = conversation_pb2.Message
"""hotline.v1.Message."""


def system(text: str) -> Message:
    """Instructions that stand above the conversation."""
    return Message(role=conversation_pb2.ROLE_SYSTEM, text=text)


def assistant(text: str) -> Message:
    """What the model said in an earlier turn."""
    return Message(role=conversation_pb2.ROLE_ASSISTANT, text=text)


def user(text: str, *images: bytes) -> Message:
    """What the person says, with images (PNG, JPEG, WebP, GIF or BMP file bytes) before the text."""
    parts = [
        conversation_pb2.Part(image=conversation_pb2.ImagePart(data=image)) for image in images
    ]
    parts.append(conversation_pb2.Part(text=text))
    return Message(role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=parts))
