"""Types and paths that the tokenizer's tests share."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from hotline.v1 import conversation_pb2, tokenizer_pb2_grpc
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from services.tokenizer.settings import TokenizerSettings

MODEL_PATH = Path(__file__).parents[3] / "deploy" / "models" / "autoglm-phone-tiny"

Settings: TypeAlias = Callable[..., TokenizerSettings]
Stub: TypeAlias = "tokenizer_pb2_grpc.TokenizerServiceAsyncStub"
RenderIds: TypeAlias = Callable[..., list[int]]
Encoded: TypeAlias = Callable[..., bytes]


def user(*parts: str | bytes) -> conversation_pb2.Message:
    """A user message: bytes are images, a string that begins with `data:` is a URL, other strings are text."""
    made = []
    for part in parts:
        if isinstance(part, bytes):
            made.append(conversation_pb2.Part(image=conversation_pb2.ImagePart(data=part)))
        elif part.startswith("data:"):
            made.append(conversation_pb2.Part(image=conversation_pb2.ImagePart(url=part)))
        else:
            made.append(conversation_pb2.Part(text=part))
    return conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=made)
    )


def examples(count: int) -> hypothesis_settings:
    """So many examples, however slow a busy machine makes them."""
    return hypothesis_settings(
        max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
