"""Protobuf to answers of the model's that a conversation goes on after; beside wire.py."""

from collections.abc import Sequence

from hotline.v1 import tokenizer_pb2

from services.runtime.errors import InvalidArgumentError
from services.runtime.plain_text_limits import MAX_IDS
from services.tokenizer.conversation import Answer, Message, PastAnswer, Role

MAX_PREFIX_BYTES = 8192
"""Of what a prompt said in the model's name before its answer."""


def answer(field: str, message: tokenizer_pb2.Continuation) -> Answer:
    """One answer, by its path."""
    return Answer(field, message.answer_token_ids, message.stop_match)


def past_answers(
    request: tokenizer_pb2.RenderRequest, messages: Sequence[Message]
) -> list[PastAnswer]:
    """Texts of assistant messages that come as ids. Raises InvalidArgumentError."""
    if request.past_answers and request.HasField("continuation"):
        raise InvalidArgumentError(
            "past_answers", f"{len(request.past_answers)} answers", "none with a continuation"
        )
    id_count = sum(len(past.answer.answer_token_ids) for past in request.past_answers)
    if id_count > MAX_IDS:
        raise InvalidArgumentError("past_answers", f"{id_count} ids", f"at most {MAX_IDS} ids")
    found: list[PastAnswer] = []
    for index, past in enumerate(request.past_answers):
        path = f"past_answers[{index}]"
        least = found[-1].message_index + 1 if found else 0
        if not least <= past.message_index < len(messages):
            raise InvalidArgumentError(
                f"{path}.message_index",
                past.message_index,
                f"{least} to {len(messages) - 1}, in rising order",
            )
        message = messages[past.message_index]
        if message.role is not Role.ASSISTANT or message.content or message.tool_calls:
            raise InvalidArgumentError(
                f"{path}.message_index",
                past.message_index,
                "that of an assistant message without content and tool calls",
            )
        size_bytes = len(past.prefix.encode())
        if size_bytes > MAX_PREFIX_BYTES:
            raise InvalidArgumentError(
                f"{path}.prefix", f"{size_bytes} bytes", f"at most {MAX_PREFIX_BYTES} bytes"
            )
        found.append(
            PastAnswer(past.message_index, answer(f"{path}.answer", past.answer), past.prefix)
        )
    return found
