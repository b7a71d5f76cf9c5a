"""Tool calls of a text that is rebuilt: whole, each once, with one id."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from local_text import LocalDetokeniser, LocalDetokenisers, Reader
from tool_model import MODEL, TAP, TWO_CALLS, WEATHER

from services.gateway.interfaces import TextOptions
from services.gateway.pinned_text import PinnedText
from services.tokenizer.forced_calls import call_readers
from services.tokenizer.model import load_model
from services.tokenizer.settings import Role, TokenizerSettings
from services.tokenizer.tool_calls import Choice, ToolUse
from services.tokenizer.vllm_tool_parser import VllmToolParser

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what vLLM imports
REQUIRED = (
    '[{"name": "get_weather", "parameters": {"city": "Köln", "days": 3}}, '
    '{"name": "tap", "parameters": {"on": true}}]'
)
USE = ToolUse([WEATHER, TAP])


@pytest.fixture(scope="module")
def form() -> Any:
    values: dict[str, Any] = {"model_path": MODEL, "model_name": "m", "roles": [Role.DETOKENISE]}
    output = load_model(TokenizerSettings(**values)).output
    parser = VllmToolParser("hermes", output.detokeniser._backend)
    return replace(output, open_calls=call_readers(parser.open))


def calls(reader: Reader) -> tuple[str, list[tuple[str, str]]]:
    """The text, and the name and arguments of each call."""
    made: dict[int, list[str]] = {}
    for piece in reader.calls:
        assert bool(piece.id) is bool(piece.name), "a name without its id"
        assert bool(piece.id) is (piece.index not in made), "a call has begun twice, or not at all"
        made.setdefault(piece.index, [piece.name, ""])[1] += piece.arguments
    return reader.text, [(name, arguments) for name, arguments in made.values()]


@pytest.mark.parametrize(
    ("text", "use"),
    [
        pytest.param(TWO_CALLS, USE, id="automatic"),
        pytest.param(REQUIRED, replace(USE, choice=Choice.REQUIRED), id="required"),
        pytest.param('{"on": true}', replace(USE, choice=Choice.NAMED, function="tap"), id="named"),
    ],
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    cuts=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    acts=st.lists(st.sampled_from(["flush", "flush", "break", "nothing"]), min_size=1, max_size=9),
)
async def test_calls_cut_and_broken_anywhere_are_the_undisturbed_ones(form, text, use, cuts, acts):
    options = TextOptions((), False, False, False, use)
    ids = form.detokeniser._backend.encode(text, add_special_tokens=False).ids
    undisturbed, reader = Reader(), Reader()
    one = LocalDetokeniser(form)
    one.open_text(options, 0, undisturbed).send(ids, True)
    one.flush()

    both = LocalDetokenisers([LocalDetokeniser(form, "a"), LocalDetokeniser(form, "b")])
    pinned = PinnedText(both, options, 0, reader, 30.0)
    position = step = 0
    while position < len(ids):
        end = position + cuts[step % len(cuts)]
        pinned.send(ids[position:end], False)
        position, act = end, acts[step % len(acts)]
        step += 1
        for one in both.serving:
            if act == "flush":
                one.flush(limit=cuts[-1])
            elif act == "break":
                one.break_off()
        for _ in range(3):
            await asyncio.sleep(0)
    pinned.send((), last=True)
    async with asyncio.timeout(10):
        while reader.end is None:
            for one in both.serving:
                one.flush()
            await asyncio.sleep(0.001)
    pinned.close()
    assert calls(reader) == calls(undisturbed)
    assert calls(reader)[1]
