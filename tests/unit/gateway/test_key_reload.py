"""Reading keys again: one at a time, the newest wins, and a bad file changes nothing."""

import asyncio
import threading
from datetime import UTC, datetime

import pytest

from services.gateway import key_file
from services.gateway.api_key import key_hash, new_key
from services.gateway.key_document import KeyDocument, StoredKey
from services.gateway.key_file import KeyFileError
from services.gateway.key_reload import KeyReload
from services.gateway.key_ring import FileKeyRing

LIMIT_S = 10.0


def one_key(name: str) -> tuple[str, KeyDocument]:
    key_id, text = new_key()
    key = StoredKey(
        id=key_id, name=name, owner=name, hash=key_hash(text), created=datetime.now(UTC)
    )
    return text, KeyDocument(keys=(key,))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "keys.json"


@pytest.fixture
async def keys(file):
    key_file.write(file, KeyDocument())
    ring = FileKeyRing(file, lambda: datetime.now(UTC))
    ring.load()
    reload = KeyReload(ring)
    yield ring, reload
    await reload.close()


async def until(condition) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_new_key_is_known_after_it(file, keys):
    ring, reload = keys
    text, document = one_key("new")
    key_file.write(file, document)
    assert ring.find(text) is None
    reload.begin()
    await until(lambda: ring.find(text) is not None)


async def test_a_broken_file_changes_nothing_and_the_next_good_one_counts(file, keys):
    ring, reload = keys
    old_text, old = one_key("old")
    key_file.write(file, old)
    await reload.now()
    file.write_text("{")
    with pytest.raises(KeyFileError, match="Invalid JSON"):
        await reload.now()
    reload.begin()
    text, document = one_key("new")
    key_file.write(file, document)
    assert ring.find(old_text) is not None
    reload.begin()
    await until(lambda: ring.find(text) is not None)
    assert ring.find(old_text) is None


async def test_what_is_asked_for_while_it_reads_is_one_more_reading(keys, monkeypatch):
    ring, reload = keys
    begun, go = threading.Semaphore(0), threading.Semaphore(0)
    readings = []

    def load() -> None:
        readings.append(None)
        begun.release()
        assert go.acquire(timeout=LIMIT_S)

    monkeypatch.setattr(ring, "load", load)
    reload.begin()
    await asyncio.to_thread(begun.acquire, timeout=LIMIT_S)
    for _ in range(100):
        reload.begin()
    go.release()
    await asyncio.to_thread(begun.acquire, timeout=LIMIT_S)
    go.release()
    await until(lambda: reload._task.done())
    assert len(readings) == 2


async def test_an_unforeseen_error_leaves_the_keys_and_the_next_reload_works(file, keys):
    ring, reload = keys
    text, document = one_key("new")
    key_file.write(file, document)
    ring_load, ring.load = ring.load, lambda: 1 / 0
    reload.begin()
    await until(lambda: reload._task.done())
    ring.load = ring_load
    reload.begin()
    await until(lambda: ring.find(text) is not None)


async def test_without_a_file_there_is_nothing_to_do():
    reload = KeyReload(None)
    await reload.now()
    reload.begin()
    await until(lambda: reload._task.done())
    await reload.close()
