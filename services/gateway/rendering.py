"""A generation's prompt on its way through the renderers, some of which may go."""

from collections.abc import Callable, Sequence

from services.gateway.interfaces import GenerationRequest, Rendered, Tokenizer
from services.gateway.renderers import Renderers
from services.runtime.errors import FeaturesMissingError, UnavailableError


class Rendering:
    """Renders, and pushes features from where they were rendered.

    Args:
        clock: monotonic, in seconds.
        timeout_s: longest `render`, a second renderer included, and longest `push`, rendering again included.
    """

    _renderer: Tokenizer
    """The one that rendered last."""

    def __init__(
        self,
        request: GenerationRequest,
        renderers: Renderers,
        clock: Callable[[], float],
        timeout_s: float,
    ) -> None:
        self._request, self._clock, self._timeout_s = request, clock, timeout_s
        self._renderers = renderers

    async def render(self) -> Rendered:
        """Render on the least loaded renderer; where that one goes or refuses, once more on another, if there is one."""
        prompt = self._request.prompt
        if prompt is not None and not isinstance(prompt.content, str):
            return _raw(prompt.content)
        return await self._renderers.ask(self._ask, self._timeout_s)

    async def push(self, rendered: Rendered, worker: str) -> Rendered:
        """Have the renderer send the prompt's features to a worker (by name); the prompt as it was given.

        Where the renderer no longer has them, or is gone, the prompt is rendered once more first.
        """
        digests = rendered.feature_digests
        renderers, deadline_s = self._renderers, self._clock() + self._timeout_s
        try:
            await self._renderer.push_features(digests, worker, renderers.remaining_s(deadline_s))
        except FeaturesMissingError:
            # The tokenizer's store is bounded: a burst of images may have displaced these. Once is enough.
            await renderers.ask(self._ask, renderers.remaining_s(deadline_s))
        except UnavailableError as error:
            # Either the renderer went, or the worker did; the caller knows what to do about the worker.
            await renderers.ask_another(self._ask, self._renderer, error, deadline_s)
        else:
            return rendered
        await self._renderer.push_features(digests, worker, renderers.remaining_s(deadline_s))
        return rendered

    async def _ask(self, renderer: Tokenizer, limit_s: float) -> Rendered:
        """What a renderer makes of the messages, or of a text."""
        self._renderer, prompt = renderer, self._request.prompt
        if prompt is None or not isinstance(prompt.content, str):
            return await renderer.render(self._request, limit_s)
        return _raw(
            await renderer.tokenize(
                prompt.content,
                limit_s,
                parse_special_tokens=True,
                add_special_tokens=prompt.add_special_tokens,
            )
        )


def _raw(token_ids: Sequence[int]) -> Rendered:
    """A prompt that no template made: what follows it is text, not a thought to split off."""
    return Rendered(token_ids, (), (), thinking_closed=True)
