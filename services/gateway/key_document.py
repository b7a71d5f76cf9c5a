"""What a keys file says: docs/keys.md is its contract, `version` its number."""

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from services.gateway.caller import ANONYMOUS, Caller, Limits
from services.runtime.sampling_ranges import PRIORITIES

MAX_KEYS = 10_000
MAX_COUNT = 10**12
"""Above any limit that means something."""
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._@:-]{0,63}$"
"""Names, and owners: no spaces, nothing that a terminal or a log would take for something else."""

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class _Part(BaseModel):
    # Strict: "8" is no number. Hidden: an error must not repeat what stands in the file.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, hide_input_in_errors=True, allow_inf_nan=False
    )


class StoredLimits(_Part):
    """The limits of one key; absent or null: no limit. See caller.Limits."""

    max_concurrent: Count | None = None
    tokens_per_minute: Count | None = None
    burst_tokens: Count | None = None
    """Absent: the tokens of one minute."""
    requests_per_minute: Count | None = None
    first_priority: int | None = Field(None, ge=int(PRIORITIES.low), le=int(PRIORITIES.high))
    weight: float | None = Field(None, ge=0.001, le=1000)

    @model_validator(mode="after")
    def _refuse_burst_alone(self) -> Self:
        if self.burst_tokens is not None and self.tokens_per_minute is None:
            raise ValueError("burst_tokens means nothing without tokens_per_minute")
        return self

    def limits(self) -> Limits:
        """As admission takes them."""
        per_minute = self.tokens_per_minute
        unlimited = Limits()
        return Limits(
            max_concurrent=self.max_concurrent or math.inf,
            tokens_per_minute=per_minute or math.inf,
            burst_tokens=self.burst_tokens or per_minute or math.inf,
            requests_per_minute=self.requests_per_minute or math.inf,
            first_priority=unlimited.first_priority
            if self.first_priority is None
            else self.first_priority,
            weight=self.weight or unlimited.weight,
        )


class StoredKey(_Part):
    """One API key; its text is not kept, only its hash."""

    id: str = Field(pattern="^[0-9a-f]{12}$")
    """The public id, the middle of the key's text."""
    name: Name
    """For people."""
    owner: Name
    """Whose generations, sessions and cache entries those of this key are; several keys may have one owner."""
    hash: str = Field(pattern="^[0-9a-f]{64}$")
    """SHA-256 of the key's text, in hexadecimal."""
    created: AwareDatetime
    expires: AwareDatetime | None = None
    """From then on it is refused."""
    disabled: bool = False
    """Revoked. The entry stays, so that the id still says in old logs whose it was."""
    limits: StoredLimits = StoredLimits()
    models: tuple[Annotated[str, Field(min_length=1, max_length=128)], ...] | None = Field(
        None, min_length=1, max_length=64
    )
    """Models that it may use, by name or alias; absent: all."""

    def expired(self, now: datetime) -> bool:
        """Whether its time has passed."""
        return self.expires is not None and now >= self.expires

    def caller(self) -> Caller:
        """Who calls with it."""
        models = None if self.models is None else frozenset(self.models)
        return Caller(self.owner, self.limits.limits(), self.id, models)


class KeyDocument(_Part):
    """A whole keys file."""

    version: Literal[1] = 1
    keys: tuple[StoredKey, ...] = Field((), max_length=MAX_KEYS)

    @model_validator(mode="after")
    def _refuse_mistakable_keys(self) -> Self:
        ids = {key.id for key in self.keys}
        _refuse_twice("id", (key.id for key in self.keys))
        _refuse_twice("name", (key.name for key in self.keys if not key.disabled))
        for key in self.keys:
            if key.name in ids:
                raise ValueError(f"name {key.name!r} is the id of a key")
            if key.owner == ANONYMOUS:
                raise ValueError(f"owner {ANONYMOUS!r} is who comes without a key")
        return self


def _refuse_twice(what: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{what} {value!r} stands there twice")
        seen.add(value)


def problems(error: ValidationError) -> list[str]:
    """What is wrong, a line each, by the place in the document; never what stands there."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]
        )
        message = problem["msg"].removeprefix("Value error, ")
        lines.append(f"{place.removeprefix('.')}: {message}" if place else message)
    return lines
