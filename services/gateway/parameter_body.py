"""Bodies by the table: the fields that msgspec parses, and what a parsed body has given."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import msgspec

from services.gateway.json_tree import ABSENT, is_absent
from services.gateway.parameter import Parameter, Route
from services.gateway.parameter_kinds import Options
from services.gateway.parameter_table import of_route
from services.runtime.errors import InvalidArgumentError

NESTED = "extra_body"
"""Some clients send what the openai package calls `extra_body` as it stands, instead of merging it."""
_VARIABLES = "chat_template_kwargs"
_SWITCHES = ("enable_thinking", "return_reasoning")
"""Parameters that phone-agent clients also put among the template's variables."""


@dataclass(frozen=True)
class Given:
    """One parameter that a client gave."""

    parameter: Parameter
    field: str
    """Where it stood: `top_k`, `extra_body.top_k`."""
    value: Any
    """As its kind reads it."""


class Parameters:
    """What a body has given, checked one by one, by parameter name; absent ones are not in it."""

    def __init__(self, given: Mapping[str, Given]) -> None:
        self._given = given

    def __iter__(self) -> Iterator[Given]:
        return iter(self._given.values())

    def get(self, name: str) -> Given | None:
        """A parameter; None where it is absent."""
        return self._given.get(name)

    def at(self, goes_to: str) -> Given | None:
        """The parameter that goes to a place, under whatever name it came."""
        return next((one for one in self if one.parameter.goes_to == goes_to), None)

    def value(self, name: str, default: Any = None) -> Any:
        """A parameter's value."""
        given = self._given.get(name)
        return default if given is None else given.value


class RouteBody(msgspec.Struct):
    """What every body with parameters has, besides a field for each parameter of its route."""

    route: ClassVar[Route]
    model: str | None = None
    stream: bool | None = None
    stream_options: Options | None = None


def body_of(route: Route) -> type[RouteBody]:
    """A RouteBody with a field for each parameter of a route, and the same once more in a nested `extra_body`."""
    parameters = of_route(route)
    nested = msgspec.defstruct("ExtraBody", [_field(p) for p in parameters if p.is_nestable])
    own = [_field(p) for p in parameters if p.name not in RouteBody.__struct_fields__]
    fields = [*own, (NESTED, nested | None, None)]
    body: Any = msgspec.defstruct(
        "ParameterBody", fields, bases=(RouteBody,), namespace={"route": route}
    )
    return cast(type[RouteBody], body)


def _field(parameter: Parameter) -> tuple[str, Any, Any]:
    kind = parameter.kind.type
    return (parameter.name, kind, ABSENT if kind is msgspec.Raw else None)


def read_parameters(body: RouteBody) -> Parameters:
    """What a body gives, each parameter checked by itself. Raises InvalidArgumentError naming the first at fault.

    Args:
        body: of a class that inherits from what `body_of` made.
    """
    given: dict[str, Given] = {}
    parameters = of_route(body.route)
    _read(body, "", parameters, given)
    nested = getattr(body, NESTED)
    if nested is not None:
        _read(nested, f"{NESTED}.", [p for p in parameters if p.is_nestable], given)
    for one in list(given.values()):
        given.pop(one.parameter.replaces, None)
    return Parameters(given)


def read_parameter(body: RouteBody, name: str) -> Given | None:
    """One parameter alone. Raises InvalidArgumentError where it is at fault."""
    given: dict[str, Given] = {}
    parameters = [one for one in of_route(body.route) if one.name == name]
    _read(body, "", parameters, given)
    nested = getattr(body, NESTED)
    if nested is not None:
        _read(nested, f"{NESTED}.", [one for one in parameters if one.is_nestable], given)
    return given.get(name)


def _read(place: Any, prefix: str, parameters: list[Parameter], given: dict[str, Given]) -> None:
    """Read one place, all of it, so that nothing wrong passes; what was given before wins."""
    found: dict[str, Given] = {}
    for parameter in parameters:
        raw = getattr(place, parameter.name)
        if is_absent(raw):
            continue
        field = prefix + parameter.name
        value = parameter.kind.read(field, raw)
        if value is not None:
            found[parameter.name] = Given(parameter, field, value)
    if _VARIABLES in found:
        _move_switches(found, {p.name: p for p in parameters})
        _merge_variables(found, given)
    for name, one in found.items():
        given.setdefault(name, one)


def _move_switches(found: dict[str, Given], parameters: Mapping[str, Parameter]) -> None:
    """Take the switches out of the template's variables. Raises where one is no boolean."""
    variables = found[_VARIABLES]
    rest = dict(variables.value)
    for name in _SWITCHES:
        value, field = rest.pop(name, None), f"{variables.field}.{name}"
        if value is not None and not isinstance(value, bool):
            raise InvalidArgumentError(field, value, parameters[name].kind.words)
        if value is not None:
            found.setdefault(name, Given(parameters[name], field, value))
    found[_VARIABLES] = Given(variables.parameter, variables.field, rest)


def _merge_variables(found: Mapping[str, Given], given: dict[str, Given]) -> None:
    """Variables of both places go together; those of the outer one win."""
    inner, outer = found[_VARIABLES], given.get(_VARIABLES)
    if outer is not None:
        merged = {**inner.value, **outer.value}
        given[_VARIABLES] = Given(outer.parameter, outer.field, merged)
