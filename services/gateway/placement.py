"""Who gets the next generation: power of two choices by load."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Protocol, TypeVar

from services.gateway.interfaces import Load

WAITING_WEIGHT = 4
"""A waiting generation counts as so many running ones; the figure of vLLM's own balancer over data-parallel engines
(vllm/v1/engine/core_client.py, get_core_engine_for_request: score = waiting * 4 + running)."""

LEAST_CACHE_LEFT = 0.05
"""The share of a KV cache that counts as left at least, so that a full one has a finite score."""

AFFINITY_SLACK = 4
"""A worker that has a session's prefix is preferred while its score is at most twice the least one's and so much more: a
prefill of some thousand tokens delays the next turn by more than a few generations beside it do, not by more than a queue."""


class Loaded(Protocol):
    """What the choice needs of a worker."""

    @property
    def name(self) -> str:
        """Unique among the workers."""

    @property
    def load(self) -> Load:
        """What it said last, over all its callers."""


Candidate = TypeVar("Candidate")
WorkerT = TypeVar("WorkerT", bound=Loaded)


def least_of_two(
    candidates: Sequence[Candidate], score: Callable[[Candidate], float], random: Random
) -> Candidate:
    """The one with the lower score of two candidates taken at random.

    All that the gateways know is a little old. Were everybody to choose the very least loaded one, they would all
    choose the same until the next report; of two at random they spread (Mitzenmacher, "The Power of Two Choices in
    Randomized Load Balancing", 2001). Of equals, either.

    Args:
        candidates: at least one.
    """
    return min(random.sample(candidates, min(2, len(candidates))), key=score)


class WorkerPlacement:
    """Chooses workers, and knows what this gateway has placed on each since it last said how busy it is.

    The score is the number of generations that a new one would compete with, per share of KV cache left:

        (others + own + (WAITING_WEIGHT - 1) * waiting + 1) / max(1 - kv_usage_ratio, LEAST_CACHE_LEFT)

    `own` is what this gateway has placed there and not ended: exact at any moment, so that a burst between two reports
    spreads. `others` is the rest of what the worker reported: its running and waiting ones less our own of that time.
    A step costs more with each running generation, and a waiting one delays a new one by far more than that. The
    cache left bounds how many fit: at half a cache a generation weighs twice. The 1 is the new generation itself.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._own: dict[str, int] = {}
        self._seen: dict[str, tuple[Load, int]] = {}
        """By worker: the last report, and what was ours when it was first looked at."""

    @contextmanager
    def place(self, workers: Sequence[WorkerT], prefer: str = "") -> Iterator[WorkerT]:
        """Choose one of at least one; it counts as ours until the context ends.

        Args:
            prefer: the name of the one that has a prefix in its cache; see AFFINITY_SLACK.
        """
        worker = self._affine(workers, prefer) or least_of_two(workers, self.score, self._random)
        self._own[worker.name] = self.own(worker) + 1
        try:
            yield worker
        finally:
            self._own[worker.name] -= 1

    def _affine(self, workers: Sequence[WorkerT], prefer: str) -> WorkerT | None:
        worker = next((each for each in workers if prefer and each.name == prefer), None)
        if worker is None:
            return None
        least = min(map(self.score, workers))
        return worker if self.score(worker) <= 2 * least + AFFINITY_SLACK else None

    def own(self, worker: Loaded) -> int:
        """Generations that this gateway has placed there."""
        return self._own.get(worker.name, 0)

    def score(self, worker: Loaded) -> float:
        """See the class; less is better."""
        load, own = worker.load, self.own(worker)
        seen = self._seen.get(worker.name)
        if seen is None or seen[0] != load:
            seen = self._seen[worker.name] = (load, own)
        others = max(load.running + load.waiting - seen[1], 0)
        competing = others + own + (WAITING_WEIGHT - 1) * load.waiting + 1
        return competing / max(1 - load.kv_usage_ratio, LEAST_CACHE_LEFT)
