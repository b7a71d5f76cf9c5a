"""A Redis or Valkey server that may be away for a while."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import redis.asyncio
from redis.exceptions import RedisError

from services.gateway.sessions.away import away
from services.runtime.logs import get_logger

_log = get_logger()
Result = TypeVar("Result")

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 3.0
MAX_CONNECTIONS = 64


class RedisServer:
    """Every call has a deadline, and fails as UNAVAILABLE; connections are made anew by themselves."""

    def __init__(self, url: str) -> None:
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=MAX_CONNECTIONS,
            timeout=ANSWER_TIMEOUT_S,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=ANSWER_TIMEOUT_S,
            health_check_interval=15,
        )
        self.client: Any = redis.asyncio.Redis(connection_pool=pool)

    def script(self, source: str) -> Callable[..., Awaitable[Any]]:
        """A script, as a coroutine function of `keys` and `args`."""
        script = self.client.register_script(source)

        async def run(keys: list[str], args: list[Any]) -> Any:
            return await self.answer(script(keys=keys, args=args))

        return run

    async def answer(self, command: Awaitable[Result]) -> Result:
        """What a command answers. Raises UnavailableError."""
        try:
            return await command
        except (RedisError, OSError, TimeoutError) as error:
            # Not its words: they may hold the address.
            _log.warning("the session server does not answer", kind=type(error).__name__)
            raise away() from error

    async def close(self) -> None:
        """Let go. Idempotent."""
        await self.client.aclose()
        await self.client.connection_pool.disconnect()
