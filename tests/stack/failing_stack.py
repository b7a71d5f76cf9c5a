"""Stacks on which requests fail, each for one reason of the error table, and how that reason is provoked."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from edge_process import free_port, running_envoy, until_serving
from sim_stack import LIMIT_S, SimStack, sim_stack, started_tokenizer, started_worker

from services.cli.edge import EdgeSettings
from services.gateway import key_file
from services.gateway.api_key import key_hash, new_key
from services.gateway.key_document import KeyDocument, StoredKey, StoredLimits

CHAT = "/v1/chat/completions"
PLAIN = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
LIMITS: Mapping[str, Mapping[str, int]] = {"free": {}, "single": {"max_concurrent": 1}}
"""The keys, by name, and their limits."""
SLOW = {"sim_prefill_tokens_per_s": 1000, "max_num_batched_tokens": 128}
"""A worker that reads a prompt of a thousand tokens for a second."""


@dataclass
class FailingStack:
    """A stack that asks for keys, and its edge."""

    behind: SimStack
    address: str
    texts: dict[str, str] = field(repr=False)

    @property
    def url(self) -> str:
        """For any HTTP client."""
        return f"http://{self.address}"

    def headers(self, key: str = "free") -> dict[str, str]:
        """Those of a caller."""
        return {"authorization": f"Bearer {self.texts[key]}"}


@dataclass(frozen=True)
class Failing:
    """A request that fails as long as this situation lasts."""

    stack: FailingStack
    body: Mapping[str, Any] = field(default_factory=dict)
    """What it has besides a plain question."""
    native: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the native request that fails alike."""
    key: str = "free"
    """Whose it is; `none` and `wrong` are nobody's."""


def _keys(path: Path) -> dict[str, str]:
    texts, stored = {}, []
    for name, limits in LIMITS.items():
        key_id, texts[name] = new_key()
        about = {"id": key_id, "name": name, "owner": name, "created": datetime.now(UTC)}
        stored.append(StoredKey(hash=key_hash(texts[name]), limits=StoredLimits(**limits), **about))
    key_file.write(path, KeyDocument(keys=tuple(stored)))
    return texts


@asynccontextmanager
async def failing_stack(
    folder: Path, worker: Mapping[str, object] | None = None, **gateway: object
) -> AsyncGenerator[FailingStack, None]:
    """One worker, tokenizer, gateway and edge, and the keys of LIMITS.

    Args:
        folder: for the edge's files and the keys; must be there and empty.
        worker: settings of the worker.
        gateway: settings of the gateway.
    """
    texts = _keys(folder / "keys.json")
    async with AsyncExitStack() as cleanup:
        engine = await started_worker(**(worker or {}))
        cleanup.push_async_callback(engine.stop)
        tokenizer = await started_tokenizer(engine.port)
        cleanup.push_async_callback(tokenizer.stop)
        fields = {"keys_file": folder / "keys.json", "allow_anonymous": False, **gateway}
        behind = await cleanup.enter_async_context(sim_stack(tokenizer, engine, **fields))
        settings = EdgeSettings(
            address=f"127.0.0.1:{free_port()}",
            gateways=(f"127.0.0.1:{behind.gateway.port}",),
            runtime_folder=folder,
        )
        await cleanup.enter_async_context(running_envoy(settings))
        await until_serving(settings.address)
        yield FailingStack(behind, settings.address, texts)


def authorization(failing: Failing) -> dict[str, str]:
    if failing.key == "wrong":
        return {"authorization": "Bearer hl-0123456789abcdef-no"}
    return failing.stack.headers(failing.key)


async def post(failing: Failing, **fields: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=failing.stack.url, timeout=LIMIT_S) as client:
        return await posted(client, failing, **fields)


async def posted(client: httpx.AsyncClient, failing: Failing, **fields: Any) -> httpx.Response:
    body = {**PLAIN, **failing.body, **fields}
    return await client.post(CHAT, json=body, headers=authorization(failing))


async def still_answers(failing: Failing) -> None:
    await failing.stack.behind.until_ready()
    headers = failing.stack.headers()
    async with httpx.AsyncClient(base_url=failing.stack.url, timeout=LIMIT_S) as client:
        answer = await client.post(CHAT, json=PLAIN, headers=headers)
    assert answer.status_code == 200, answer.text
