"""A chat request as the gateway's own: messages and parameters become hotline.v1, as native clients send them."""

from hotline.v1 import conversation_pb2, sampling_pb2

from services.gateway import openai_request
from services.gateway.caller import Caller
from services.gateway.interfaces import GenerationRequest
from services.gateway.openai_request import ChatMessage, ChatRequest, ImagePart, ImageUrl, TextPart
from services.runtime.errors import InvalidArgumentError, UnimplementedError
from services.runtime.sampling_ranges import PRIORITIES

_ROLES = {
    "system": conversation_pb2.ROLE_SYSTEM,
    "developer": conversation_pb2.ROLE_SYSTEM,
    "user": conversation_pb2.ROLE_USER,
    "assistant": conversation_pb2.ROLE_ASSISTANT,
    "tool": conversation_pb2.ROLE_TOOL,
}
_SAME_NAMES = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "min_tokens",
    "n",
    "ignore_eos",
]
_UINT32_MAX = 2**32 - 1


def generation_request(
    request: ChatRequest, generation_id: str, model: str, caller: Caller, deadline_s: float
) -> GenerationRequest:
    """Check a chat request and turn it into a generation. Raises InvalidArgumentError or UnimplementedError."""
    openai_request.check(request)
    priority = request.priority or 0
    if not PRIORITIES.holds(priority):
        raise InvalidArgumentError("priority", priority, str(PRIORITIES))
    max_tokens = request.max_completion_tokens or request.max_tokens
    render = conversation_pb2.RenderOptions()
    thinking, split = request.switch("enable_thinking"), request.switch("return_reasoning")
    if thinking is not None:
        render.enable_thinking = thinking
    if split is not None:
        render.split_reasoning = split
    variables = request.template_variables()
    if variables:
        render.template_variables.update(variables)
    for tool in request.tool_list():
        render.tools.add().update(tool)
    return GenerationRequest(
        generation_id=generation_id,
        caller=caller,
        model=model,
        messages=[_message(message) for message in request.messages or ()],
        render_options=render,
        sampling=_sampling(request),
        choice_count=request.n or 1,
        stop=tuple(request.stops()),
        split_reasoning=bool(split),
        ignore_eos=bool(request.ignore_eos),
        max_tokens=min(max_tokens, _UINT32_MAX) if max_tokens else None,
        priority=priority,
        deadline_s=deadline_s,
    )


def _message(message: ChatMessage) -> conversation_pb2.Message:
    if bytes(message.tool_calls) not in (b"null", b"[]"):
        raise UnimplementedError("messages[].tool_calls")
    wire = conversation_pb2.Message(
        role=_ROLES[message.role], tool_call_id=message.tool_call_id or ""
    )
    if isinstance(message.content, list):
        wire.parts.SetInParent()
        wire.parts.parts.extend(_part(part) for part in message.content)
    else:
        wire.text = message.content or ""
    return wire


def _part(part: TextPart | ImagePart) -> conversation_pb2.Part:
    if isinstance(part, TextPart):
        return conversation_pb2.Part(text=part.text)
    url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
    return conversation_pb2.Part(image=conversation_pb2.ImagePart(url=url))


def _sampling(request: ChatRequest) -> sampling_pb2.SamplingParameters:
    sampling = sampling_pb2.SamplingParameters(logit_bias=openai_request.logit_bias(request))
    for name in _SAME_NAMES:
        value = getattr(request, name)
        if value is not None:
            setattr(sampling, name, min(value, _UINT32_MAX) if name == "min_tokens" else value)
    form = request.response_format
    if form is not None and form.type == "json_object":
        sampling.structured_output.json_object = True
    elif form is not None and form.json_schema is not None:
        sampling.structured_output.json_schema = bytes(form.json_schema.schema).decode()
    return sampling
