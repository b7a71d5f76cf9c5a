"""A prompt on its way through renderers, some of which go."""

import asyncio
from collections.abc import Sequence

import pytest
from scripted import REQUEST, ScriptedPlacement, ScriptedTokenizer

from services.gateway.interfaces import Rendered
from services.gateway.renderers import Renderers
from services.gateway.rendering import Rendering
from services.runtime.errors import (
    DeadlineExceededError,
    FeaturesMissingError,
    InvalidArgumentError,
    OverloadedError,
    UnavailableError,
)

DIGESTS = [b"d" * 32]
PROMPT = Rendered((), (), DIGESTS, False)
GONE = UnavailableError("tokenizer-0 does not answer.", retry_delay_s=1.0)


class Recording(ScriptedTokenizer):
    """Notes the time that it is given, and where it pushes; raises what it is told to."""

    def __init__(self, name: str, *push_errors: Exception, **fields: object) -> None:
        super().__init__(name=name, **fields)
        self.timeouts: list[float] = []
        self.push_errors = list(push_errors)

    async def render(self, request, timeout_s):
        self.timeouts.append(timeout_s)
        return await super().render(request, timeout_s)

    async def push_features(self, digests: Sequence[bytes], worker: str, timeout_s: float) -> None:
        self.pushes += 1
        if self.push_errors:
            raise self.push_errors.pop(0)


def rendering(*tokenizers: ScriptedTokenizer, timeout_s: float = 5.0) -> Rendering:
    placement = ScriptedPlacement(tokenizers, [])
    clock = asyncio.get_running_loop().time
    return Rendering(REQUEST, Renderers(placement, REQUEST.model, clock), clock, timeout_s)


@pytest.mark.parametrize(
    "error", [GONE, OverloadedError("128 wait.", retry_delay_s=1.0)], ids=["gone", "overloaded"]
)
async def test_a_renderer_that_goes_or_refuses_is_replaced_once_within_the_same_time(error):
    first = Recording("a", render_error=error, render_delay_s=0.05)
    second = Recording("b", token_ids=(4, 5))
    rendered = await rendering(first, second).render()
    assert rendered.token_ids == (4, 5)
    assert first.timeouts == [pytest.approx(5.0, abs=0.01)]
    assert second.timeouts[0] < 4.96


async def test_without_another_renderer_the_error_is_passed_on_as_it_was():
    with pytest.raises(UnavailableError) as raised:
        await rendering(Recording("a", render_error=GONE)).render()
    assert raised.value is GONE


async def test_two_are_tried_not_all():
    three = [Recording(name, render_error=GONE) for name in "abc"]
    with pytest.raises(UnavailableError):
        await rendering(*three).render()
    assert [one.renders for one in three] == [1, 1, 0]


@pytest.mark.parametrize(
    "error",
    [InvalidArgumentError("messages[0]", 1, "2"), DeadlineExceededError("too late")],
    ids=["refused", "timeout"],
)
async def test_what_another_renderer_would_say_too_is_not_asked_twice(error):
    first, second = Recording("a", render_error=error), Recording("b")
    with pytest.raises(type(error)):
        await rendering(first, second).render()
    assert second.renders == 0


async def test_features_are_pushed_by_the_renderer_that_made_them():
    first, second = Recording("a", render_error=GONE), Recording("b")
    rendered = rendering(first, second)
    await rendered.render()
    await rendered.push(PROMPT, "worker-0")
    assert (first.pushes, second.pushes) == (0, 1)


async def test_a_renderer_that_went_after_rendering_is_replaced_and_the_prompt_rendered_again():
    first, second = Recording("a", GONE), Recording("b")
    rendered = rendering(first, second)
    await rendered.render()
    await rendered.push(PROMPT, "worker-0")
    assert (first.renders, second.renders, second.pushes) == (1, 1, 1)


async def test_features_that_were_displaced_are_rendered_once_more_not_twice():
    only = Recording("a", FeaturesMissingError(DIGESTS), FeaturesMissingError(DIGESTS))
    rendered = rendering(only)
    await rendered.render()
    with pytest.raises(FeaturesMissingError):
        await rendered.push(PROMPT, "worker-0")
    assert (only.renders, only.pushes) == (2, 2)


async def test_a_push_that_fails_with_no_other_renderer_says_why():
    only = Recording("a", GONE)
    rendered = rendering(only)
    await rendered.render()
    with pytest.raises(UnavailableError) as raised:
        await rendered.push(PROMPT, "worker-0")
    assert raised.value is GONE
    assert only.renders == 1
