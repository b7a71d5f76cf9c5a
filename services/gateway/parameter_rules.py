"""What one parameter says about another."""

from services.gateway.constraints import Constraint, only_one
from services.gateway.parameter_body import Parameters
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
    return only_one([one.value for one in given if isinstance(one.value, Constraint)])
