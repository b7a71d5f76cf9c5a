"""Errors of the processes behind, by the names that a client knows."""

from collections.abc import Mapping

from services.runtime.error_table import Reason
from services.runtime.errors import ServiceError, rebuilt

DISPLACED_RETRY_DELAY_S = 1.0
"""After a burst of images that displaced a prompt's own: when to ask again."""


def renamed(error: ServiceError, names: Mapping[str, str]) -> ServiceError:
    """The error with its field's name, the path's first step, replaced where `names` has another one.

    A client knows neither tensors nor who pushes them: what says that they are missing says it of its images.
    """
    if error.reason is Reason.FEATURES_MISSING:
        said = "images of this prompt were displaced by those of other requests, twice; ask again."
        field = names.get("messages", "messages")
        return rebuilt(error.reason, f"{field}: {said}", {"field": field}, DISPLACED_RETRY_DELAY_S)
    ours = error.field.partition("[")[0]
    if ours not in names:
        return error
    field = names[ours] + error.field.removeprefix(ours)
    message = error.message
    if message.startswith(error.field):
        message = field + message.removeprefix(error.field)
    return rebuilt(error.reason, message, {**error.metadata, "field": field}, error.retry_delay_s)
