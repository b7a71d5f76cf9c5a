"""supervisord's configuration, and the plug-in that reports what happens."""

import configparser
import io
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from supervisor.options import ServerOptions
from supervisor.states import ProcessStates

from services.cli import announcements
from services.cli.processes import ProcessPlan
from services.cli.supervision import clean_environment, configuration, tail


def process(name: str, role: str) -> ProcessPlan:
    return ProcessPlan(name, role, f"unix:/x/{name}.sock", {}, 30.4)


PLANS = [
    process("worker-0", "worker"),
    process("worker-1", "worker"),
    process("tokenizer-0", "tokenizer"),
    process("gateway", "gateway"),
    process("edge", "edge"),
]


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    file = tmp_path / "supervisord.conf"
    file.write_text(configuration(PLANS, tmp_path, 1234))
    parsed = ServerOptions()
    parsed.realize(["--configuration", str(file)])
    return parsed


def test_groups_stop_in_the_order_gateway_edge_tokenizers_workers(options: ServerOptions) -> None:
    groups = sorted(options.process_group_configs, key=lambda group: -group.priority)
    assert [group.name for group in groups] == ["gateways", "edges", "tokenizers", "workers"]
    assert len({group.priority for group in groups}) == 4


def test_processes_of_a_role_stop_together(options: ServerOptions) -> None:
    (workers,) = [group for group in options.process_group_configs if group.name == "workers"]
    assert [config.name for config in workers.process_configs] == ["worker-0", "worker-1"]


def test_every_process_is_restarted_has_time_to_drain_and_a_bounded_log(
    options: ServerOptions, tmp_path: Path
) -> None:
    configs = [c for group in options.process_group_configs for c in group.process_configs]
    assert len(configs) == len(PLANS)
    for config in configs:
        assert config.autorestart
        assert config.stopwaitsecs == 30
        assert config.killasgroup
        assert not config.stopasgroup
        assert config.stdout_logfile == str(tmp_path / f"{config.name}.log")
        assert config.redirect_stderr
        assert 0 < config.stdout_logfile_maxbytes < 100 * 2**20
        assert config.stdout_logfile_backups == 1


def test_its_control_socket_is_private(options: ServerOptions, tmp_path: Path) -> None:
    (server,) = options.server_configs
    assert server["file"] == str(tmp_path / "supervisor.sock")
    assert server["chmod"] == 0o700


def test_a_percent_sign_in_a_path_is_no_expansion(tmp_path: Path) -> None:
    folder = tmp_path / "100%s"
    folder.mkdir()
    parser = configparser.RawConfigParser()
    parser.read_string(configuration(PLANS, folder, 1))
    assert "100%%s" in parser["program:edge"]["command"]


def test_settings_of_ours_stay_out_of_the_environment() -> None:
    variables = {"PATH": "/bin", "HOTLINE_EDGE_ADDRESS": "x", "CUDA_VISIBLE_DEVICES": "0"}
    assert clean_environment(variables.items()) == {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0"}


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x" * 100_000 + b"\n" + b"".join(b"line %d\n" % n for n in range(50)))
    lines = tail(file)
    assert (len(lines), lines[0], lines[-1]) == (20, "line 30", "line 49")
    assert tail(tmp_path / "none") == []


def event(name: str, state: int, exit_code: int | None) -> Any:
    config = SimpleNamespace(name=name)
    return SimpleNamespace(
        process=SimpleNamespace(config=config, state=state, pid=7, exitstatus=exit_code)
    )


def test_a_change_is_one_json_line() -> None:
    output = io.StringIO()
    announcements.Announcements(output)._announce(event("worker-0", ProcessStates.EXITED, 3))
    assert output.getvalue().count("\n") == 1
    assert json.loads(output.getvalue()) == {
        "process": "worker-0",
        "state": "EXITED",
        "exit_code": 3,
    }


def test_killing_all_kills_groups_that_run_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr("os.killpg", lambda group, number: killed.append((group, number)))
    members = [SimpleNamespace(pid=11), SimpleNamespace(pid=0), SimpleNamespace(pid=12)]
    group = SimpleNamespace(get_unstopped_processes=lambda: members)
    announcements._kill_all(SimpleNamespace(process_groups={"workers": group}))
    assert killed == [(11, signal.SIGKILL), (12, signal.SIGKILL)]


def test_a_supervisor_whose_parent_has_ended_starts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(announcements, "die_with_parent", lambda: None)
    with pytest.raises(SystemExit, match="has ended"):
        announcements.create(None, "1")
