"""A text completion request as generations of the gateway's own, one for each prompt."""

from collections.abc import Sequence
from dataclasses import replace

from services.gateway import completion_request, openai_wire
from services.gateway.caller import Caller
from services.gateway.completion_request import DEFAULT_MAX_TOKENS
from services.gateway.interfaces import GenerationRequest
from services.gateway.parameter_body import Parameters
from services.gateway.renderable import RawPrompt


def generation_request(
    given: Parameters, generation_id: str, model: str, caller: Caller, deadline_s: float
) -> GenerationRequest:
    """A generation without its prompt. Raises InvalidArgumentError where the parameters do not go together."""
    completion_request.check(given)
    made = openai_wire.without_prompt(given, generation_id, model, caller, deadline_s)
    return replace(made, max_tokens=made.max_tokens or DEFAULT_MAX_TOKENS)


def of_prompts(request: GenerationRequest, prompts: Sequence[RawPrompt]) -> list[GenerationRequest]:
    """One generation for each prompt. Raises InvalidArgumentError for too many choices in all."""
    completion_request.check_choice_count(len(prompts), request.choice_count)
    if len(prompts) == 1:
        return [replace(request, prompt=prompts[0])]
    return [
        replace(request, generation_id=f"{request.generation_id}-{index}", prompt=prompt)
        for index, prompt in enumerate(prompts)
    ]
