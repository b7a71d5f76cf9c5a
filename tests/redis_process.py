"""A real Redis (or Valkey) server on a unix socket in a folder of its own."""

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

START_LIMIT_S = 10.0


def has_redis() -> bool:
    """Whether there is one on this machine."""
    return bool(_found())


def _found() -> str | None:
    return shutil.which("redis-server") or shutil.which("valkey-server")


def redis_binary() -> str:
    """The server's program; skips where there is none."""
    found = _found()
    if found is None:
        pytest.skip("no redis-server or valkey-server here: apt-get install redis-server")
    return found


@asynccontextmanager
async def running_redis(
    folder: Path, *options: str
) -> AsyncGenerator[tuple[str, asyncio.subprocess.Process], None]:
    """Its URL and process; ended by its pid."""
    socket = folder / "redis.sock"
    process = await asyncio.create_subprocess_exec(
        *(redis_binary(), "--port", "0", "--unixsocket", str(socket), "--dir", str(folder)),
        *("--save", "", "--maxmemory", "64mb", "--maxmemory-policy", "noeviction"),
        *("--logfile", str(folder / "redis.log"), *options),
    )
    try:
        async with asyncio.timeout(START_LIMIT_S):
            await _until_there(socket)
        yield f"unix://{socket}", process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _until_there(socket: Path) -> None:
    while True:
        try:
            _, writer = await asyncio.open_unix_connection(socket)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            await writer.wait_closed()
            return
