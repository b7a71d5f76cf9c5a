"""A signal reloads a service that can reload, and stays what it was for every other."""

import asyncio
import os
import signal
from collections.abc import Sequence

import pytest
from grpc import aio

from services.runtime.lifecycle import Process, Service
from services.runtime.settings import ServiceSettings


class Counting(Service):
    """Counts its reloads."""

    def __init__(self, reloads: bool) -> None:
        super().__init__()
        self.reloads = reloads
        self.reloaded = asyncio.Event()

    def register(self, server: aio.Server) -> Sequence[str]:
        return ()

    async def warm(self) -> None: ...

    async def close(self) -> None: ...

    def reload(self) -> None:
        self.reloaded.set()


@pytest.fixture
def heard():
    """SIGUSR1 ends nobody during the test; what it did before the service was asked."""
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    yield signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


async def test_a_service_that_reloads_hears_it_also_while_it_starts(heard):
    service = Counting(reloads=True)
    Process(service, ServiceSettings()).reload_at(signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR1)
    async with asyncio.timeout(5):
        await service.reloaded.wait()
    asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)


async def test_for_another_service_nothing_changes(heard):
    service = Counting(reloads=False)
    Process(service, ServiceSettings()).reload_at(signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) is heard
    assert not service.reloaded.is_set()
