"""A generation's prompt on its way through the renderers, some of which may go."""

from collections.abc import Callable, Sequence

from services.gateway.interfaces import GenerationRequest, Placement, Rendered
from services.runtime.errors import FeaturesMissingError, OverloadedError, UnavailableError
from services.runtime.logs import get_logger

_log = get_logger()

LEAST_TIMEOUT_S = 0.001


class Rendering:
    """Renders, and pushes features from where they were rendered.

    Args:
        clock: monotonic, in seconds.
        timeout_s: longest `render`, a second renderer included, and longest `push`, rendering again included.
    """

    def __init__(
        self,
        request: GenerationRequest,
        placement: Placement,
        clock: Callable[[], float],
        timeout_s: float,
    ) -> None:
        self._request, self._placement = request, placement
        self._clock, self._timeout_s = clock, timeout_s

    async def render(self) -> Rendered:
        """Render on the least loaded renderer; where that one goes or refuses, once more on another, if there is one.

        Rendering changes nothing but the renderer's bounded store of features, so it may be done twice.
        """
        return await self._render(self._clock() + self._timeout_s)

    async def push(self, digests: Sequence[bytes], worker: str) -> None:
        """Have the renderer send features to a worker (by name).

        Where the renderer no longer has them, or is gone, the prompt is rendered once more first.
        """
        deadline_s = self._clock() + self._timeout_s
        try:
            await self._renderer.push_features(digests, worker, self._remaining_s(deadline_s))
        except FeaturesMissingError:
            # The tokenizer's store is bounded: a burst of images may have displaced these. Once is enough.
            await self._render(deadline_s)
        except UnavailableError as error:
            # Either the renderer went, or the worker did; the caller knows what to do about the worker.
            await self._render_elsewhere(error, deadline_s)
        else:
            return
        await self._renderer.push_features(digests, worker, self._remaining_s(deadline_s))

    async def _render(self, deadline_s: float) -> Rendered:
        prompt = self._request.prompt
        if prompt is not None and not isinstance(prompt.content, str):
            return _raw(prompt.content)
        self._renderer = self._placement.renderer(self._request.model)
        try:
            return await self._ask(deadline_s)
        except (UnavailableError, OverloadedError) as error:
            return await self._render_elsewhere(error, deadline_s)

    async def _render_elsewhere(
        self, error: UnavailableError | OverloadedError, deadline_s: float
    ) -> Rendered:
        first = self._renderer
        try:
            self._renderer = self._placement.renderer(self._request.model, other_than=first)
        except UnavailableError:
            raise error from None
        _log.info(
            "render moves",
            generation_id=self._request.generation_id,
            failed=first.name,
            reason=error.reason.value,
            upstream=self._renderer.name,
        )
        return await self._ask(deadline_s)

    async def _ask(self, deadline_s: float) -> Rendered:
        """What the chosen renderer makes of the messages, or of a text."""
        prompt, limit_s = self._request.prompt, self._remaining_s(deadline_s)
        if prompt is None or not isinstance(prompt.content, str):
            return await self._renderer.render(self._request, limit_s)
        return _raw(
            await self._renderer.tokenize(
                prompt.content,
                limit_s,
                parse_special_tokens=True,
                add_special_tokens=prompt.add_special_tokens,
            )
        )

    def _remaining_s(self, deadline_s: float) -> float:
        return max(deadline_s - self._clock(), LEAST_TIMEOUT_S)


def _raw(token_ids: Sequence[int]) -> Rendered:
    """A prompt that no template made: what follows it is text, not a thought to split off."""
    return Rendered(token_ids, (), (), thinking_closed=True)
