"""The gateway's second server, for operators: AdminService and channelz, where no client comes."""

from grpc import aio
from hotline.v1 import admin_pb2_grpc

from services.runtime.built_in import add_built_in
from services.runtime.channel import create_server
from services.runtime.health import HealthServicer
from services.runtime.interceptors import CallObserver, ErrorInterceptor

_NAME = "hotline.v1.AdminService"


class AdminListener:
    """Asks for no key: the address is loopback, or a socket of this user's."""

    def __init__(
        self,
        servicer: admin_pb2_grpc.AdminServiceServicer,
        observer: CallObserver,
        with_channelz: bool,
    ) -> None:
        self._server: aio.Server = create_server([ErrorInterceptor(observer)])
        self._health = HealthServicer()
        admin_pb2_grpc.add_AdminServiceServicer_to_server(servicer, self._server)
        add_built_in(self._server, [_NAME], self._health, with_channelz)
        self.port = 0

    async def start(self, address: str) -> None:
        """Answer from now on. Raises RuntimeError where the address is taken."""
        self.port = self._server.add_insecure_port(address)
        await self._server.start()
        for name in ("", _NAME):
            await self._health.set(name, True)

    async def close(self) -> None:
        """Answer no more; calls under way are cut. Idempotent."""
        await self._health.end_watches()
        await self._server.stop(0)
