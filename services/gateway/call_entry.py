"""What the call that is being served holds, for whatever of it begins generations."""

from contextvars import ContextVar

from services.gateway.admission import Entry

_entry: ContextVar[Entry | None] = ContextVar("entry", default=None)


def bind_entry(entry: Entry) -> None:
    """Say what the call holds, in the task of the call, before its request is read."""
    _entry.set(entry)


def entry_of_call() -> Entry | None:
    """The call's; None where nobody took one, as in tests without a call."""
    return _entry.get()
