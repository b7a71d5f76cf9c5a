"""Asks every process of a running stack how it fares; all at once, each with a deadline."""

import asyncio
import http.client
from dataclasses import asdict, dataclass
from typing import Any

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hotline.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    tokenizer_pb2,
    tokenizer_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)

from services.cli.readiness import ask_edge
from services.cli.stack_file import Listed, RunningStack
from services.cli.supervised import ask_supervisor
from services.runtime.channel import open_channel

UNREACHABLE = "UNREACHABLE"
_SERVING = health_pb2.HealthCheckResponse.SERVING


@dataclass
class Report:
    """One process, as far as it told; None where it did not, or has no such figure."""

    name: str
    role: str
    address: str
    metrics_address: str
    admin_address: str = ""
    pid: int | None = None
    uptime_s: int | None = None
    restart_count: int | None = None
    rss_bytes: int | None = None
    health: str = UNREACHABLE
    """SERVING, NOT_SERVING or UNREACHABLE (no answer in time)."""
    state: str | None = None
    """STARTING, WARMING, SERVING, DRAINING or STOPPED."""
    model: str | None = None
    engine: str | None = None
    running: int | None = None
    waiting: int | None = None
    kv_usage_ratio: float | None = None
    engine_restart_count: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The object of `--json`; docs/status.md is its contract."""
        return asdict(self)


async def inspect(stack: RunningStack, timeout_s: float) -> list[Report]:
    """A report for each process, in the stack's order; never longer than the timeout."""
    supervised = asyncio.create_task(
        asyncio.to_thread(ask_supervisor, stack.folder, timeout_s / 2)  # two calls
    )
    reports = await asyncio.gather(*(_report(listed, timeout_s) for listed in stack.processes))
    known = await supervised
    for report in reports:
        if (found := known.get(report.name)) is not None:
            report.pid, report.uptime_s = found.pid, found.uptime_s
            report.restart_count, report.rss_bytes = found.restart_count, found.rss_bytes
    return list(reports)


async def _report(listed: Listed, timeout_s: float) -> Report:
    report = Report(
        *(listed.name, listed.role, listed.address),
        *(listed.metrics_address, listed.admin_address),
    )
    try:
        async with asyncio.timeout(timeout_s):
            await (_ask_edge(report, timeout_s) if listed.role == "edge" else _ask(report))
    except TimeoutError:
        pass  # it says UNREACHABLE, or what it told before it fell silent
    return report


async def _ask_edge(report: Report, timeout_s: float) -> None:
    try:
        status, _ = await asyncio.to_thread(ask_edge, report.address, "/health/ready", timeout_s)
    except (OSError, http.client.HTTPException):
        return
    report.health = "SERVING" if status == http.client.OK else "NOT_SERVING"


async def _ask(report: Report) -> None:
    async with open_channel(report.address) as channel:
        try:
            health = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest()
            )
            report.health = "SERVING" if health.status == _SERVING else "NOT_SERVING"
            await _ASKED[report.role](report, channel)
        except aio.AioRpcError:
            return


async def _ask_worker(report: Report, channel: aio.Channel) -> None:
    stub: worker_pb2_grpc.WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
    status = await stub.GetStatus(worker_pb2.GetStatusRequest())
    report.state, report.model, report.engine = status.state, status.model, status.engine
    report.running, report.waiting = status.running, status.waiting
    report.kv_usage_ratio = round(status.kv_usage_ratio, 4)
    report.engine_restart_count = status.engine_restart_count


async def _ask_tokenizer(report: Report, channel: aio.Channel) -> None:
    stub: tokenizer_pb2_grpc.TokenizerServiceAsyncStub = tokenizer_pb2_grpc.TokenizerServiceStub(
        channel
    )
    status = await stub.GetTokenizerStatus(tokenizer_pb2.GetTokenizerStatusRequest())
    report.state, report.model = status.state, status.model
    report.running, report.waiting = status.running + status.open_handles, status.waiting


async def _ask_gateway(report: Report, channel: aio.Channel) -> None:
    """Its load is told on another address than its health: that of operators."""
    if not report.admin_address:
        return
    async with open_channel(report.admin_address) as admin:
        stub: admin_pb2_grpc.AdminServiceAsyncStub = admin_pb2_grpc.AdminServiceStub(admin)
        status = await stub.GetSystemStatus(admin_pb2.GetSystemStatusRequest())
    own = status.processes[0]
    report.state, report.running, report.waiting = own.state, own.running, own.waiting


_ASKED = {"worker": _ask_worker, "tokenizer": _ask_tokenizer, "gateway": _ask_gateway}
