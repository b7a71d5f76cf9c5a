"""What `hotline status` says of processes that serve, do not serve, do not answer, or are gone."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
from grpc import aio
from hotline.v1 import worker_pb2, worker_pb2_grpc

from services.cli import stack_file, status
from services.cli.inspection import Report, inspect
from services.cli.stack_file import Listed, RunningStack
from services.gateway import key_file
from services.gateway.app import Gateway
from services.gateway.key_document import KeyDocument
from services.gateway.settings import GatewaySettings
from services.runtime.lifecycle import Process, Service
from services.runtime.settings import ServiceSettings

KEYS = [
    *(
        "name",
        "role",
        "address",
        "metrics_address",
        "admin_address",
        "pid",
        "uptime_s",
        "restart_count",
        "rss_bytes",
        "health",
        "state",
        "model",
    ),
    *("engine", "running", "waiting", "kv_usage_ratio", "engine_restart_count"),
]


class StandInWorker(Service, worker_pb2_grpc.WorkerServiceServicer):
    """Tells its status and nothing else."""

    def register(self, server: aio.Server) -> Sequence[str]:
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self, server)
        return ("hotline.v1.WorkerService",)

    async def warm(self) -> None: ...

    async def close(self) -> None: ...

    async def GetStatus(
        self, request: worker_pb2.GetStatusRequest, context: object
    ) -> worker_pb2.GetStatusResponse:
        return worker_pb2.GetStatusResponse(
            state="SERVING", model="m", engine="sim", running=3, waiting=1, kv_usage_ratio=0.25
        )


@pytest.fixture
async def worker() -> AsyncGenerator[Process, None]:
    settings = ServiceSettings(drain_notice_s=0, drain_grace_s=0)
    process = Process(StandInWorker(), settings)  # type: ignore[abstract]
    await process.start()
    yield process
    await process.stop()


def stack(folder: Path, **addresses: str) -> RunningStack:
    listed = [
        Listed(name, "edge" if name == "edge" else "worker", address, "")
        for name, address in addresses.items()
    ]
    return RunningStack(folder, 1, tuple(listed))


async def only(running: RunningStack, timeout_s: float = 2.0) -> Report:
    (report,) = await inspect(running, timeout_s)
    return report


async def test_a_worker_that_serves_tells_its_load(worker: Process, tmp_path: Path) -> None:
    report = await only(stack(tmp_path, w=f"127.0.0.1:{worker.port}"))
    assert (report.health, report.state) == ("SERVING", "SERVING")
    assert (report.model, report.engine) == ("m", "sim")
    assert (report.running, report.waiting, report.kv_usage_ratio) == (3, 1, 0.25)


async def test_a_worker_that_is_not_ready_is_told_with_its_load(
    worker: Process, tmp_path: Path
) -> None:
    await worker.set_ready(False)
    report = await only(stack(tmp_path, w=f"127.0.0.1:{worker.port}"))
    assert (report.health, report.running) == ("NOT_SERVING", 3)


@pytest.mark.parametrize("told_where", [True, False])
async def test_a_gateway_tells_its_state_where_operators_come_and_its_health_where_clients_do(
    told_where: bool, tmp_path: Path
) -> None:
    settings = GatewaySettings(
        tokenizers={"t": f"unix:{tmp_path}/t"},
        workers={"w": f"unix:{tmp_path}/w"},
        keys_file=tmp_path / "keys.json",
        admin_address="127.0.0.1:0",
        drain_notice_s=0,
        drain_grace_s=0,
    )
    key_file.write(tmp_path / "keys.json", KeyDocument())
    app = Gateway(settings)
    process = Process(app, settings)
    await process.start()
    admin = f"127.0.0.1:{app.admin.port}" if told_where else ""
    listed = Listed("gateway", "gateway", f"127.0.0.1:{process.port}", "", admin)
    report = await only(RunningStack(tmp_path, 1, (listed,)))
    assert (report.health, report.admin_address) == ("NOT_SERVING", admin)
    known = ("SERVING", 0, 0) if told_where else (None, None, None)
    assert (report.state, report.running, report.waiting) == known
    await process.stop()


async def test_nobody_there_is_unreachable_and_has_no_figures(tmp_path: Path) -> None:
    report = await only(stack(tmp_path, w=f"unix:{tmp_path}/nobody.sock"), 0.5)
    assert (report.health, report.state, report.running) == ("UNREACHABLE", None, None)


@pytest.mark.parametrize("name", ["w", "edge"])
async def test_who_takes_the_call_and_never_answers_is_unreachable_in_time(
    name: str, tmp_path: Path
) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(3):
        reports = await inspect(stack(tmp_path, **{name: address}, v=f"unix:{tmp_path}/no"), 0.5)
    assert [report.health for report in reports] == ["UNREACHABLE", "UNREACHABLE"]
    silent.close()


async def test_without_a_supervisor_pids_are_unknown(worker: Process, tmp_path: Path) -> None:
    report = await only(stack(tmp_path, w=f"127.0.0.1:{worker.port}"))
    assert (report.pid, report.uptime_s) == (None, None)


def test_the_keys_of_the_json_are_those_of_the_page() -> None:
    assert [*Report("n", "worker", "a", "").as_dict()] == KEYS
    page = (Path(__file__).parents[3] / "docs/status.md").read_text(encoding="utf-8")
    assert [key for key in KEYS if f"`{key}`" not in page] == []


@pytest.mark.parametrize(
    ("health", "code"),
    [
        pytest.param(["SERVING", "SERVING"], status.ALL_SERVE, id="all serve"),
        pytest.param(["SERVING", "NOT_SERVING"], status.NOT_ALL_SERVE, id="one does not"),
        pytest.param(["UNREACHABLE"], status.NOT_ALL_SERVE, id="one is gone"),
    ],
)
@pytest.mark.parametrize("as_json", [True, False], ids=["json", "table"])
def test_the_exit_code_says_whether_all_serve(
    health: list[str],
    code: int,
    as_json: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def told(running: RunningStack, timeout_s: float) -> list[Report]:
        return [Report(f"w{n}", "worker", "a", "", health=one) for n, one in enumerate(health)]

    monkeypatch.setattr(stack_file, "find", lambda: [stack(tmp_path)])
    monkeypatch.setattr(status, "inspect", told)
    assert run_main(as_json) == code
    output = capsys.readouterr().out
    for one in health:
        assert one in output
    if as_json:
        (found,) = json.loads(output)["stacks"]
        assert (found["folder"], found["pid"]) == (str(tmp_path), 1)
        assert [process["health"] for process in found["processes"]] == health


def run_main(as_json: bool) -> int:
    """`main` runs a loop of its own, which it cannot on the thread of the tests' loop."""
    return status.main(None, as_json, 1.0)


def test_without_a_stack_it_says_so_and_ends_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(stack_file, "find", list)
    assert status.main(None, True, 1.0) == status.NO_STACK
    assert status.main(tmp_path, False, 1.0) == status.NO_STACK
    captured = capsys.readouterr()
    assert captured.out == ""
    assert str(tmp_path) in captured.err
