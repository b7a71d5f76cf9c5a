import asyncio
import threading
from collections.abc import AsyncGenerator

import pytest

from services.tokenizer.pool import CpuPool


@pytest.fixture
async def pool() -> AsyncGenerator[CpuPool, None]:
    pool = CpuPool(1, "test")
    yield pool
    pool.close()


async def test_work_runs_in_a_thread_of_the_pool_and_its_result_comes_back(pool: CpuPool) -> None:
    assert (await pool.run(lambda: threading.current_thread().name)).startswith("test")


async def test_what_the_work_raises_is_raised(pool: CpuPool) -> None:
    def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await pool.run(work)


async def test_cancelled_work_that_has_not_begun_never_begins(pool: CpuPool) -> None:
    release, begun = threading.Event(), []
    busy = asyncio.ensure_future(pool.run(lambda: release.wait(10)))
    waiting = asyncio.ensure_future(pool.run(lambda: begun.append(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    await busy
    assert begun == []


@pytest.mark.parametrize("fails", [False, True])
async def test_cancelled_work_that_runs_is_waited_for(pool: CpuPool, fails: bool) -> None:
    begun, release, ended = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        release.wait(10)
        ended.append(1)
        if fails:
            raise ValueError("nobody looks at this")

    running = asyncio.ensure_future(pool.run(work))
    await asyncio.to_thread(begun.wait, 10)
    running.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended == [1]
