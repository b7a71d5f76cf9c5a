"""What one parameter says about another."""

from services.gateway.constraints import Constraint, only_one
from services.gateway.forced_tools import forced_schema
from services.gateway.parameter_body import Parameters
from services.gateway.tools import check_choice
from services.runtime.errors import InvalidArgumentError


def check_together(given: Parameters) -> None:
    """Raises InvalidArgumentError for parameters that are right by themselves only."""
    _check_tokens(given)
    options = given.get("stream_options")
    if options is not None and not given.value("stream"):
        raise InvalidArgumentError(options.field, "set", 'absent unless "stream" is true')
    top = given.get("top_logprobs")
    if top is not None and top.value and not given.value("logprobs"):
        raise InvalidArgumentError(top.field, top.value, '0 or absent unless "logprobs" is true')
    constraint(given)


def _check_tokens(given: Parameters) -> None:
    least, most = given.at("sampling.min_tokens"), given.at("sampling.max_tokens")
    if least is not None and most is not None and least.value > most.value:
        limit = f"at most {most.field}, {most.value}"
        raise InvalidArgumentError(least.field, least.value, limit)


def constraint(given: Parameters) -> Constraint | None:
    """The one constraint on the output. Raises InvalidArgumentError for a second one, naming both."""
    constraints = [one.value for one in given if isinstance(one.value, Constraint)]
    forced = forced_call(given)
    return only_one([*constraints, forced] if forced is not None else constraints)


def forced_call(given: Parameters) -> Constraint | None:
    """The constraint by which an output has to call a tool; None where it need not.

    Raises InvalidArgumentError for a `tool_choice` that does not fit `tools`.
    """
    tools, choice = given.value("tools", ()), given.get("tool_choice")
    if choice is None:
        return None
    check_choice(choice.field, choice.value, tools, "tools")
    in_parallel = given.value("parallel_tool_calls", True)
    schema = forced_schema("tools", tools, choice.value, in_parallel)
    if schema is None:
        return None
    return Constraint("json_schema", choice.field, schema, made_of="tools")
