"""Reads the keys file again while the gateway serves; a file that cannot be used changes nothing."""

import asyncio

from services.gateway.key_file import KeyFileError
from services.gateway.key_ring import FileKeyRing
from services.runtime.logs import get_logger

_log = get_logger()


class KeyReload:
    """One reading at a time, in a thread, so that the newest file wins and the loop goes on."""

    def __init__(self, keys: FileKeyRing | None) -> None:
        self._keys = keys
        self._reading = asyncio.Lock()
        self._wanted = False
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Read again soon; however often it is asked for meanwhile, once more is enough."""
        self._wanted = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="reload keys")

    async def _run(self) -> None:
        while self._wanted:
            self._wanted = False
            try:
                await self.now()
            except KeyFileError as error:
                _log.error("keys not read again; the old ones stay in force", why=str(error))
            # The top of the task: whatever it is, the old keys serve on, and the log has the cause.
            except Exception:  # noqa: BLE001
                _log.exception("keys not read again; the old ones stay in force")

    async def now(self) -> None:
        """Read again and wait for it. Raises KeyFileError; the old keys then stay."""
        if self._keys is None:
            _log.info("there is no keys file to read again")
            return
        async with self._reading:
            await asyncio.to_thread(self._keys.load)

    async def close(self) -> None:
        """Let go of a reading under way. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
