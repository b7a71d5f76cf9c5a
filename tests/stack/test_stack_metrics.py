"""The metrics of all three services while they work, and the page that lists them."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from grpc import aio
from hotline.v1 import conversation_pb2, inference_pb2
from prometheus_client.parser import text_string_to_metric_families
from sim_stack import LIMIT_S, hello, sim_stack, started_tokenizer, started_worker

from services.runtime.lifecycle import Process

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ADDRESS = "127.0.0.1:0"
MODEL = "autoglm-phone-tiny"
SERVICES = ("gateway", "tokenizer", "worker")


async def text_of(process: Process) -> str:
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{process.metrics_port}/metrics")
    assert answer.status_code == 200
    return answer.text


async def samples(process: Process) -> dict[str, float]:
    """Sample -> value, as `name` or `name{label="value",...}`."""
    lines = [line.rpartition(" ") for line in (await text_of(process)).splitlines()]
    return {name: float(value) for name, _, value in lines if not name.startswith("#")}


@pytest.fixture
async def stack():
    worker = await started_worker(metrics_address=ADDRESS, max_num_seqs=8)
    tokenizer = await started_tokenizer(worker.port, metrics_address=ADDRESS)
    async with sim_stack(
        tokenizer, worker, metrics_address=ADDRESS, max_running=2, max_waiting=1
    ) as running:
        yield running
    await tokenizer.stop()
    await worker.stop()


async def generated(stack, request: inference_pb2.GenerateRequest):
    events = [event async for event in stack.inference.Generate(request, timeout=LIMIT_S)]
    return events[-1].finished.usage


async def until(process: Process, name: str, value: float) -> None:
    async with asyncio.timeout(LIMIT_S):
        while (await samples(process)).get(name) != value:
            await asyncio.sleep(0.02)


def by_model(name: str) -> str:
    return f'hotline_gateway_{name}{{model="{MODEL}"}}'


def ends(outcome: str, reason: str) -> str:
    labels = f'model="{MODEL}",outcome="{outcome}",reason="{reason}"'
    return f"hotline_gateway_generations_total{{{labels}}}"


async def test_tokens_are_counted_alike_by_client_gateway_tokenizer_and_worker(stack):
    usages = [await generated(stack, hello(20)) for _ in range(3)]
    prompt = sum(usage.prompt_tokens for usage in usages)
    cached = sum(usage.cached_tokens for usage in usages)
    gateway, tokenizer = await samples(stack.gateway), await samples(stack.tokenizer)
    worker = await samples(stack.worker)
    assert gateway[by_model("prompt_tokens_total")] == prompt
    assert gateway[by_model("completion_tokens_total")] == 60
    assert gateway[by_model("cached_tokens_total")] == cached
    assert gateway[by_model("kv_reuse_ratio")] == pytest.approx(cached / prompt)
    assert worker["hotline_worker_prompt_tokens_total"] == prompt
    assert worker["hotline_worker_cached_tokens_total"] == cached
    assert worker["hotline_worker_generated_tokens_total"] == 60
    assert tokenizer["hotline_tokenizer_prompt_tokens_total"] == prompt
    assert tokenizer["hotline_tokenizer_detokenised_tokens_total"] == 60
    assert tokenizer['hotline_tokenizer_renders_total{outcome="ok"}'] == 3


async def test_first_tokens_and_gaps_are_as_many_as_there_were(stack):
    pieces = []
    for _ in range(2):
        call = stack.inference.Generate(hello(30), timeout=LIMIT_S)
        pieces.append([event async for event in call if event.HasField("text")])
    seen = await samples(stack.gateway)
    assert seen[by_model("time_to_first_token_seconds_count")] == 2
    # What the client got may have been merged, what is measured is not.
    assert seen[by_model("inter_token_seconds_count")] >= sum(len(p) - 1 for p in pieces)
    assert seen[by_model("inter_token_seconds_count")] <= 2 * 29
    assert seen[by_model("generation_seconds_count")] == 2
    assert seen[by_model("queue_seconds_count")] == 2
    assert seen[by_model("time_to_first_token_seconds_sum")] > 0


async def test_every_end_has_its_reason(stack):
    await generated(stack, hello(5))
    cancelled = stack.inference.Generate(hello(1000, generation_id="c"), timeout=LIMIT_S)
    await cancelled.read()
    await stack.inference.Cancel(inference_pb2.CancelRequest(generation_id="c"))
    while await cancelled.read() is not aio.EOF:
        pass
    left = stack.inference.Generate(hello(1000), timeout=LIMIT_S)
    await left.read()
    left.cancel()
    too_long = hello(1)
    too_long.messages[0].text = "word " * 10_000
    with pytest.raises(aio.AioRpcError):
        await stack.inference.Generate(too_long, timeout=LIMIT_S).read()
    await until(stack.gateway, ends("finished", "CANCELLED"), 2)
    seen = await samples(stack.gateway)
    assert seen[ends("finished", "LENGTH")] == 1
    assert seen[ends("failed", "CONTEXT_LENGTH_EXCEEDED")] == 1
    assert seen['hotline_errors_total{reason="CONTEXT_LENGTH_EXCEEDED"}'] == 1


async def test_the_queue_is_seen_and_its_overflow_is_an_error(stack):
    calls = [stack.inference.Generate(hello(100_000), timeout=LIMIT_S) for _ in range(3)]
    await until(stack.gateway, "hotline_gateway_generations_running", 2)
    await until(stack.gateway, "hotline_gateway_generations_waiting", 1)
    with pytest.raises(aio.AioRpcError):
        await stack.inference.Generate(hello(1), timeout=LIMIT_S).read()
    await until(stack.worker, "hotline_worker_running", 2)
    seen = await samples(stack.gateway)
    assert seen['hotline_errors_total{reason="OVERLOADED"}'] == 1
    assert seen['hotline_gateway_refusals_total{limit="max_waiting"}'] == 1
    assert seen['hotline_gateway_queue_waiting{priority="normal"}'] == 1
    assert seen["hotline_gateway_held_bytes"] > 0
    await until(stack.tokenizer, "hotline_tokenizer_open_handles", 2)
    for call in calls:
        call.cancel()
    await until(stack.gateway, "hotline_gateway_generations_running", 0)
    await until(stack.worker, "hotline_worker_running", 0)
    await until(stack.tokenizer, "hotline_tokenizer_open_handles", 0)


async def test_a_refused_render_counts_under_its_reason(stack):
    bad = conversation_pb2.Part(image=conversation_pb2.ImagePart(data=b"no image"))
    message = conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=[bad])
    )
    request = inference_pb2.CountTokensRequest(messages=[message])
    with pytest.raises(aio.AioRpcError):
        await stack.inference.CountTokens(request, timeout=LIMIT_S)
    seen = await samples(stack.tokenizer)
    assert seen['hotline_tokenizer_renders_total{outcome="INVALID_MEDIA"}'] == 1


async def test_an_upstream_that_goes_is_seen(stack):
    name = 'hotline_gateway_upstream_serving{upstream="worker-0"}'
    assert (await samples(stack.gateway))[name] == 1
    await stack.worker.stop()
    await until(stack.gateway, name, 0)


async def test_nothing_that_a_client_wrote_becomes_a_label(stack):
    request = hello(3, generation_id="my-own-id")
    await generated(stack, request)
    with pytest.raises(aio.AioRpcError):
        await stack.inference.Generate(
            hello(3, model="made-up-model"), metadata=(("x-request-id", "my-request"),)
        ).read()
    for process in (stack.gateway, stack.tokenizer, stack.worker):
        text = await text_of(process)
        for written in ("my-own-id", "made-up-model", "my-request", "anonymous", MODEL + "/"):
            assert written not in text


def documented() -> dict[str, dict[str, tuple[str, tuple[str, ...]]]]:
    """Section -> name -> type and labels, of the page's tables."""
    found: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = found.setdefault(line[3:].lower(), {})
        match = re.match(r"\| `(\w+)` \| (\w+) \| (.*?) \|", line)
        if match:
            name, kind, labels = match.groups()
            section[name] = (kind, tuple(sorted(re.findall(r"`(\w+)`", labels))))
    return found


async def exposed(process: Process) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name -> type and labels; a labelled family without a series has none."""
    found = {}
    for family in text_string_to_metric_families(await text_of(process)):
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        name = family.name if family.name.endswith(suffix) else family.name + suffix
        kind = "info" if name.endswith("_info") else family.type
        labels = {key for sample in family.samples for key in sample.labels} - {"le"}
        if not name.endswith("_created"):
            found[name] = (kind, tuple(sorted(labels)))
    return found


async def test_the_page_lists_what_is_exposed_and_nothing_else(stack):
    await generated(stack, hello(3))
    with pytest.raises(aio.AioRpcError):
        await stack.inference.Generate(inference_pb2.GenerateRequest(), timeout=LIMIT_S).read()
    page = documented()
    for service in SERVICES:
        process = getattr(stack, service)
        process._service.metrics.name(service, f"{service}-0")
        seen = await exposed(process)
        listed = page["every process"] | page[service]
        assert set(seen) == set(listed), service
        for name, (kind, labels) in seen.items():
            assert listed[name][0] == kind, name
            assert labels in ((), listed[name][1]), name
