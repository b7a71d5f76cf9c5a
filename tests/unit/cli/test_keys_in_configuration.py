"""What a stack's configuration says about keys, and what is refused before anything starts."""

from pathlib import Path

import pytest

from services.cli.configuration import Configuration, ConfigurationError, load
from services.cli.keys_check import check_keys
from services.cli.processes import plan
from services.gateway import key_file
from services.gateway.key_document import KeyDocument

ROOT = Path(__file__).parents[3]
MODEL = {"path": str(ROOT / "deploy/models/autoglm-phone-tiny"), "name": "m"}


def configuration(address: str, **sections: object) -> Configuration:
    edge = {"address": address, **sections.pop("edge", {})}  # type: ignore[dict-item]
    return Configuration.model_validate({"model": MODEL, "edge": edge, **sections})


def test_a_gateway_without_keys_and_without_anonymous_callers_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        plan(configuration("127.0.0.1:8000"), tmp_path)
    assert str(refused.value).startswith("gateway: nobody could call: keys_file names")


@pytest.mark.parametrize("address", ["0.0.0.0:8000", "[::]:8000", "192.168.0.1:8000", "host:1"])
def test_anonymous_callers_from_the_network_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not loopback") as refused:
        configuration(address, gateway={"allow_anonymous": True})
    assert "edge.anonymous_on_network: true" in str(refused.value)


def test_unless_that_is_said_a_second_time(tmp_path: Path) -> None:
    meant = configuration(
        "0.0.0.0:8000", gateway={"allow_anonymous": True}, edge={"anonymous_on_network": True}
    )
    assert plan(meant, tmp_path)


@pytest.mark.parametrize(
    ("address", "gateway"),
    [
        pytest.param("0.0.0.0:8000", {"keys_file": "keys.json"}, id="keys"),
        pytest.param("127.0.0.1:8000", {"allow_anonymous": True}, id="loopback"),
        pytest.param("localhost:8000", {"allow_anonymous": True}, id="localhost"),
    ],
)
def test_keys_or_loopback_need_no_second_word(
    address: str, gateway: dict[str, object], tmp_path: Path
) -> None:
    assert plan(configuration(address, gateway=gateway), tmp_path)


def written(folder: Path) -> Path:
    file = folder / "stack.yaml"
    file.write_text(f"model: {{path: {MODEL['path']}, name: m}}\ngateway: {{keys_file: k.json}}\n")
    return file


def test_the_keys_file_is_relative_to_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(written(tmp_path))
    monkeypatch.chdir("/")
    assert loaded.gateway.keys_file == tmp_path / "k.json"
    (gateway,) = [planned for planned in plan(loaded, tmp_path) if planned.role == "gateway"]
    assert gateway.environment["HOTLINE_GATEWAY_KEYS_FILE"] == str(tmp_path / "k.json")


def test_a_keys_file_is_looked_at_before_anything_starts(tmp_path: Path) -> None:
    loaded = load(written(tmp_path))
    with pytest.raises(ConfigurationError, match=r"gateway: keys_file: .*k\.json: No such file"):
        check_keys(loaded)
    key_file.write(tmp_path / "k.json", KeyDocument())
    check_keys(loaded)
    (tmp_path / "k.json").chmod(0o666)
    with pytest.raises(ConfigurationError, match="others may write it"):
        check_keys(loaded)


def test_without_a_keys_file_there_is_nothing_to_look_at() -> None:
    check_keys(load(ROOT / "deploy/config/tiny-cpu.yaml"))


@pytest.mark.parametrize("name", ["tiny-cpu", "sim", "tiny-cpu-tp2"])
def test_the_local_configurations_ask_for_no_key_and_listen_on_loopback(name: str) -> None:
    loaded = load(ROOT / f"deploy/config/{name}.yaml")
    assert loaded.gateway.settings["allow_anonymous"] is True
    assert loaded.edge.address.startswith("127.0.0.1:")


def test_the_configuration_for_production_asks_for_keys() -> None:
    loaded = load(ROOT / "deploy/config/autoglm-phone-9b.yaml")
    assert "allow_anonymous" not in loaded.gateway.settings
    assert loaded.gateway.keys_file is not None
    assert loaded.gateway.keys_file.name == "keys.json"
