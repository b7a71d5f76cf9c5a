"""What a stream of a kept generation looks like, for who reads it first and for who comes back."""

import json
from typing import Any

import pytest

from services.gateway.events import (
    Accepted,
    ChoiceEnd,
    Failed,
    Finish,
    Finished,
    Heartbeat,
    Numbered,
    Reasoning,
    State,
    Text,
    Timings,
    Usage,
)
from services.gateway.openai_response import DONE, PING
from services.gateway.rest_form import RestForm
from services.gateway.rest_stream import resumed, streamed
from services.runtime.errors import UnavailableError

ACCEPTED = Numbered(1, Accepted("g", "m", 3, 0))
END = Finished([ChoiceEnd(0, Finish.STOP)], Usage(3, 2), Timings())
BEAT = Numbered(1, Heartbeat(State.PREFILL))


def form(**fields: Any) -> RestForm:
    return RestForm(
        **{"is_chat": True, "generation_id": "g", "created_s": 7, "model": "m", **fields}
    )


async def of(events: list[Numbered], read: Any) -> bytes:
    async def source():
        for event in events:
            yield event

    return b"".join([body.data async for body in read(source())])


def data_of(stream: bytes) -> list[dict[str, Any]]:
    lines = stream.decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


async def test_chunks_tell_numbers_only_where_keeping_was_asked_for():
    events = [ACCEPTED, Numbered(2, Text(0, "a")), Numbered(5, Text(0, "b")), Numbered(6, END)]
    for is_chat in (True, False):
        plain = form(is_chat=is_chat)
        [*chunks] = data_of(await of(events, lambda s, f=plain: streamed(s, f.chunks())))
        assert not any("sequence" in chunk for chunk in chunks)
        kept = form(is_chat=is_chat, is_numbered=True)
        first, second, last = data_of(await of(events, lambda s, f=kept: streamed(s, f.chunks())))
        assert (first["sequence"], second["sequence"]) == (2, 5)
        assert "sequence" not in last


async def test_pings_come_only_once_it_was_accepted():
    events = [BEAT, ACCEPTED, BEAT, Numbered(2, Text(0, "a")), BEAT, Numbered(3, END)]
    stream = await of(events, lambda s: streamed(s, form().chunks()))
    assert stream.startswith(PING + b"data: ")
    assert stream.count(PING) == 2
    assert stream.endswith(DONE)


async def test_who_comes_back_gets_numbers_as_ids_and_the_end_s_only_at_done():
    events = [BEAT, Numbered(4, Text(0, "a")), Numbered(9, END)]
    chunks = form(include_usage=True).chunks(begun=[0])
    lines = (await of(events, lambda s: resumed(s, chunks, 1))).decode().splitlines()
    assert lines[0] == ": prefill"
    ids = [line for line in lines if line.startswith("id: ")]
    assert ids == ["id: 4", "id: 4", "id: 4", "id: 9"]
    assert lines[-3:] == ["id: 9", "data: [DONE]", ""]


async def test_who_had_everything_gets_the_end_of_the_stream_alone():
    ended = Numbered(9, Heartbeat(State.ENDED))
    stream = await of([ended], lambda s: resumed(s, form().chunks(), 9))
    assert stream == b": ended\n" + DONE


async def test_the_role_is_told_once_for_each_choice():
    events = [Numbered(4, Text(0, "a")), Numbered(5, Text(1, "b")), Numbered(6, Reasoning(1, "c"))]
    chunks = form(choice_count=2).chunks(begun=[0])
    deltas = [json.loads(chunks.of(e)[6:])["choices"][0]["delta"] for e in events]
    assert ["role" in delta for delta in deltas] == [False, True, False]


@pytest.mark.parametrize("is_chat", [True, False])
async def test_a_failure_is_raised_and_what_says_nothing_is_nothing(is_chat):
    chunks = form(is_chat=is_chat).chunks()
    assert chunks.of(ACCEPTED) == b""
    with pytest.raises(UnavailableError):
        chunks.of(Numbered(2, Failed(UnavailableError("gone"))))


def test_answers_are_named_by_their_generation():
    assert form().answer_id == "chatcmpl-g"
    assert form(is_chat=False).answer_id == "cmpl-g"
