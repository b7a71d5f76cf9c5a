"""AdminService: what this gateway knows of itself and of the processes behind it; reading keys again."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from grpc import aio
from hotline.v1 import admin_pb2, admin_pb2_grpc

from services.gateway.admission import Admission
from services.gateway.key_file import KeyFileError
from services.gateway.pool import Pool
from services.gateway.unimplemented import refusing
from services.gateway.upstream import Upstream
from services.runtime.errors import InvalidArgumentError

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
SystemStatus: TypeAlias = Callable[
    [object, admin_pb2.GetSystemStatusRequest, _Context],
    Awaitable[admin_pb2.GetSystemStatusResponse],
]


def admin_servicer(
    get_system_status: SystemStatus, reload: Callable[[], Awaitable[None]]
) -> admin_pb2_grpc.AdminServiceServicer:
    """The service; what of it is not built says so.

    Args:
        get_system_status: see `system_status`.
        reload: reads keys again; raises KeyFileError.
    """

    async def reload_configuration(
        servicer: object, request: admin_pb2.ReloadConfigurationRequest, context: _Context
    ) -> admin_pb2.ReloadConfigurationResponse:
        try:
            await reload()
        except KeyFileError as error:
            message = "a keys file that can be used; the old keys stay in force"
            raise InvalidArgumentError("keys_file", str(error), message) from None
        return admin_pb2.ReloadConfigurationResponse()

    servicer: admin_pb2_grpc.AdminServiceServicer = refusing(
        *(admin_pb2_grpc.AdminServiceServicer, "AdminService"),
        GetSystemStatus=get_system_status,
        ReloadConfiguration=reload_configuration,
    )
    return servicer


def system_status(
    name: str, address: str, state: Callable[[], str], admission: Admission, pool: Pool
) -> SystemStatus:
    """The RPC's handler.

    Args:
        name, address: the gateway's own, as configured.
        state: where the gateway is in its life.
    """

    async def get_system_status(
        servicer: object, request: admin_pb2.GetSystemStatusRequest, context: _Context
    ) -> admin_pb2.GetSystemStatusResponse:
        own = admin_pb2.ProcessStatus(
            name=name,
            role="gateway",
            address=address,
            state=state(),
            running=admission.running_count,
            waiting=admission.waiting_count,
        )
        return admin_pb2.GetSystemStatusResponse(
            processes=[own, *_tokenizers(pool), *_workers(pool)]
        )

    return get_system_status


def _tokenizers(pool: Pool) -> list[admin_pb2.ProcessStatus]:
    return [
        admin_pb2.ProcessStatus(
            name=tokenizer.name,
            role="tokenizer",
            address=tokenizer.upstream.address,
            state=_state(tokenizer.upstream),
            running=tokenizer.rendering_count,
            model=tokenizer.status.model,
        )
        for tokenizer in pool.tokenizers
    ]


def _workers(pool: Pool) -> list[admin_pb2.ProcessStatus]:
    return [
        admin_pb2.ProcessStatus(
            name=worker.name,
            role="worker",
            address=worker.upstream.address,
            state=_state(worker.upstream),
            running=worker.load.running,
            waiting=worker.load.waiting,
            model=worker.status.model,
            kv_usage_ratio=worker.load.kv_usage_ratio,
            engine=worker.status.engine,
        )
        for worker in pool.workers
    ]


def _state(upstream: Upstream) -> str:
    return "SERVING" if upstream.serving else "NOT_SERVING"
