"""Work that moves to another renderer, once."""

import asyncio

import pytest
from scripted import ScriptedPlacement, ScriptedTokenizer

from services.gateway.interfaces import Tokenizer
from services.gateway.renderers import Renderers
from services.runtime.errors import InvalidArgumentError, OverloadedError, UnavailableError

GONE, FULL = UnavailableError("first goes"), OverloadedError("first is full")


def renderers(*names: str) -> Renderers:
    placement = ScriptedPlacement([ScriptedTokenizer(name) for name in names], [])
    return Renderers(placement, "m", asyncio.get_running_loop().time)


class Asked:
    """Fails as told, one error a call, then answers with the renderer's name."""

    def __init__(self, *errors: Exception, takes_s: float = 0.0) -> None:
        self.errors, self.takes_s = list(errors), takes_s
        self.names: list[str] = []
        self.limits_s: list[float] = []

    async def __call__(self, renderer: Tokenizer, limit_s: float) -> str:
        self.names.append(renderer.name)
        self.limits_s.append(limit_s)
        await asyncio.sleep(self.takes_s)
        if self.errors:
            raise self.errors.pop(0)
        return renderer.name


async def test_who_answers_is_asked_alone():
    ask = Asked()
    assert await renderers("a", "b").ask(ask, 5.0) == "a"
    assert ask.names == ["a"]


@pytest.mark.parametrize("error", [pytest.param(GONE, id="gone"), pytest.param(FULL, id="full")])
async def test_where_the_first_one_goes_or_refuses_another_is_asked(error):
    ask = Asked(error)
    assert await renderers("a", "b").ask(ask, 5.0) == "b"
    assert ask.names == ["a", "b"]


async def test_both_together_have_the_time_of_one():
    ask = Asked(GONE, takes_s=0.05)
    await renderers("a", "b").ask(ask, 5.0)
    assert ask.limits_s[0] == 5.0
    assert 4.0 < ask.limits_s[1] <= 4.951


async def test_without_another_the_first_ones_error_stands():
    with pytest.raises(UnavailableError, match="first goes"):
        await renderers("a").ask(Asked(GONE), 5.0)


async def test_a_third_one_is_not_asked():
    ask = Asked(GONE, UnavailableError("second goes"))
    with pytest.raises(UnavailableError, match="second goes"):
        await renderers("a", "b", "c").ask(ask, 5.0)
    assert len(ask.names) == 2


async def test_what_is_wrong_with_the_request_moves_nowhere():
    ask = Asked(InvalidArgumentError("text", "x", "y"))
    with pytest.raises(InvalidArgumentError):
        await renderers("a", "b").ask(ask, 5.0)
    assert ask.names == ["a"]
