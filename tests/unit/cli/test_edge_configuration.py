"""The edge's one configuration: what the local run changes, and that it agrees with the error table."""

import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from services.cli.deployment import deployment_file
from services.cli.edge import EdgeSettings, command, envoy_address, render, write
from services.runtime.error_table import TABLE

SOURCE = deployment_file("envoy", "envoy.yaml")


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def source() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return document


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="defaults"),
        pytest.param({"gateways": ("unix:/x/a.sock", "unix:/x/b.sock")}, id="sockets"),
        pytest.param({"gateways": ("gateway-a:50051", "gateway-b:50051")}, id="names"),
        pytest.param({"address": "[::1]:8000", "admin": "unix:/x/admin.sock"}, id="IPv6, admin"),
    ],
)
def test_envoy_accepts_what_is_rendered(tmp_path: Path, settings: dict[str, Any]) -> None:
    edge = EdgeSettings(runtime_folder=tmp_path, **settings)
    arguments = [*command(edge, write(edge)), "--mode", "validate"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_only_the_values_named_at_the_files_head_are_changed(tmp_path: Path) -> None:
    settings = EdgeSettings(
        address="127.0.0.1:1",
        gateways=("unix:/g.sock",),
        admin="unix:/a.sock",
        access_log="/log",
        runtime_folder=tmp_path,
    )
    before, after = dict(leaves(source())), dict(leaves(render(settings)))
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    allowed = (
        r"\.admin\.address\.",
        r"\.static_resources\.listeners\[0\]\.address\.",
        r".*\.access_log\[0\]\.typed_config\.path$",
        r".*\.default_source_code\.filename$",
        r".*\.proto_descriptor$",
        r"\.static_resources\.clusters\[[01]\]\.type$",
        r"\.static_resources\.clusters\[[01]\]\.load_assignment\.endpoints\[0\]\.lb_endpoints\[",
    )
    assert changed
    assert [path for path in changed if not any(re.match(p, path) for p in allowed)] == []


def test_without_an_admin_socket_there_is_no_admin(tmp_path: Path) -> None:
    assert "admin" not in render(EdgeSettings(runtime_folder=tmp_path))


@pytest.mark.parametrize(
    ("gateways", "kind"),
    [
        (("unix:/a.sock",), "STATIC"),
        (("127.0.0.1:1", "[::1]:2"), "STATIC"),
        (("gateway:50051",), "STRICT_DNS"),
    ],
)
def test_names_are_resolved_and_addresses_are_not(
    tmp_path: Path, gateways: tuple[str, ...], kind: str
) -> None:
    rendered = render(EdgeSettings(gateways=gateways, runtime_folder=tmp_path))
    for cluster in rendered["static_resources"]["clusters"]:
        assert cluster["type"] == kind
        assert len(cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]) == len(gateways)


@pytest.mark.parametrize("address", ["", "host", "host:", "host:x", "host:70000", "8000"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="neither"):
        envoy_address(address)


def test_the_local_edge_is_on_loopback_unless_told_otherwise() -> None:
    assert EdgeSettings().address == "127.0.0.1:8000"


def _rows(status: int) -> set[tuple[str, str]]:
    return {(r.openai_type, r.openai_code) for r in TABLE.values() if r.http_status == status}


def test_the_lua_filter_uses_the_words_of_the_error_table() -> None:
    lua = SOURCE.with_name("edge.lua").read_text(encoding="utf-8")
    found = re.findall(r'\["(\d+)"\] = \{ "(\w+)", "(\w+)" \}', lua)
    assert len(found) >= 10
    for status, kind, code in found:
        assert (kind, code) in _rows(int(status)), status


def test_envoys_own_answers_use_the_words_of_the_error_table_where_it_has_them() -> None:
    manager = source()["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]
    seen = set()
    for mapper in manager["typed_config"]["local_reply_config"]["mappers"]:
        error = mapper["body_format_override"].get("json_format", {}).get("error")
        if error is None:
            continue
        value = mapper["filter"]["status_code_filter"]["comparison"]
        status = value["value"]["default_value"]
        seen.add(status)
        if value["op"] == "EQ" and _rows(status):
            assert (error["type"], error["code"]) in _rows(status), status
        assert sorted(error) == ["code", "message", "param", "type"]
    assert {400, 404, 405, 408, 413, 429, 431, 500, 504} <= seen


def test_the_edge_and_the_gateway_have_the_same_body_limit() -> None:
    from services.gateway.settings import GatewaySettings

    text = SOURCE.read_text(encoding="utf-8")
    limit = GatewaySettings.model_fields["max_body_bytes"].default
    assert f"max_request_body_size: {limit}\n" in text
    assert f"limit of {limit} bytes" in text


def test_without_a_runtime_folder_it_is_a_fresh_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    first, second = write(EdgeSettings()), write(EdgeSettings())
    assert first.parent != second.parent
    assert first.parent.parent == temporary
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    assert [*here.iterdir()] == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"address": "8000"}, "'8000' is not host:port"),
        ({"address": "h:70000"}, "a port of 0"),
        ({"gateways": ("gateway",)}, "'gateway' is neither host:port"),
    ],
)
def test_a_wrong_address_is_refused_in_words(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        EdgeSettings(**settings)
