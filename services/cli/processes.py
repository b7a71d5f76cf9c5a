"""The processes of a stack: their addresses, settings and order. Nothing is started here."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from services.cli.configuration import (
    Configuration,
    ConfigurationError,
    MetricsSection,
    ServiceSection,
    TokenizerSection,
)
from services.cli.edge import EdgeSettings
from services.cli.ports import PortError, free_ports
from services.cli.settings_error import explain
from services.runtime.settings import ServiceSettings, environment

STOP_ORDER = ("gateway", "edge", "tokenizer", "worker")
"""Roles in the order in which they stop, each only when the one before it has. The gateway first: it says NOT_SERVING,
lets its streams end and refuses new calls. An edge that went first would cut those streams off."""

_MODEL_STACK = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Models are local files; render threads are the tokenizer's own."""
_ENGINE = {
    "OMP_NUM_THREADS": "1",  # more threads than free cores make a CPU engine ten times slower
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
_STOP_MARGIN_S = 10.0
"""What a process may take to stop besides draining: an engine's shutdown."""
SOCKET_PATH_BYTES = 107
"""Longest path of a unix socket (sun_path)."""


@dataclass(frozen=True)
class ProcessPlan:
    """One process that is to run."""

    name: str
    """Unique in the stack, such as `worker-0`."""
    role: str
    """The subcommand of `hotline` that it runs."""
    address: str
    """Where it listens: `unix:/path`, or `host:port` for the edge."""
    environment: dict[str, str]
    """Its settings and the variables it needs."""
    stop_limit_s: float
    """How long it may take to stop before it is killed."""
    metrics_address: str = ""
    """`host:port` of its metrics; empty: none."""
    admin_address: str = ""
    """Where a gateway answers operators: `unix:/path`; empty: it is no gateway."""

    def command(self, folder: Path) -> list[str]:
        """The command that runs it; its environment is in a file of the runtime folder, out of sight of `ps`."""
        file = str(self.environment_file(folder))
        return [sys.executable, "-m", "services.cli", self.role, "--environment", file]

    def environment_file(self, folder: Path) -> Path:
        """Where its environment is written."""
        return folder / f"{self.name}.environment.json"

    def log_file(self, folder: Path) -> Path:
        """Where its output goes."""
        return folder / f"{self.name}.log"


def plan(configuration: Configuration, folder: Path) -> list[ProcessPlan]:
    """Every process of a stack whose sockets and files are in `folder`.

    Raises:
        ConfigurationError: a setting that its service would refuse, or a folder whose path is too long for a socket.
    """
    split = configuration.tokenizer.detokenise is not None
    longest = folder / ("detokenise-00.sock" if split else "tokenizer-00.sock")
    if len(str(longest).encode()) > SOCKET_PATH_BYTES:
        raise ConfigurationError(f"{folder}: too long a path for unix sockets; set TMPDIR")
    model = configuration.model
    served = {"model_path": str(model.path), "model_name": model.name}
    workers = _addresses("worker", configuration.worker.count, folder)
    tokenizers = _tokenizers(configuration.tokenizer, folder)
    gateways = _addresses("gateway", configuration.gateway.count, folder)
    _check_sessions(configuration.gateway, len(gateways))
    if len(gateways) == 1:
        gateways = {"gateway": f"unix:{folder}/gateway.sock"}
    plans = [
        _service("worker", name, address, configuration.worker, served, {**_MODEL_STACK, **_ENGINE})
        for name, address in workers.items()
    ]
    plans += [
        _service(
            *("tokenizer", name, address, configuration.tokenizer),
            {**served, "workers": workers, "roles": roles},
            {**_MODEL_STACK, **_ENGINE},
        )
        for name, (address, roles) in tokenizers.items()
    ]
    behind = {
        "workers": workers,
        "tokenizers": {name: address for name, (address, _) in tokenizers.items()},
        "model_aliases": list(model.aliases),
        "peers": gateways if len(gateways) > 1 else {},
    }
    plans += [
        _gateway(name, address, folder, configuration.gateway, behind)
        for name, address in gateways.items()
    ]
    if configuration.metrics is not None:
        plans = _with_metrics(plans, configuration.metrics)
    plans.append(_edge(configuration.edge.address, [*gateways.values()], folder))
    return plans


def _check_sessions(section: ServiceSection, gateway_count: int) -> None:
    given = section.settings.get("sessions")
    if gateway_count > 1 and isinstance(given, dict) and given.get("store") == "memory":
        raise ConfigurationError(
            f"gateway.sessions.store: memory is for one gateway, and gateway.count is {gateway_count}; "
            "sqlite and redis are for several"
        )


def _tokenizers(section: TokenizerSection, folder: Path) -> dict[str, tuple[str, list[str]]]:
    """Name -> address and roles."""
    if section.render is None or section.detokenise is None:
        counts = {"tokenizer": (section.count, ["render", "detokenise"])}
    else:
        counts = {
            "render": (section.render, ["render"]),
            "detokenise": (section.detokenise, ["detokenise"]),
        }
    return {
        name: (address, roles)
        for prefix, (count, roles) in counts.items()
        for name, address in _addresses(prefix, count, folder).items()
    }


def _with_metrics(plans: list[ProcessPlan], metrics: MetricsSection) -> list[ProcessPlan]:
    """Each process with a metrics port of its own. Raises ConfigurationError for a host that is not this one."""
    first = metrics.first_port
    try:
        ports = range(first, first + len(plans)) if first else free_ports(metrics.host, len(plans))
    except PortError as error:
        raise ConfigurationError(f"metrics.host: {error}") from None
    return [
        replace(
            plan,
            environment={
                **plan.environment,
                f"HOTLINE_{plan.role.upper()}_METRICS_ADDRESS": f"{metrics.host}:{port}",
            },
            metrics_address=f"{metrics.host}:{port}",
        )
        for port, plan in zip(ports, plans, strict=True)
    ]


def _addresses(role: str, count: int, folder: Path) -> dict[str, str]:
    return {f"{role}-{n}": f"unix:{folder}/{role}-{n}.sock" for n in range(count)}


def _gateway(
    name: str, address: str, folder: Path, section: ServiceSection, behind: dict[str, Any]
) -> ProcessPlan:
    # Not on its own address, where clients come.
    admin = f"unix:{folder}/{name.replace('gateway', 'admin')}.sock"
    connections = {**behind, "admin_address": admin, "sessions": _sessions(section, folder)}
    planned = _service("gateway", name, address, section, connections, {})
    return replace(planned, admin_address=admin)


def _sessions(section: ServiceSection, folder: Path) -> Any:
    """As configured; where it is not said, in a file that all gateways of the stack share, and that ends with it."""
    given = section.settings.get("sessions") or {}
    if not isinstance(given, dict) or "store" in given:
        return given
    return {"store": "sqlite", "sqlite_path": str(folder / "sessions.db"), **given}


def _service(
    role: str,
    name: str,
    address: str,
    section: ServiceSection,
    connections: dict[str, Any],
    variables: dict[str, str],
) -> ProcessPlan:
    identity = {"name": name, "address": address, "exit_with_parent": True}
    values = {**section.settings, **connections, **identity}
    try:
        settings = section.settings_class(**values)
    except ValidationError as error:
        raise ConfigurationError(explain(error, role)) from None
    prefix = str(settings.model_config["env_prefix"])
    return ProcessPlan(
        name,
        role,
        address,
        {**variables, **section.environment, **environment(prefix, values)},
        _stop_limit_s(settings),
    )


def _edge(address: str, gateways: list[str], folder: Path) -> ProcessPlan:
    values: dict[str, Any] = {
        "name": "edge",
        "address": address,
        "gateways": gateways,
        "admin": f"unix:{folder}/edge-admin.sock",
        "runtime_folder": str(folder),
        "exit_with_parent": True,
    }
    variables = environment("HOTLINE_EDGE_", values)
    return ProcessPlan("edge", "edge", address, variables, _stop_limit_s(EdgeSettings(**values)))


def _stop_limit_s(settings: ServiceSettings) -> float:
    return settings.drain_notice_s + settings.drain_grace_s + _STOP_MARGIN_S
