"""The text of one choice, pinned to one detokeniser, and rebuilt on the next one from its ids when that one goes.

A text is a function of its options and its ids, however they were cut, and grows at its end only. So another
detokeniser that is given all ids so far makes the same text again, and what the client has of it is dropped by length,
its log-probabilities by number, its tool calls by the length of their arguments.
"""

import asyncio
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from services.gateway.events import PositionLogprobs
from services.gateway.interfaces import (
    Detokeniser,
    TextOptions,
    TextOutput,
    TextSink,
    TextStream,
)
from services.gateway.kept_logprobs import KeptLogprobs
from services.gateway.told_calls import ToldCalls
from services.runtime.errors import InternalError, ServiceError, UnavailableError
from services.runtime.logs import get_logger

_log = get_logger()

FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 1.0
"""Before a text goes back to a detokeniser whose stream has just broken: doubled from the first to the last."""


class Detokenisers(Protocol):
    """The detokenisers of one model."""

    def choose(self, avoid: Detokeniser | None = None) -> Detokeniser:
        """One that serves, another than `avoid` where there is one. Raises UnavailableError."""

    async def changed(self) -> None:
        """Return when one has begun or ceased to serve."""


class PinnedText:
    """See interfaces.TextStream. Keeps the choice's ids, 4 bytes each, at most max_tokens of them, and the
    log-probabilities that have not come back yet.

    When its detokeniser's stream breaks, it opens the text again on another one, or on the same when that is back, and
    sends all ids. Meanwhile the worker goes on, and new ids join the others. Where nobody comes back in time, the sink
    hears UnavailableError. The loop's clock measures.

    Args:
        rebuild_timeout_s: longest time without a detokeniser, from the break on. A rebuilt stream that breaks before
            it brought anything new goes on with the time of the break before.
        rebuilt: told whenever the text was opened again.
    """

    def __init__(
        self,
        detokenisers: Detokenisers,
        options: TextOptions,
        choice_index: int,
        sink: TextSink,
        rebuild_timeout_s: float,
        rebuilt: Callable[[], None] = lambda: None,
    ) -> None:
        self._detokenisers, self._timeout_s = detokenisers, rebuild_timeout_s
        self._options, self._choice_index, self._sink = options, choice_index, sink
        self._rebuilt = rebuilt
        self._ids = array("I")
        self._logprobs, self._calls = KeptLogprobs(), ToldCalls()
        self._last = False
        self._text_length = self._reasoning_length = 0  # that the sink has
        self._skip_text = self._skip_reasoning = 0  # of it, still to come again
        self._give_up_s: float | None = None
        self._breaks = 0
        self._rebuilding: asyncio.Task[None] | None = None
        self._stream: TextStream | None = None
        self._open(detokenisers.choose())

    def send(
        self,
        token_ids: Sequence[int],
        last: bool,
        logprobs: Sequence[PositionLogprobs | None] = (),
    ) -> None:
        """Queue ids; while there is no stream they are kept for the next one."""
        self._ids.extend(token_ids)
        if logprobs:
            self._logprobs.add(logprobs)
        self._last = self._last or last
        if self._stream is not None:
            self._stream.send(token_ids, last, logprobs)

    def close(self) -> None:
        """Forget the text here and there. Idempotent."""
        if self._rebuilding is not None:
            self._rebuilding.cancel()
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _open(self, detokeniser: Detokeniser) -> None:
        self._detokeniser = detokeniser
        self._opened_s = asyncio.get_running_loop().time()
        self._skip_text, self._skip_reasoning = self._text_length, self._reasoning_length
        self._calls.again()
        self._stream = detokeniser.open_text(self._options, self._choice_index, self._take)
        if self._ids or self._last:
            self._stream.send(self._ids, self._last, self._logprobs.again())

    def _take(self, output: TextOutput | ServiceError) -> None:
        if isinstance(output, ServiceError):
            self._stream = None
            if isinstance(output, UnavailableError):
                self._broke()
            else:
                self._sink(output)
            return
        if output.logprobs:
            new = self._logprobs.new(output.logprobs, self._ids)
            output = replace(output, logprobs=new)
        if output.calls:
            output = replace(output, calls=self._calls.new(output.calls))
        if self._give_up_s is not None:
            output = self._unknown_part(output)
            if not (output.text or output.reasoning or output.calls or output.finished):
                return
            self._recovered()
        self._text_length += len(output.text)
        self._reasoning_length += len(output.reasoning)
        self._sink(output)

    def _unknown_part(self, output: TextOutput) -> TextOutput:
        """The part of an output that the sink does not have."""
        text = min(self._skip_text, len(output.text))
        reasoning = min(self._skip_reasoning, len(output.reasoning))
        self._skip_text -= text
        self._skip_reasoning -= reasoning
        return replace(output, text=output.text[text:], reasoning=output.reasoning[reasoning:])

    def _recovered(self) -> None:
        self._give_up_s, self._breaks = None, 0
        if self._skip_text or self._skip_reasoning:  # it ended before it came so far
            _log.error("a rebuilt text differs", upstream=self._detokeniser.name)

    def _broke(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._give_up_s is None or now_s - self._opened_s >= self._timeout_s:
            self._give_up_s, self._breaks = now_s + self._timeout_s, 0
        self._breaks += 1
        self._rebuilding = asyncio.create_task(self._rebuild(self._give_up_s), name="text rebuild")

    async def _rebuild(self, give_up_s: float) -> None:
        broken = self._detokeniser
        try:
            async with asyncio.timeout_at(give_up_s):
                successor = await self._successor(broken)
            self._rebuilding = None
            self._open(successor)
            self._rebuilt()
            _log.info(
                "text rebuilt", broken=broken.name, upstream=successor.name, ids=len(self._ids)
            )
        except TimeoutError:
            self._sink(
                UnavailableError(
                    f"The tokenizer ended, and none served this text again within {self._timeout_s:g} s.",
                    retry_delay_s=1.0,
                )
            )
        # The top of the task: whatever it is, the generation must hear of it, and the log of the cause.
        except Exception:  # noqa: BLE001
            _log.exception("text rebuild failed", upstream=broken.name)
            self._sink(InternalError())

    async def _successor(self, broken: Detokeniser) -> Detokeniser:
        """Another one at once; the broken one when it is back, or after a pause where it never ceased to serve."""
        pause_s = min(FIRST_PAUSE_S * 2 ** (self._breaks - 1), LAST_PAUSE_S)
        paused = False
        while True:
            try:
                chosen = self._detokenisers.choose(avoid=broken)
                if paused or (chosen is not broken and self._breaks == 1):
                    return chosen
                wait_s: float | None = pause_s
            except UnavailableError:
                wait_s = None  # nobody serves: only a change can help
            try:
                async with asyncio.timeout(wait_s):
                    await self._detokenisers.changed()
            except TimeoutError:
                paused = True
            else:
                paused = paused or wait_s is None
