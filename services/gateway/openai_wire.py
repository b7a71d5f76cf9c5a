"""REST requests as the gateway's own: messages and parameters become hotline.v1, as native clients send them."""

from dataclasses import replace

from hotline.v1 import conversation_pb2

from services.gateway.caller import Caller
from services.gateway.interfaces import GenerationRequest
from services.gateway.openai_request import (
    ChatMessage,
    ChatRequest,
    ImagePart,
    ImageUrl,
    TextPart,
    check_messages,
)
from services.gateway.parameter_body import Parameters, read_parameters
from services.gateway.parameter_rules import check_together, forced_call
from services.gateway.past_calls import read_calls
from services.gateway.renderable import Conversation
from services.gateway.sampling_wire import field_names, follows_from_ids, sampling_parameters
from services.gateway.tool_wire import tool_choice, tool_use

_ROLES = {
    "system": conversation_pb2.ROLE_SYSTEM,
    "developer": conversation_pb2.ROLE_SYSTEM,
    "user": conversation_pb2.ROLE_USER,
    "assistant": conversation_pb2.ROLE_ASSISTANT,
    "tool": conversation_pb2.ROLE_TOOL,
}


def generation_request(
    request: ChatRequest, generation_id: str, model: str, caller: Caller, deadline_s: float
) -> GenerationRequest:
    """Check a chat request and turn it into a generation. Raises InvalidArgumentError or UnimplementedError."""
    check_messages(request.messages or [])
    given = read_parameters(request)
    rendered = _conversation(request, given)
    return replace(
        without_prompt(given, generation_id, model, caller, deadline_s),
        messages=rendered.messages,
        render_options=rendered.render_options,
        split_reasoning=bool(given.value("return_reasoning")),
        tool_use=tool_use(rendered.render_options),
    )


def without_prompt(
    given: Parameters, generation_id: str, model: str, caller: Caller, deadline_s: float
) -> GenerationRequest:
    """A generation by parameters that are right by themselves; its prompt is still to be put in.

    Raises InvalidArgumentError where they do not go together, or UnimplementedError.
    """
    check_together(given)
    sampling = sampling_parameters(given)
    return GenerationRequest(
        generation_id=generation_id,
        caller=caller,
        model=model,
        messages=(),
        render_options=conversation_pb2.RenderOptions(),
        sampling=sampling,
        choice_count=given.value("n", 1),
        stop=tuple(sampling.stop),
        split_reasoning=False,
        ignore_eos=sampling.ignore_eos,
        max_tokens=sampling.max_tokens if sampling.HasField("max_tokens") else None,
        priority=given.value("priority", 0),
        deadline_s=deadline_s,
        field_names=field_names(given),
        is_movable=follows_from_ids(sampling),
    )


def conversation(request: ChatRequest) -> Conversation:
    """What the template renders of a chat request. Raises InvalidArgumentError or UnimplementedError."""
    return _conversation(request, read_parameters(request))


def _conversation(request: ChatRequest, given: Parameters) -> Conversation:
    render = conversation_pb2.RenderOptions()
    thinking, split = given.get("enable_thinking"), given.get("return_reasoning")
    if thinking is not None:
        render.enable_thinking = thinking.value
    if split is not None:
        render.split_reasoning = split.value
    variables = given.value("chat_template_kwargs")
    if variables:
        render.template_variables.update(variables)
    forced_call(given)  # raises where the choice does not fit the tools
    for tool in given.value("tools", ()):
        render.tools.add().update(tool)
    choice = given.value("tool_choice")
    if choice is not None:
        render.tool_choice.CopyFrom(tool_choice(choice))
    messages = [message_of(message, index) for index, message in enumerate(request.messages or ())]
    return Conversation(messages, render)


def message_of(message: ChatMessage, index: int) -> conversation_pb2.Message:
    """One message. Raises InvalidArgumentError for a tool call that cannot be read."""
    wire = conversation_pb2.Message(
        role=_ROLES[message.role], tool_call_id=message.tool_call_id or ""
    )
    if isinstance(message.content, list):
        wire.parts.SetInParent()
        wire.parts.parts.extend(_part(part) for part in message.content)
    else:
        wire.text = message.content or ""
    for call in read_calls(f"messages[{index}].tool_calls", message.tool_calls):
        made = wire.tool_calls.add(id=call.id, name=call.name)
        made.arguments.update(call.arguments)
    return wire


def _part(part: TextPart | ImagePart) -> conversation_pb2.Part:
    if isinstance(part, TextPart):
        return conversation_pb2.Part(text=part.text)
    url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
    return conversation_pb2.Part(image=conversation_pb2.ImagePart(url=url))
