"""A raw prompt's way past the template."""

import asyncio
from dataclasses import replace

import pytest
from scripted import REQUEST, ScriptedPlacement, ScriptedTokenizer

from services.gateway.renderable import RawPrompt
from services.gateway.renderers import Renderers
from services.gateway.rendering import Rendering
from services.runtime.errors import UnavailableError

GONE = UnavailableError("tokenizer-0 does not answer.", retry_delay_s=1.0)


class Tokenizing(ScriptedTokenizer):
    """Notes how it is asked; raises what it is told to."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        super().__init__(name=name)
        self.error, self.asked = error, []

    async def tokenize(self, text, timeout_s, parse_special_tokens=False, add_special_tokens=False):
        self.asked.append((text, parse_special_tokens, add_special_tokens))
        if self.error is not None:
            raise self.error
        return [7, 8]


def rendering(prompt: RawPrompt, *tokenizers: ScriptedTokenizer) -> Rendering:
    request = replace(REQUEST, prompt=prompt)
    placement = ScriptedPlacement(tokenizers, [])
    clock = asyncio.get_running_loop().time
    return Rendering(request, Renderers(placement, request.model, clock), clock, 5.0)


@pytest.mark.parametrize("add", [False, True])
async def test_a_text_is_tokenised_with_its_control_tokens_and_never_rendered(add):
    tokenizer = Tokenizing("a")
    rendered = await rendering(RawPrompt("Hi", add, "prompt"), tokenizer).render()
    assert tokenizer.asked == [("Hi", True, add)]
    assert tokenizer.renders == 0
    assert list(rendered.token_ids) == [7, 8]
    assert rendered.thinking_closed


async def test_token_ids_need_no_renderer_at_all():
    rendered = await rendering(RawPrompt([4, 5], True, "prompt")).render()
    assert list(rendered.token_ids) == [4, 5]
    assert not rendered.features


async def test_a_text_moves_to_another_renderer_when_the_first_is_gone():
    second = Tokenizing("b")
    rendered = await rendering(RawPrompt("Hi", True, "p"), Tokenizing("a", GONE), second).render()
    assert list(rendered.token_ids) == [7, 8]
    assert second.asked == [("Hi", True, True)]
