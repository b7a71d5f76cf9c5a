"""A clock that moves when it is told to, and requests of keys; for the tests of admission."""

from dataclasses import replace

from scripted import REQUEST

from services.gateway.caller import Caller, Limits
from services.gateway.interfaces import GenerationRequest


class Clock:
    """Seconds, from 100."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def forward(self, seconds: float) -> None:
        self.now_s += seconds


def key(name: str = "k", **limits: float) -> Caller:
    """A caller with a key of that id."""
    return Caller(f"owner of {name}", Limits(**limits), name)


def asked(caller: Caller, **fields: object) -> GenerationRequest:
    """A request of that caller, with an hour to its deadline."""
    return replace(REQUEST, **{"caller": caller, "deadline_s": 3600.0, **fields}).allowed()
