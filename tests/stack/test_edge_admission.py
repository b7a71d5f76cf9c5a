"""A key's limits and the gateway's bounds as clients see them: through a real edge, and natively."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

import grpc
import httpx
import openai
import pytest
from edge_process import error_of, free_port, running_envoy, until_serving
from grpc import aio
from sim_stack import LIMIT_S, SimStack, hello, sim_stack, started_tokenizer, started_worker

from services.cli.edge import EdgeSettings
from services.gateway import key_file
from services.gateway.api_key import key_hash, new_key
from services.gateway.key_document import KeyDocument, StoredKey, StoredLimits
from services.runtime.errors import InvalidArgumentError, OverloadedError, RateLimitedError
from services.runtime.status import from_rpc_error

CHAT = "/v1/chat/completions"
LIMITS = {
    "free": {},
    "counted": {"requests_per_minute": 100, "tokens_per_minute": 60_000},
    "rare": {"requests_per_minute": 2},
    "short": {"tokens_per_minute": 600},
    "single": {"max_concurrent": 1},
    "batch": {"first_priority": 50},
}


@dataclass
class Limited:
    """A stack, its edge, and a key for each set of limits."""

    stack: SimStack
    edge: str
    texts: dict[str, str]

    def headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.texts[key]}"}

    async def chat(self, key: str, **fields: object) -> httpx.Response:
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, **fields}
        async with httpx.AsyncClient(base_url=f"http://{self.edge}", timeout=LIMIT_S) as client:
            return await client.post(CHAT, json=body, headers=self.headers(key))

    def generate(self, key: str, *arguments: int, **fields: object) -> "aio.UnaryStreamCall":
        metadata = tuple(self.headers(key).items())
        return self.stack.inference.Generate(
            hello(*arguments, **fields), timeout=LIMIT_S, metadata=metadata
        )


@pytest.fixture
async def limited(tmp_path) -> AsyncGenerator[Limited, None]:
    """Fresh for each test: limits remember."""
    now, texts, stored = datetime.now(UTC), {}, []
    for name, limits in LIMITS.items():
        key_id, texts[name] = new_key()
        about = {"id": key_id, "name": name, "owner": name, "created": now}
        stored.append(StoredKey(hash=key_hash(texts[name]), limits=StoredLimits(**limits), **about))
    keys_file = tmp_path / "keys.json"
    key_file.write(keys_file, KeyDocument(keys=tuple(stored)))
    async with AsyncExitStack() as cleanup:
        worker = await started_worker()
        cleanup.push_async_callback(worker.stop)
        tokenizer = await started_tokenizer(worker.port)
        cleanup.push_async_callback(tokenizer.stop)
        fields = {"keys_file": keys_file, "allow_anonymous": False}
        bounds = {"max_running": 1, "max_waiting": 2, "max_held_bytes": 64 * 1024 * 1024}
        stack = await cleanup.enter_async_context(sim_stack(tokenizer, worker, **fields, **bounds))
        settings = EdgeSettings(
            address=f"127.0.0.1:{free_port()}",
            gateways=(f"127.0.0.1:{stack.gateway.port}",),
            runtime_folder=tmp_path,
        )
        await cleanup.enter_async_context(running_envoy(settings))
        await until_serving(settings.address)
        yield Limited(stack, settings.address, texts)


def rate_headers(headers: object) -> dict[str, str]:
    return {k: v for k, v in dict(headers).items() if k.startswith("x-ratelimit-")}


async def test_answers_say_what_is_left_and_only_for_keys_with_limits(limited):
    answer = await limited.chat("counted")
    assert answer.status_code == 200
    told = rate_headers(answer.headers)
    assert told["x-ratelimit-limit-requests"] == "100"
    assert told["x-ratelimit-remaining-requests"] == "99"
    assert told["x-ratelimit-limit-tokens"] == "60000"
    assert 59_900 < int(told["x-ratelimit-remaining-tokens"]) < 60_000
    assert told["x-ratelimit-reset-requests"].endswith("ms")
    assert len(told) == 6
    streamed = await limited.chat("counted", stream=True)
    assert streamed.headers["cache-control"] == "no-cache, no-transform"
    # One comes back in 0.6 s.
    assert rate_headers(streamed.headers)["x-ratelimit-remaining-requests"] in {"98", "99"}
    bad = await limited.chat("counted", temperature=9)
    assert bad.status_code == 400
    assert len(rate_headers(bad.headers)) == 6
    assert rate_headers((await limited.chat("free")).headers) == {}


async def test_native_answers_and_refusals_say_it_too(limited):
    call = limited.generate("rare", 3)
    told = rate_headers(tuple(await call.initial_metadata()))
    assert told["x-ratelimit-remaining-requests"] == "1"
    async for _ in call:
        pass
    await limited.chat("rare")
    refused = limited.generate("rare", 3)
    with pytest.raises(aio.AioRpcError) as error:
        await refused.read()
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert isinstance(from_rpc_error(error.value, "gateway"), RateLimitedError)
    told = rate_headers(tuple(await refused.initial_metadata()))
    assert told["x-ratelimit-remaining-requests"] == "0"


async def test_too_many_requests_are_429_with_the_second_in_which_one_succeeds(limited):
    for _ in range(2):
        assert (await limited.chat("rare")).status_code == 200
    refused = await limited.chat("rare")
    assert refused.status_code == 429
    assert error_of(refused)["code"] == "rate_limit_exceeded"
    assert 25 <= int(refused.headers["retry-after"]) <= 30
    assert rate_headers(refused.headers)["x-ratelimit-remaining-requests"] == "0"
    assert (await limited.chat("free")).status_code == 200


async def test_too_many_tokens_are_429_and_the_unused_ones_come_back(limited):
    # 400 are reserved each time; were they not given back, the second would be refused.
    for _ in range(3):
        answer = await limited.chat("short", max_tokens=400, temperature=0)
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] < 100
    used_up = await limited.chat("short", max_tokens=300, ignore_eos=True)
    assert used_up.status_code == 200
    refused = await limited.chat("short", max_tokens=400)
    assert refused.status_code == 429
    assert "600 tokens a minute" in error_of(refused)["message"]
    assert int(refused.headers["retry-after"]) > 1


async def test_more_tokens_than_the_key_ever_has_are_400_and_not_tried_again(limited):
    refused = await limited.chat("short", max_tokens=601)
    assert refused.status_code == 400
    assert error_of(refused)["param"] == "max_tokens"
    assert "at most 600 tokens for this API key" in refused.text
    with pytest.raises(aio.AioRpcError) as error:
        await limited.generate("short", 601).read()
    assert isinstance(from_rpc_error(error.value, "gateway"), InvalidArgumentError)


async def test_one_generation_at_once_and_the_next_after_its_end_at_once(limited):
    first = limited.generate("single", 4000)
    await first.read()
    refused = await limited.chat("single")
    assert refused.status_code == 429
    assert "1 generations at once" in error_of(refused)["message"]
    first.cancel()
    await limited.stack.until(lambda: limited.stack.app.admission.seat_count == 0)
    for _ in range(20):  # each as soon as the one before it has ended
        assert (await limited.chat("single")).status_code == 200


async def test_the_openai_client_raises_rate_limit_error(limited):
    for _ in range(2):
        await limited.chat("rare")
    async with openai.AsyncOpenAI(
        base_url=f"http://{limited.edge}/v1", api_key=limited.texts["rare"], max_retries=0
    ) as client:
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(
                model="autoglm-phone-tiny", messages=[{"role": "user", "content": "Hi"}]
            )
    assert refused.value.code == "rate_limit_exceeded"


async def test_positions_in_the_queue_are_by_priority_and_true(limited):
    first = limited.generate("free", 4000)
    await first.read()
    calls = {}
    for name, key, priority in (("late", "free", 3), ("batch", "batch", -100)):
        calls[name] = limited.generate(key, 1, priority=priority)
        waiting = len(calls)
        await limited.stack.until(lambda n=waiting: limited.stack.app.admission.waiting_count == n)
    full = await limited.chat("free")
    assert full.status_code == 429
    assert error_of(full)["code"] == "overloaded"
    first.cancel()
    position = {n: (await call.read()).accepted.queue_position for n, call in calls.items()}
    # The batch key may not be more urgent than 50, whatever it asks for.
    assert position == {"late": 0, "batch": 1}


async def test_bytes_are_refused_before_they_are_parsed_and_given_back(limited):
    admission = limited.stack.app.admission
    with admission.hold_bytes(64 * 1024 * 1024 - 1000):
        refused = await limited.chat("free", padding="x" * 2000)
        assert refused.status_code == 429
        assert "the limit is 67108864" in error_of(refused)["message"]
        async with httpx.AsyncClient(base_url=f"http://{limited.edge}") as client:
            nonsense = await client.post(
                CHAT,
                content=b"{" * 2000,  # would be 400 if anybody read it
                headers={**limited.headers("free"), "content-type": "application/json"},
            )
        assert nonsense.status_code == 429
        big = hello(1)
        big.messages[0].text = "x" * 2000
        metadata = tuple(limited.headers("free").items())
        with pytest.raises(aio.AioRpcError) as error:
            await limited.stack.inference.Generate(big, timeout=LIMIT_S, metadata=metadata).read()
        assert isinstance(from_rpc_error(error.value, "gateway"), OverloadedError)
    assert (await limited.chat("free", padding="x" * 2000)).status_code == 200
    await limited.stack.until(lambda: admission.held_bytes == 0)


async def test_each_prompt_of_a_completion_counts_for_the_key(limited):
    headers, body = limited.headers("single"), {"prompt": ["a", "b"], "max_tokens": 2}
    async with httpx.AsyncClient(base_url=f"http://{limited.edge}", timeout=LIMIT_S) as client:
        refused = await client.post("/v1/completions", json=body, headers=headers)
        # Two never fit into a key for one: to try again would not help.
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt")
        assert "at most 1 prompts" in refused.json()["error"]["message"]
        alone = await client.post("/v1/completions", json={**body, "prompt": "a"}, headers=headers)
        assert alone.status_code == 200
    await limited.stack.until(lambda: limited.stack.app.admission.seat_count == 0)
