"""Looking at the machine through vLLM and torch. Imports them inside its functions only; takes seconds."""

import os
from importlib import metadata
from pathlib import Path
from typing import Any

from services.worker.machine import Device, Machine


def look() -> Machine:
    """What there is to run on, now."""
    import torch
    from vllm.platforms import current_platform

    versions = {"vllm": _vllm_version(), "torch": str(torch.__version__)}
    if current_platform.is_cpu():
        return Machine(
            kind="cpu",
            host_free_bytes=_host_free_bytes(),
            cores=frozenset(os.sched_getaffinity(0)),
            memory_nodes=len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1,
            core_groups=os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "auto"),
            versions=versions,
        )
    versions.update(_gpu_versions())
    if not current_platform.is_cuda():
        return Machine(kind="", versions=versions, host_free_bytes=_host_free_bytes())
    return Machine("cuda", _devices(), _host_free_bytes(), versions=versions)


def _devices() -> tuple[Device, ...]:
    """By the driver's library: torch would take some hundred MB of each device for this process, for good."""
    from vllm.platforms import current_platform
    from vllm.platforms.cuda import with_nvml_context
    from vllm.utils.import_utils import import_pynvml

    nvml: Any = import_pynvml()

    def read() -> tuple[Device, ...]:
        devices = []
        for index in range(current_platform.device_count()):
            physical = current_platform.device_id_to_physical_device_id(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(physical))
            name = current_platform.get_device_name(index)
            devices.append(Device(str(name), int(memory.total), int(memory.free)))
        return tuple(devices)

    found: tuple[Device, ...] = with_nvml_context(read)()
    return found


def _gpu_versions() -> dict[str, str]:
    import torch

    versions = {}
    if torch.version.cuda:
        versions["cuda"] = str(torch.version.cuda)
    driver = Path("/sys/module/nvidia/version")
    if driver.is_file():
        versions["driver"] = driver.read_text("ascii").strip()
    return versions


def _vllm_version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def _host_free_bytes() -> int:
    """MemAvailable, or what the container's limit leaves."""
    from vllm.utils.cpu_resource_utils import get_cgroup_memory_limit, get_cgroup_memory_usage

    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    [available] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    free = int(available) * 1024
    limit, usage = get_cgroup_memory_limit(), get_cgroup_memory_usage()
    return free if limit is None or usage is None else min(free, max(0, limit - usage))
