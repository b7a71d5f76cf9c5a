"""What a worker finds on its machine, and whether the engine's settings fit it. Pure: a probe fills Machine in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

GIB = 1024**3
OLDEST_VLLM, NEWEST_VLLM = (0, 32), (0, 33)
"""The releases that this version was made for; the same as in pyproject.toml."""
LEAST_DRIVER = {11: (450, 80), 12: (525, 60), 13: (580, 65)}
"""CUDA's major version -> the oldest driver that runs it (CUDA Compatibility, table of minor version compatibility)."""


@dataclass(frozen=True)
class Device:
    """One GPU."""

    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Machine:
    """What there is to run on."""

    kind: Literal["cpu", "cuda", ""]
    """What the installed vLLM runs on; empty: it finds nothing."""
    devices: tuple[Device, ...] = ()
    """Visible GPUs; empty on a CPU, where a device is a group of cores."""
    host_free_bytes: int = 0
    """Memory that a process may still take, within its container's limit."""
    cores: frozenset[int] = frozenset()
    """Ids of the cores that this process may use."""
    memory_nodes: int = 1
    """NUMA nodes."""
    core_groups: str = "auto"
    """VLLM_CPU_OMP_THREADS_BIND: `auto`, `nobind`, or the cores of each device, such as `0-3|4-7`."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """`vllm`, `torch` and, on GPUs, `cuda` and `driver`; absent where unknown."""


class UnfitError(Exception):
    """The machine does not fit; the message says what was asked for and what there is."""


def check_devices(machine: Machine, wanted: int) -> str:
    """What the devices are. Raises UnfitError where `wanted`, tensor times pipeline parallel, are not there."""
    if not machine.kind:
        raise UnfitError("the installed vLLM finds no device that it can run on")
    if machine.kind == "cpu":
        return _check_cores(machine, wanted)
    count = len(machine.devices)
    if count < wanted:
        raise UnfitError(
            f"tensor_parallel_size x pipeline_parallel_size is {wanted}, but {count} "
            f"{'device is' if count == 1 else 'devices are'} visible (CUDA_VISIBLE_DEVICES chooses them)"
        )
    names = {device.name for device in machine.devices[:wanted]}
    return f"{wanted} x {', '.join(sorted(names))}"


def _check_cores(machine: Machine, wanted: int) -> str:
    available = f"{len(machine.cores)} cores"
    groups = machine.core_groups
    variable = "VLLM_CPU_OMP_THREADS_BIND (worker.environment)"
    if groups == "nobind" or (groups == "auto" and wanted == 1):
        return f"CPU, {available}"
    if groups == "auto":
        if machine.memory_nodes < wanted:
            raise UnfitError(
                f"{wanted} devices on a CPU with {machine.memory_nodes} memory node(s): {variable} must name "
                f"the cores of each, such as {'|'.join(map(str, range(wanted)))}"
            )
        return f"CPU, {available} on {machine.memory_nodes} memory nodes"
    parts = groups.split("|")
    if len(parts) != wanted:
        raise UnfitError(
            f"{variable} is {groups!r}, {len(parts)} group(s) of cores, but "
            f"tensor_parallel_size x pipeline_parallel_size is {wanted}"
        )
    try:
        named = {core for part in parts for core in _core_ids(part)}
    except ValueError:
        raise UnfitError(f"{variable} is {groups!r}; it must be like 0-3|4-7") from None
    missing = sorted(named - machine.cores)
    if missing:
        raise UnfitError(
            f"{variable} names core {missing[0]}, but this process may use {sorted(machine.cores)}"
        )
    return f"CPU, {wanted} group(s) of cores: {groups}"


def _core_ids(text: str) -> list[int]:
    ids: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        ids.extend(range(int(first), int(last or first) + 1))
    return ids


def check_versions(machine: Machine) -> str:
    """The versions. Raises UnfitError for a vLLM that this version was not made for, or a driver too old for CUDA."""
    versions = machine.versions
    vllm = versions.get("vllm", "")
    number = _number(vllm)
    if number < OLDEST_VLLM or number[:1] > NEWEST_VLLM[:1] or number > NEWEST_VLLM:
        supported = f"{OLDEST_VLLM[0]}.{OLDEST_VLLM[1]} to {NEWEST_VLLM[0]}.{NEWEST_VLLM[1]}"
        raise UnfitError(f"vllm is {vllm or 'of unknown version'}; this version needs {supported}")
    cuda, driver = versions.get("cuda"), versions.get("driver")
    if cuda and driver:
        least = LEAST_DRIVER.get(_number(cuda)[0])
        if least is not None and _number(driver) < least:
            raise UnfitError(
                f"the driver is {driver}; CUDA {cuda} needs {'.'.join(map(str, least))} or newer"
            )
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _number(version: str) -> tuple[int, ...]:
    """Major and minor; (0,) where there are none."""
    parts = version.split("+")[0].split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit()) or (0,)
