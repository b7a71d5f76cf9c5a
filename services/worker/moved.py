"""Generations that began on another worker: what was sampled there counts as sampled, and is read as part of the prompt."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from services.runtime.errors import InvalidArgumentError
from services.worker.engine import Finished, Sampling, Started, Step, Tokens

_FIELD = "output_token_ids"


def check_moved(
    ids: Sequence[int],
    sampling: Sampling,
    context_left: int,
    vocabulary_size: int,
    placeholders: Collection[int],
) -> None:
    """Raises InvalidArgumentError for ids that cannot be, or a sampling whose state does not follow from them.

    Args:
        context_left: tokens of the context behind the prompt.
        placeholders: ids that stand for a piece of an image.
    """
    if not ids:
        return
    most = min(sampling.max_tokens, context_left) - 1
    if len(ids) > most:
        raise InvalidArgumentError(
            _FIELD, f"{len(ids)} ids", f"at most {most}: one is to be sampled"
        )
    for index, token in enumerate(ids):
        if token >= vocabulary_size or token in placeholders:
            limit = f"below the vocabulary's size, {vocabulary_size}, and no placeholder"
            raise InvalidArgumentError(f"{_FIELD}[{index}]", token, limit)
    for name, carries_over in (
        ("n", sampling.n == 1),
        ("seed", sampling.seed is None),
        ("structured_output", sampling.constraint is None),
        ("presence_penalty", not sampling.presence_penalty),
        ("frequency_penalty", not sampling.frequency_penalty),
    ):
        if not carries_over:
            limit = "absent: its state on the worker before does not follow from the ids"
            raise InvalidArgumentError(f"sampling.{name}", "set, with output_token_ids", limit)


def continued(sampling: Sampling, moved: int) -> Sampling:
    """What is left to sample after so many ids."""
    return replace(
        sampling,
        max_tokens=sampling.max_tokens - moved,
        min_tokens=max(sampling.min_tokens - moved, 0),
    )


def shifted(step: Step, moved: int) -> Step:
    """A step of what is left as one of the whole output."""
    if isinstance(step, Tokens):
        return replace(step, position=step.position + moved)
    if isinstance(step, Finished):
        return replace(step, completion_tokens=step.completion_tokens + moved)
    prompt_tokens = step.prompt_tokens - moved
    return Started(prompt_tokens, min(step.cached_tokens, prompt_tokens))
