"""Errors of the processes behind, by the names that a client knows."""

from collections.abc import Mapping

from services.runtime.errors import ServiceError, rebuilt


def renamed(error: ServiceError, names: Mapping[str, str]) -> ServiceError:
    """The error with its field's name, the path's first step, replaced where `names` has another one."""
    ours = error.field.partition("[")[0]
    if ours not in names:
        return error
    field = names[ours] + error.field.removeprefix(ours)
    message = error.message
    if message.startswith(error.field):
        message = field + message.removeprefix(error.field)
    return rebuilt(error.reason, message, {**error.metadata, "field": field}, error.retry_delay_s)
