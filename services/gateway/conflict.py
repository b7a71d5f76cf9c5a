"""One generation id, one generation of its owner at a time."""

from services.runtime.errors import GenerationConflictError


def conflict(generation_id: str) -> GenerationConflictError:
    """The error where this id of the caller runs already, here or on the same worker through another gateway."""
    return GenerationConflictError(
        f"generation_id: {generation_id!r} is running already.",
        metadata={"field": "generation_id"},
    )


def other_content(generation_id: str) -> GenerationConflictError:
    """The error where this id of the caller names a generation that another request asked for."""
    return GenerationConflictError(
        f"generation_id: {generation_id!r} was used with another request.",
        metadata={"field": "generation_id"},
    )
