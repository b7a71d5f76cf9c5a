"""kill -9 of each process of a stack while 16 streams run, half over REST and half over gRPC (cases 25 and 31).

Every stream ends with a typed end or goes on, never with a clean end and text missing; what was killed comes back.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import httpx
import pytest
import yaml
from grpc import aio
from hotline.v1 import inference_pb2, inference_pb2_grpc
from status_of_up import processes, status
from up_process import Up, assert_gone, eventually, running_up

from services.cli.configuration import find
from services.runtime.channel import open_channel

pytestmark = pytest.mark.slow

STREAMS, TOKENS = 16, 150
RECOVERY_LIMIT_S = 60.0


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Two gateways, two workers (simulators, 15 ms a token), a renderer, two detokenisers."""
    file = find("sim")
    document = yaml.safe_load(file.read_text())
    document["model"]["path"] = str((file.parent / document["model"]["path"]).resolve())
    # What has ended is not kept, so that the same ids run again: the text of the simulator follows from them.
    document["gateway"] |= {"count": 2, "max_kept_count": 0}
    document["tokenizer"] = {"render": 1, "detokenise": 2, "render_threads": 1}
    document["worker"] |= {"count": 2}
    written = tmp_path_factory.mktemp("matrix") / "stack.yaml"
    written.write_text(yaml.safe_dump(document))
    with running_up("--config", str(written), "--port", "0") as stack:
        yield stack.until_ready()


@dataclass
class End:
    """How a stream ended."""

    kind: str
    """`finished`, `failed` (typed), `transport` (the connection went), or `cut`: a clean end without a terminal event."""
    text: str = ""
    tokens: int = 0


async def over_grpc(channel: aio.Channel, generation_id: str) -> End:
    request = inference_pb2.GenerateRequest(generation_id=generation_id)
    request.messages.add(role="ROLE_USER", text=f"Hi {generation_id}")
    request.sampling.max_tokens, request.sampling.ignore_eos = TOKENS, True
    text = ""
    try:
        async for event in inference_pb2_grpc.InferenceServiceStub(channel).Generate(
            request, timeout=60
        ):
            text += event.text.text
            if event.HasField("failed"):
                assert event.failed.retryable
                return End("failed", text)
            if event.HasField("finished"):
                return End("finished", text, event.finished.usage.completion_tokens)
    except aio.AioRpcError:
        return End("transport", text)
    return End("cut", text)


async def over_rest(client: httpx.AsyncClient, number: int) -> End:
    body = {
        "messages": [{"role": "user", "content": f"Hi {number}"}],
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    kind, text, tokens = "cut", "", 0
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            assert response.status_code == 200
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    kind = "finished"
                elif line.startswith("data: "):
                    chunk = json.loads(line.removeprefix("data: "))
                    if "error" in chunk:
                        kind = "failed"
                    elif chunk.get("usage"):
                        tokens = chunk["usage"]["completion_tokens"]
    except httpx.HTTPError:
        return End("transport")
    return End(kind, text, tokens)


async def ends(up: Up, victim: str = "") -> list[End]:
    """Run 16 streams, kill the victim when they are under way, and tell how each ended; gRPC's come first."""
    address = up.url.removeprefix("http://")
    async with (
        open_channel(address) as channel,
        httpx.AsyncClient(base_url=up.url, timeout=60) as client,
    ):
        streams = [
            *(over_grpc(channel, f"matrix-{n}") for n in range(STREAMS // 2)),
            *(over_rest(client, n) for n in range(STREAMS // 2)),
        ]
        running = asyncio.gather(*streams)
        if victim:
            await asyncio.sleep(1.0)  # of the three seconds that a stream takes
            assert not running.done()
            up.service(victim).kill()
        return await running


def whole(end: End) -> bool:
    return end.kind == "finished" and end.tokens == TOKENS


Record: TypeAlias = Callable[[str, object], None]


def _away_s(up: Up, victim: str) -> float:
    """By the clock of `up`, from `ended` to `ready`."""
    form = re.compile(r"\[ *([\d.]+) s\] (\S+) +(\w+)")
    marks = []
    for word in ("ended", "ready"):
        line = up.until(lambda line, word=word: f" {victim} " in line and f" {word}" in line)
        said = form.match(line)
        assert said is not None, line
        marks.append(float(said[1]))
    return marks[1] - marks[0]


async def recovered(up: Up, victim: str, record: Record) -> None:
    """What was killed is back, and all answers; tells how long `up` was without it."""

    def serving() -> bool:
        return all(process["health"] == "SERVING" for process in processes(up))

    await asyncio.to_thread(eventually, serving, RECOVERY_LIMIT_S)
    after = await ends(up)
    assert all(map(whole, after)), [end for end in after if not whole(end)]
    away_s = await asyncio.to_thread(_away_s, up, victim)
    record(f"{victim} away, s", round(away_s, 1))
    print(f"{victim} was away for {away_s:.1f} s")  # noqa: T201  # a figure for whoever runs with -s


async def test_streams_of_a_killed_worker_go_on_on_the_other_one(up: Up, record_property: Record):
    undisturbed = await ends(up)
    found = await ends(up, "worker-0")
    assert all(map(whole, found)), Counter(end.kind for end in found)
    native = STREAMS // 2  # whose ids, and so whose tokens, are the same each time
    assert [end.text for end in found[:native]] == [end.text for end in undisturbed[:native]]
    await recovered(up, "worker-0", record_property)


async def test_the_text_of_a_killed_detokeniser_is_rebuilt(up: Up, record_property: Record):
    undisturbed = await ends(up)
    found = await ends(up, "detokenise-0")
    assert all(map(whole, found)), Counter(end.kind for end in found)
    assert [end.text for end in found] == [end.text for end in undisturbed]
    await recovered(up, "detokenise-0", record_property)


async def test_a_killed_renderer_disturbs_no_stream(up: Up, record_property: Record):
    found = await ends(up, "render-0")
    assert all(map(whole, found)), Counter(end.kind for end in found)
    await recovered(up, "render-0", record_property)


async def test_a_killed_gateway_cuts_its_own_streams_visibly_and_no_others(
    up: Up, record_property: Record
):
    found = await ends(up, "gateway-0")
    counts = Counter(end.kind for end in found)
    assert not counts["cut"], counts
    assert counts["finished"]
    assert counts["transport"] + counts["failed"]
    assert all(whole(end) for end in found if end.kind == "finished")
    await recovered(up, "gateway-0", record_property)


async def test_a_killed_edge_cuts_every_stream_visibly_and_comes_back(
    up: Up, record_property: Record
):
    found = await ends(up, "edge")
    counts = Counter(end.kind for end in found)
    assert set(counts) == {"transport"}, counts
    await recovered(up, "edge", record_property)


def test_status_tells_each_process(up: Up):
    code, document = status(up)
    (stack,) = document["stacks"]
    assert code == 0
    assert stack["folder"] == str(up.folder)
    by_name = {process["name"]: process for process in stack["processes"]}
    assert [*by_name] == [
        *("worker-0", "worker-1", "render-0", "detokenise-0", "detokenise-1"),
        *("gateway-0", "gateway-1", "edge"),
    ]
    for name, process in by_name.items():
        assert process["health"] == "SERVING"
        assert process["pid"] == up.service(name).pid
    worker = by_name["worker-1"]
    assert (worker["engine"], worker["state"], worker["running"]) == ("sim", "SERVING", 0)
    assert worker["model"] == "autoglm-phone-tiny"


def test_status_does_not_hang_on_a_frozen_process(up: Up):
    frozen = up.service("detokenise-1")
    frozen.suspend()
    try:
        code, document = status(up)
    finally:
        frozen.resume()
    by_name = {process["name"]: process for process in document["stacks"][0]["processes"]}
    assert code == 1
    assert by_name["detokenise-1"]["health"] == "UNREACHABLE"
    assert by_name["detokenise-0"]["health"] == "SERVING"


def test_a_stop_after_all_that_leaves_nothing(up: Up):
    before = up.descendants()
    folder: Path = up.folder
    up.process.terminate()
    assert up.until_end() == 0
    assert_gone(before)
    assert not folder.exists()
    code, document = status(up, folder)
    assert (code, document) == (3, {})
