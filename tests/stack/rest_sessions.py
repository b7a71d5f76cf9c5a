"""Owners of sessions, each with a key, on a whole stack behind a real edge."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from rest_stack import RestStack, rest_stack
from sim_stack import LIMIT_S

from services.gateway import key_file
from services.gateway.api_key import key_hash, new_key
from services.gateway.key_document import KeyDocument, StoredKey

SESSIONS, CHAT, CLEAR = "/v1/sessions", "/v1/chat/completions", "/v1/kvcache/clear"
MAX_PER_OWNER = 60


@dataclass
class OwnedStack(RestStack):
    """A stack that asks for keys."""

    keys: dict[str, str] = field(repr=False)

    def owner(self, name: str) -> httpx.AsyncClient:
        """A client of that owner's."""
        headers = {"authorization": f"Bearer {self.keys[name]}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=LIMIT_S)


@asynccontextmanager
async def owned_stack(folder: Path, owners: Sequence[str]) -> AsyncGenerator[OwnedStack, None]:
    """A stack with these owners, of whom each may have MAX_PER_OWNER sessions.

    Args:
        folder: for keys and the edge's files; must be there.
    """
    texts, stored = {}, []
    for name in owners:
        key_id, texts[name] = new_key()
        about = {"id": key_id, "name": name, "owner": name, "created": datetime.now(UTC)}
        stored.append(StoredKey(hash=key_hash(texts[name]), **about))
    path = folder / "keys.json"
    key_file.write(path, KeyDocument(keys=tuple(stored)))
    gateway = {"keys_file": path, "allow_anonymous": False}
    bounds = {"max_per_owner": MAX_PER_OWNER}
    async with rest_stack(folder, {"max_model_len": 4096}, sessions=bounds, **gateway) as stack:
        yield OwnedStack(stack.behind, stack.address, texts)


async def opened(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await http.post(SESSIONS, json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def chat(text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "max_tokens": 4, "ignore_eos": True} | fields


async def usage(http: httpx.AsyncClient, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    answer = await http.post(CHAT, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]


async def refused(answer: httpx.Response) -> dict[str, Any]:
    assert answer.headers["content-type"].startswith("application/json")
    return answer.json()["error"] | {"status": answer.status_code}
