"""Errors of the processes behind, by the names that a client knows."""

from collections.abc import Mapping

from services.runtime.error_table import Reason
from services.runtime.errors import ServiceError, rebuilt

DISPLACED_RETRY_DELAY_S = 1.0
"""After a burst of images that displaced a prompt's own: when to ask again."""


def renamed(error: ServiceError, names: Mapping[str, str]) -> ServiceError:
    """The error with its field's name, the beginning of the path, replaced where `names` has another one.

    A client knows neither tensors nor who pushes them: what says that they are missing says it of its images.
    """
    if error.reason is Reason.FEATURES_MISSING:
        said = "images of this prompt were displaced by those of other requests, twice; ask again."
        field = names.get("messages", "messages")
        return rebuilt(error.reason, f"{field}: {said}", {"field": field}, DISPLACED_RETRY_DELAY_S)
    ours = max((name for name in names if _begins(error.field, name)), key=len, default="")
    if not ours:
        return error
    field = names[ours] + error.field.removeprefix(ours)
    message = error.message
    if message.startswith(error.field):
        message = field + message.removeprefix(error.field)
    return rebuilt(error.reason, message, {**error.metadata, "field": field}, error.retry_delay_s)


def _begins(path: str, name: str) -> bool:
    """Whether a path begins with these whole steps."""
    return path.startswith(name) and path[len(name) : len(name) + 1] in ("", ".", "[")
