"""Reads an OpenAI event stream strictly: whatever the wire rules of docs/openai.md forbid fails here."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import httpx

REASONS = {"stop", "length", "tool_calls", "content_filter"}


@dataclass
class Told:
    """What one choice of a stream said."""

    content: str = ""
    reasoning: str = ""
    reason: str = ""
    logprobs: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Streamed:
    """A stream that keeps to the rules."""

    chunks: list[dict[str, Any]]
    choices: dict[int, Told]
    usage: dict[str, Any] | None


def check_headers(answer: httpx.Response) -> None:
    """Those that keep proxies from holding or changing the stream."""
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in answer.headers


def events_of(text: str) -> list[dict[str, Any]]:
    """The events before [DONE]; nothing but `data:` lines, each alone in its event."""
    *events, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    for event in events:
        assert event.startswith("data: {"), "no id:, no retry:, no event:, no comments"
        assert "\n" not in event
    return [json.loads(event.removeprefix("data: ")) for event in events]


def read_chat(text: str, *, with_usage: bool = False) -> Streamed:
    """A whole chat stream. Fails where it breaks a rule."""
    chunks = events_of(text)
    usage = chunks.pop()["usage"] if with_usage else None
    assert all("usage" not in chunk for chunk in chunks)
    assert len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert type(chunks[0]["created"]) is int
    choices: dict[int, Told] = defaultdict(Told)
    begun: set[int] = set()
    for chunk in chunks:
        assert chunk["choices"], "an empty list belongs to usage alone"
        for one in chunk["choices"]:
            index, delta, told = one["index"], one["delta"], choices[one["index"]]
            assert not told.reason, "nothing comes after the reason"
            assert ("role" in delta) == (index not in begun), "the role comes once, first"
            begun.add(index)
            assert None not in delta.values()
            told.content += delta.get("content", "")
            told.reasoning += delta.get("reasoning_content", "")
            assert delta.get("reasoning") == delta.get("reasoning_content")
            told.logprobs += (one.get("logprobs") or {}).get("content", [])
            if one["finish_reason"] is not None:
                assert one["finish_reason"] in REASONS
                told.reason = one["finish_reason"]
    assert all(told.reason for told in choices.values())
    return Streamed(chunks, dict(choices), usage)
