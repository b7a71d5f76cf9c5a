"""The processes of a stack get the settings that their services read."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.cli.configuration import Configuration, ConfigurationError
from services.cli.edge import EdgeSettings
from services.cli.processes import STOP_ORDER, ProcessPlan, plan
from services.gateway.settings import GatewaySettings
from services.tokenizer.settings import TokenizerSettings
from services.worker.settings import WorkerSettings

MODEL = Path(__file__).parents[3] / "deploy" / "models" / "autoglm-phone-tiny"


def configuration(**sections: Any) -> Configuration:
    model = {"path": str(MODEL), "name": "tiny", "aliases": ["other"]}
    gateway = {"allow_anonymous": True, **sections.pop("gateway", {})}
    return Configuration.model_validate({"model": model, "gateway": gateway, **sections})


def plans(folder: Path, **sections: Any) -> dict[str, ProcessPlan]:
    return {found.name: found for found in plan(configuration(**sections), folder)}


def test_each_process_has_a_name_a_role_and_a_private_socket(tmp_path: Path) -> None:
    found = plans(tmp_path, worker={"count": 2}, tokenizer={"count": 2})
    sockets = ["worker-0", "worker-1", "tokenizer-0", "tokenizer-1", "gateway"]
    assert [*found] == [*sockets, "edge"]
    assert [found[name].address for name in sockets] == [
        f"unix:{tmp_path}/{name}.sock" for name in sockets
    ]
    assert {process.role for process in found.values()} == set(STOP_ORDER)


def test_services_read_back_what_they_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = plans(
        tmp_path,
        worker={"engine": "sim", "max_num_seqs": 3, "kv_cache_memory_bytes": None},
        tokenizer={"no_think_prefix": '<think></think>\n"quoted"', "content_format": "string"},
        gateway={"max_running": 5, "drain_grace_s": 2.5},
        edge={"address": "127.0.0.1:1234"},
    )
    for process in found.values():
        for name, value in process.environment.items():
            monkeypatch.setenv(name, value)
    worker = WorkerSettings.read()
    assert (worker.name, worker.engine, worker.max_num_seqs) == ("worker-0", "sim", 3)
    assert (worker.model_path, worker.model_name) == (MODEL, "tiny")
    tokenizer = TokenizerSettings.read()
    assert tokenizer.no_think_prefix == '<think></think>\n"quoted"'
    assert tokenizer.workers == {"worker-0": worker.address}
    gateway = GatewaySettings.read()
    assert gateway.workers == {"worker-0": worker.address}
    assert gateway.tokenizers == {"tokenizer-0": tokenizer.address}
    assert (gateway.model_aliases, gateway.max_running) == (["other"], 5)
    edge = EdgeSettings.read()
    assert (edge.address, edge.gateways) == ("127.0.0.1:1234", (gateway.address,))
    for settings in (worker, tokenizer, gateway, edge):
        assert settings.exit_with_parent


def test_the_model_stack_is_offline_and_single_threaded(tmp_path: Path) -> None:
    found = plans(tmp_path)
    for name in ("worker-0", "tokenizer-0"):
        assert found[name].environment["HF_HUB_OFFLINE"] == "1"
        assert found[name].environment["OMP_NUM_THREADS"] == "1"
    for name in ("gateway", "edge"):
        assert all(key.startswith("HOTLINE_") for key in found[name].environment)


def test_a_sections_environment_wins(tmp_path: Path) -> None:
    found = plans(tmp_path, worker={"environment": {"OMP_NUM_THREADS": "2", "X": "y"}})
    assert found["worker-0"].environment["OMP_NUM_THREADS"] == "2"
    assert found["worker-0"].environment["X"] == "y"


def test_a_process_may_take_its_drain_to_stop_and_no_more_than_that_and_a_margin(
    tmp_path: Path,
) -> None:
    found = plans(tmp_path, gateway={"drain_notice_s": 1, "drain_grace_s": 30})
    assert 31 < found["gateway"].stop_limit_s <= 45


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        pytest.param(
            {"worker": {"max_num_seqs": 0}},
            "worker: max_num_seqs: Input should be greater than or equal to 1 (not 0)",
            id="range",
        ),
        pytest.param({"worker": {"engine": "tgi"}}, "or 'sim' (not 'tgi')", id="choice"),
        pytest.param(
            {"model": {"path": str(MODEL.parent), "name": "m"}},
            f"model_path: {MODEL.parent} has no config.json, so it is no model's folder",
            id="a folder, but no model",
        ),
        pytest.param(
            {"gateway": {"queue_timeout_s": "soon"}}, "gateway: queue_timeout_s: Input", id="type"
        ),
        pytest.param(
            {"model": {"path": "/no/such/folder", "name": "m"}},
            "model_path: /no/such/folder is no folder",
            id="no model",
        ),
    ],
)
def test_a_setting_that_its_service_would_refuse_is_refused_before_anything_starts(
    tmp_path: Path, sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plans(tmp_path, **sections)
    assert message in str(caught.value)


def test_a_folder_too_long_for_a_socket_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="TMPDIR"):
        plans(tmp_path / ("x" * 100))


def test_settings_are_not_on_the_command_line(tmp_path: Path) -> None:
    for process in plans(tmp_path).values():
        assert str(MODEL) not in json.dumps(process.command(tmp_path))


def test_several_gateways_stand_behind_one_edge(tmp_path: Path) -> None:
    found = plans(tmp_path, gateway={"count": 2})
    sockets = [f"unix:{tmp_path}/gateway-{n}.sock" for n in range(2)]
    assert [found[f"gateway-{n}"].address for n in range(2)] == sockets
    assert json.loads(found["edge"].environment["HOTLINE_EDGE_GATEWAYS"]) == sockets


def test_each_gateway_answers_operators_on_a_socket_of_its_own(tmp_path: Path) -> None:
    found = plans(tmp_path, gateway={"count": 2})
    for number in range(2):
        planned = found[f"gateway-{number}"]
        assert planned.admin_address == f"unix:{tmp_path}/admin-{number}.sock"
        told = planned.environment["HOTLINE_GATEWAY_ADMIN_ADDRESS"]
        assert told == planned.admin_address
    assert {found[name].admin_address for name in ("worker-0", "tokenizer-0", "edge")} == {""}
    assert plans(tmp_path)["gateway"].admin_address == f"unix:{tmp_path}/admin.sock"


def test_tokenizers_can_be_split_by_role(tmp_path: Path) -> None:
    found = plans(tmp_path, tokenizer={"render": 1, "detokenise": 2})
    roles = {
        name: json.loads(process.environment["HOTLINE_TOKENIZER_ROLES"])
        for name, process in found.items()
        if process.role == "tokenizer"
    }
    assert roles == {
        "render-0": ["render"],
        "detokenise-0": ["detokenise"],
        "detokenise-1": ["detokenise"],
    }
    told = json.loads(found["gateway"].environment["HOTLINE_GATEWAY_TOKENIZERS"])
    assert [*told] == [*roles]


def test_metrics_ports_follow_the_first(tmp_path: Path) -> None:
    found = plans(tmp_path, metrics={"first_port": 9464})
    assert [process.metrics_address for process in found.values()] == [
        *(f"127.0.0.1:{port}" for port in (9464, 9465, 9466)),
        "",  # the edge has its own
    ]
    variable = found["gateway"].environment["HOTLINE_GATEWAY_METRICS_ADDRESS"]
    assert variable == found["gateway"].metrics_address


def test_metrics_ports_may_be_any_free_ones(tmp_path: Path) -> None:
    found = plans(tmp_path, metrics={"first_port": 0})
    ports = [int(p.metrics_address.rpartition(":")[2]) for p in found.values() if p.role != "edge"]
    assert len({*ports}) == 3
    assert all(port >= 1024 for port in ports)


def test_a_host_of_metrics_that_is_not_this_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\.host: cannot listen on 192\.0\.2\.1"):
        plans(tmp_path, metrics={"host": "192.0.2.1", "first_port": 0})


def test_without_a_metrics_section_no_process_has_a_metrics_port(tmp_path: Path) -> None:
    for process in plans(tmp_path).values():
        assert not any(name.endswith("METRICS_ADDRESS") for name in process.environment)
