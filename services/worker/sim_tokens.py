"""What the simulator says: ids that follow from a key and a position, and where they end."""

import hashlib

from services.worker.engine import Finished, Job, Reason
from services.worker.model import ModelFacts

CHUNK_TOKENS = 8
"""Ids are made so many at a time; few, because all sequences of a step may need theirs in the same moment."""


def trace_token(trace_key: str, choice_index: int, position: int, ids: range) -> int:
    """The simulator's token at a position: a function of the key, the choice and the position alone.

    So loss, duplication, reordering and cross-talk are all visible to who knows the key.
    """
    seed = f"{position}/{choice_index}/{trace_key}".encode()
    number = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "big")
    return ids[number % len(ids)]


class Output:
    """One choice's ids, made ahead of the engine's steps, and how it ends."""

    def __init__(self, job: Job, choice_index: int, facts: ModelFacts, output_tokens: int) -> None:
        """`output_tokens`: position of the end token, unless min_tokens or ignore_eos forbid it."""
        sampling = job.sampling
        self._key, self._index, self._ids_allowed = job.trace_key, choice_index, facts.ordinary_ids
        self._stops = frozenset(sampling.stop_token_ids)
        self._min_tokens = sampling.min_tokens
        self._end_token: int | None = None
        self._limit = sampling.max_tokens
        self._moved = job.moved_tokens
        natural = max(output_tokens - self._moved, sampling.min_tokens, 0)
        if facts.end_token_ids and not sampling.ignore_eos and natural < sampling.max_tokens:
            self._end_token, self._limit = facts.end_token_ids[0], natural
        self.ids: list[int] = []
        """What is known so far; never shortened."""
        self.finished: Finished | None = None
        """How it ends after `ids`; None while more will follow."""

    def grow(self) -> None:
        """Make the next ids. Only where `finished` is None."""
        begin = len(self.ids)
        end = min(begin + CHUNK_TOKENS, self._limit)
        for position in range(begin, end):
            at = self._moved + position
            token = trace_token(self._key, self._index, at, self._ids_allowed)
            self.ids.append(token)
            if token in self._stops and position >= self._min_tokens:
                self.finished = self._ended(Reason.STOP_SEQUENCE, token)
                return
        if end < self._limit:
            return
        if self._end_token is None:
            self.finished = self._ended(Reason.LENGTH, None)
        else:
            self.ids.append(self._end_token)
            self.finished = self._ended(Reason.STOP, self._end_token)

    def _ended(self, reason: Reason, token: int | None) -> Finished:
        return Finished(self._index, reason, len(self.ids), token)
