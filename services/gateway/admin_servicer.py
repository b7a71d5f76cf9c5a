"""AdminService.GetSystemStatus: what this gateway knows of itself and of the processes behind it."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from grpc import aio
from hotline.v1 import admin_pb2

from services.gateway.pool import Pool
from services.gateway.upstream import Upstream
from services.runtime.admission import Admission

_Context: TypeAlias = "aio.ServicerContext[Any, Any]"
SystemStatus: TypeAlias = Callable[
    [object, admin_pb2.GetSystemStatusRequest, _Context],
    Awaitable[admin_pb2.GetSystemStatusResponse],
]


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
