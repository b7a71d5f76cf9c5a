"""From the simulated device to the consumer of one generation. Nothing is queued: a slow consumer gets longer pieces."""

import asyncio
from collections.abc import Iterator, Sequence

from services.worker.engine import Job, PositionLogprobs, Started, Step, Tokens
from services.worker.sim_logprobs import made_up_logprobs
from services.worker.sim_sequence import SimSequence


class SimStream:
    """The steps of one generation, as they become known."""

    def __init__(self, job: Job, sequences: Sequence[SimSequence], vocabulary_size: int) -> None:
        self._job, self._vocabulary_size = job, vocabulary_size
        self._open = {index: (sequence, 0) for index, sequence in enumerate(sequences)}
        self._started = False
        self._wake: asyncio.Future[None] | None = None
        self._ready = False
        self._failure: Exception | None = None

    @property
    def open(self) -> bool:
        """Whether a choice has not ended yet, as far as `take` has told."""
        return bool(self._open)

    def tell(self) -> None:
        """There is something to take."""
        self._ready = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def fail(self, error: Exception) -> None:
        """`wait` raises from now on."""
        self._failure = error
        self.tell()

    async def wait(self) -> None:
        """Until there is something to take. Raises what `fail` was given."""
        if not self._ready:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        self._ready = False
        if self._failure is not None:
            raise self._failure

    def take(self) -> Iterator[Step]:
        """All that is new."""
        if not self._started:
            self._started = True
            cached = max(sequence.cached_tokens for sequence, _ in self._open.values())
            yield Started(len(self._job.prompt.token_ids), max(0, cached))
        for index, (sequence, told) in tuple(self._open.items()):
            count, output = sequence.produced, sequence.output
            if count > told:
                ids = output.ids[told:count]
                self._open[index] = (sequence, count)
                yield Tokens(index, told, ids, self._logprobs(ids, told))
            if output.finished is not None and count == len(output.ids):
                del self._open[index]
                yield output.finished

    def _logprobs(self, ids: Sequence[int], position: int) -> Sequence[PositionLogprobs]:
        count = self._job.sampling.logprobs
        if count is None:
            return ()
        return made_up_logprobs(
            ids, self._job.moved_tokens + position, self._vocabulary_size, count
        )
