"""Protobuf to domain types and back; with detokenise_wire.py, servicer.py and worker_client.py, where generated types are known.

Everything that is wrong in the shape of a request is refused here, by its path as the outermost client sees it.
"""

from collections.abc import Iterator, Sequence

from hotline.v1 import conversation_pb2, feature_pb2, tokenizer_pb2

from services.runtime.digest import DIGEST_BYTES
from services.runtime.errors import InvalidArgumentError, UnimplementedError
from services.tokenizer.answer_wire import answer, past_answers
from services.tokenizer.conversation import Conversation, Image, Message, Role, Text, ToolCall
from services.tokenizer.features import Feature, Placement
from services.tokenizer.renderer import Prompt
from services.tokenizer.template import RESERVED
from services.tokenizer.tool_wire import plain_struct, plain_tool

MAX_MESSAGES = 1024
MAX_PARTS = 256
MAX_TOOLS = 128
MAX_TOOL_CALLS = 64
MAX_NAME_BYTES = 128
MAX_DIGESTS = 64

_ROLES = {
    conversation_pb2.ROLE_SYSTEM: Role.SYSTEM,
    conversation_pb2.ROLE_USER: Role.USER,
    conversation_pb2.ROLE_ASSISTANT: Role.ASSISTANT,
    conversation_pb2.ROLE_TOOL: Role.TOOL,
}


def conversation(request: tokenizer_pb2.RenderRequest) -> Conversation:
    """What is to be rendered. Raises InvalidArgumentError, UnimplementedError."""
    _check_count("messages", len(request.messages), 1, MAX_MESSAGES)
    options = request.options
    _check_count("tools", len(options.tools), 0, MAX_TOOLS)
    variables = plain_struct(options.template_variables)
    for name in sorted(RESERVED & variables.keys()):
        raise InvalidArgumentError(
            f"template_variables.{name}", variables[name], "absent: the name is reserved"
        )
    messages = [_message(message, index) for index, message in enumerate(request.messages)]
    return Conversation(
        messages=messages,
        enable_thinking=options.enable_thinking if options.HasField("enable_thinking") else None,
        variables=variables,
        tools=[plain_tool(tool) for tool in options.tools],
        hides_tools=options.tool_choice.none,
        after=answer("continuation", request.continuation)
        if request.HasField("continuation")
        else None,
        past_answers=past_answers(request, messages),
        may_be_empty=request.may_be_empty,
    )


def render_response(prompt: Prompt) -> tokenizer_pb2.RenderResponse:
    """A rendered prompt."""
    return tokenizer_pb2.RenderResponse(
        token_ids=prompt.token_ids,
        features=[_placement(placement) for placement in prompt.placements],
        thinking_closed=prompt.thinking_closed,
        answer_token_count=prompt.answer_token_count,
        whole_needed=prompt.whole_needed,
        answer_prefix=prompt.answer_prefix,
    )


def digests(request: tokenizer_pb2.PushFeaturesRequest) -> list[bytes]:
    """The digests to push, each once. Raises InvalidArgumentError."""
    _check_count("feature_digests", len(request.feature_digests), 1, MAX_DIGESTS)
    for index, digest in enumerate(request.feature_digests):
        if len(digest) != DIGEST_BYTES:
            raise InvalidArgumentError(
                f"feature_digests[{index}]", f"{len(digest)} bytes", f"{DIGEST_BYTES} bytes"
            )
    return list(dict.fromkeys(request.feature_digests))


def feature_header(feature: Feature) -> feature_pb2.FeatureHeader:
    """A tensor's geometry."""
    return feature_pb2.FeatureHeader(
        feature_digest=feature.feature_digest,
        modality=feature_pb2.MODALITY_IMAGE,
        data_type=feature_pb2.DATA_TYPE_UINT8,
        shape=feature.patches.shape,
        grid=_grid(feature),
        size_bytes=len(feature.patches.data),
    )


def _placement(placement: Placement) -> feature_pb2.FeaturePlacement:
    return feature_pb2.FeaturePlacement(
        feature_digest=placement.feature.feature_digest,
        modality=feature_pb2.MODALITY_IMAGE,
        offset=placement.offset,
        length=placement.feature.patches.token_count,
        grid=_grid(placement.feature),
        media_digest=placement.media_digest,
    )


def _grid(feature: Feature) -> feature_pb2.PatchGrid:
    t, h, w = feature.patches.grid
    return feature_pb2.PatchGrid(t=t, h=h, w=w)


def _message(message: conversation_pb2.Message, index: int) -> Message:
    path = f"messages[{index}]"
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidArgumentError(
            f"{path}.role", int(message.role), "system, user, assistant or tool"
        )
    _check_count(f"{path}.tool_calls", len(message.tool_calls), 0, MAX_TOOL_CALLS)
    _check_name(f"{path}.tool_call_id", message.tool_call_id)
    content: str | Sequence[Text | Image] = message.text
    if message.WhichOneof("content") == "parts":
        parts = message.parts.parts
        _check_count(f"{path}.content", len(parts), 0, MAX_PARTS)
        content = [_part(part, f"{path}.content[{at}]") for at, part in enumerate(parts)]
    return Message(role, content, tuple(_tool_calls(message, path)), message.tool_call_id)


def _part(part: conversation_pb2.Part, path: str) -> Text | Image:
    kind = part.WhichOneof("kind")
    if kind == "text":
        return Text(part.text)
    if kind == "audio":
        raise UnimplementedError("sound", field=path)
    if kind != "image":
        raise InvalidArgumentError(path, "nothing", "a text, an image or a sound")
    source = part.image.WhichOneof("source")
    if source == "media_digest":
        raise UnimplementedError("an image by its digest", field=f"{path}.image.media_digest")
    if source is None:
        raise InvalidArgumentError(path, "an image without source", "an image's bytes or data URL")
    return Image(path, part.image.data if source == "data" else part.image.url)


def _tool_calls(message: conversation_pb2.Message, path: str) -> Iterator[ToolCall]:
    for index, call in enumerate(message.tool_calls):
        _check_name(f"{path}.tool_calls[{index}].id", call.id)
        _check_name(f"{path}.tool_calls[{index}].name", call.name)
        yield ToolCall(call.id, call.name, plain_struct(call.arguments))


def _check_count(path: str, count: int, least: int, most: int) -> None:
    if not least <= count <= most:
        raise InvalidArgumentError(path, f"{count} items", f"{least} to {most} items")


def _check_name(path: str, name: str) -> None:
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidArgumentError(path, name, f"at most {MAX_NAME_BYTES} bytes")
