"""hotline.v1.RawPrompt as the gateway's own, checked."""

from collections.abc import Sequence

from hotline.v1 import conversation_pb2, inference_pb2

from services.gateway.raw_prompt import check
from services.gateway.renderable import RawPrompt
from services.runtime.errors import InvalidArgumentError


def raw_prompt(request: inference_pb2.GenerateRequest) -> RawPrompt | None:
    """The request's raw prompt; None where it has messages. Raises InvalidArgumentError."""
    if not request.HasField("prompt"):
        return None
    if request.messages:
        raise InvalidArgumentError(
            "messages", f"{len(request.messages)} messages", "none where there is a prompt"
        )
    if _uses_a_template(request.render):
        raise InvalidArgumentError(
            "render", "set", "absent where there is a prompt: there is no template"
        )
    kind = request.prompt.WhichOneof("kind")
    if kind is None:
        raise InvalidArgumentError("prompt", "nothing", "a text or token ids")
    add = request.prompt.add_special_tokens
    add = add if request.prompt.HasField("add_special_tokens") else True
    content: str | Sequence[int] = request.prompt.text
    field = "prompt.text"
    if kind == "token_ids":
        content, field = request.prompt.token_ids.values, "prompt.token_ids.values"
    prompt = RawPrompt(content, add, field)
    check(prompt)
    return prompt


def _uses_a_template(render: conversation_pb2.RenderOptions) -> bool:
    return bool(
        render.HasField("enable_thinking")
        or render.HasField("template_variables")
        or render.tools
        or render.HasField("tool_choice")
    )
