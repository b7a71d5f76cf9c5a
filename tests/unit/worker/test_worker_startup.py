"""The checks before a start, on machines that are made up."""

import json
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from worker_calls import MODEL_PATH

from services.worker import vllm_machine
from services.worker.machine import GIB, Device, Machine, UnfitError, check_devices, check_versions
from services.worker.memory import Need, check_memory, need
from services.worker.model_files import IncompleteModelError, check_model_files
from services.worker.settings import WorkerSettings
from services.worker.startup_checks import check_start

CARD = Device("NVIDIA GeForce RTX 4090", 24 * GIB, 23 * GIB)
VERSIONS = {"vllm": "0.32.0", "torch": "2.13.0", "cuda": "12.8", "driver": "570.86.15"}
GPUS = Machine("cuda", (CARD, CARD), 64 * GIB, versions=VERSIONS)
CPU = Machine("cpu", (), 8 * GIB, frozenset({0, 1}), versions={"vllm": "0.32.0"})
NINE_B = {
    "dtype": "bfloat16",
    "text_config": {
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "hidden_size": 4096,
        "num_hidden_layers": 40,
    },
}
NINE_B_BYTES = 20_600_000_000


def settings(**values: Any) -> WorkerSettings:
    return WorkerSettings(model_path=MODEL_PATH, **values)


def on_gpus(**values: Any) -> WorkerSettings:
    defaults = {"tensor_parallel_size": 2, "max_model_len": 25480, "kv_cache_memory_bytes": None}
    return settings(**{**defaults, **values})


def problem(check: Callable[[], str]) -> str:
    with pytest.raises((UnfitError, IncompleteModelError)) as caught:
        check()
    return str(caught.value)


def test_two_cards_are_named():
    assert check_devices(GPUS, 2) == "2 x NVIDIA GeForce RTX 4090"


@pytest.mark.parametrize(
    ("machine", "wanted", "told"),
    [
        pytest.param(replace(GPUS, devices=(CARD,)), 2, "is 2, but 1 device is visible", id="one"),
        pytest.param(replace(GPUS, devices=()), 2, "is 2, but 0 devices are visible", id="none"),
        pytest.param(replace(GPUS, kind=""), 1, "finds no device", id="no driver"),
        pytest.param(CPU, 2, "such as 0|1", id="cores not named"),
        pytest.param(replace(CPU, core_groups="0"), 2, "1 group(s)", id="too few groups"),
        pytest.param(replace(CPU, core_groups="0|7"), 2, "core 7", id="no such core"),
        pytest.param(replace(CPU, core_groups="0|x"), 2, "like 0-3|4-7", id="no numbers"),
    ],
)
def test_missing_devices_are_told_with_both_numbers(machine: Machine, wanted: int, told: str):
    assert told in problem(lambda: check_devices(machine, wanted))


@pytest.mark.parametrize(
    ("machine", "wanted"),
    [
        pytest.param(CPU, 1, id="one"),
        pytest.param(replace(CPU, core_groups="0|1"), 2, id="two cores"),
        pytest.param(replace(CPU, core_groups="nobind"), 2, id="not bound"),
        pytest.param(replace(CPU, memory_nodes=2), 2, id="two nodes"),
    ],
)
def test_cores_that_suffice_are_told(machine: Machine, wanted: int):
    assert check_devices(machine, wanted).startswith("CPU, ")


def test_versions_that_fit_are_told():
    assert check_versions(GPUS) == "vllm 0.32.0, torch 2.13.0, cuda 12.8, driver 570.86.15"


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        pytest.param({"vllm": "0.31.9"}, "needs 0.32 to 0.33", id="old"),
        pytest.param({"vllm": "0.34.0"}, "needs 0.32 to 0.33", id="new"),
        pytest.param({"vllm": "1.0"}, "needs 0.32 to 0.33", id="next"),
        pytest.param({"vllm": ""}, "unknown version", id="unknown"),
        pytest.param({"driver": "510.47.03"}, "CUDA 12.8 needs 525.60 or newer", id="driver"),
    ],
)
def test_versions_that_do_not_fit_are_told_with_what_is_needed(versions: dict[str, str], told: str):
    machine = replace(GPUS, versions={**VERSIONS, **versions})
    assert told in problem(lambda: check_versions(machine))


def test_the_9b_model_needs_what_its_configuration_says():
    assert need(on_gpus(), NINE_B, NINE_B_BYTES) == Need(NINE_B_BYTES, 40 * 1024)
    assert need(on_gpus(dtype="float32"), NINE_B, 100).weights == 200
    assert need(on_gpus(kv_cache_dtype="fp8"), NINE_B, 100).kv_token == 20 * 1024
    assert need(on_gpus(quantization="fp8", dtype="float32"), NINE_B, 100).weights == 100


def test_layers_of_another_kind_have_no_estimate():
    text = {**NINE_B["text_config"], "sliding_window": 4096}  # type: ignore[dict-item]
    assert need(on_gpus(), {"text_config": text}, 1).kv_token is None


def test_the_9b_model_fits_two_cards():
    wanted = need(on_gpus(), NINE_B, NINE_B_BYTES)
    assert "weights 9.6 GiB" in check_memory(GPUS, on_gpus(gpu_memory_utilization=0.9), wanted)


@pytest.mark.parametrize(
    ("machine", "values", "told"),
    [
        pytest.param(GPUS, {"gpu_memory_utilization": 0.99}, "device 0 has 23.0 GiB", id="share"),
        pytest.param(GPUS, {"gpu_memory_utilization": 0.3}, "share of the weights", id="too small"),
        pytest.param(
            GPUS, {"kv_cache_memory_bytes": 20 * GIB}, "kv_cache_memory_bytes 20.0 GiB", id="cache"
        ),
        pytest.param(
            GPUS, {"kv_cache_memory_bytes": 100 * 1024**2}, "max_model_len 25480", id="one context"
        ),
        pytest.param(GPUS, {"kv_offloading_size": 65.0}, "the host has 64.0 GiB", id="host"),
        pytest.param(
            replace(GPUS, devices=(CARD, replace(CARD, free_bytes=2 * GIB))),
            {},
            "device 1 has 2.0 GiB free",
            id="another tenant",
        ),
        pytest.param(CPU, {}, "must be set on a CPU", id="no bound on a CPU"),
        pytest.param(
            CPU, {"kv_cache_memory_bytes": 2 * GIB}, "8.0 GiB are free, about", id="small host"
        ),
    ],
)
def test_memory_that_does_not_suffice_is_told_with_what_there_is(
    machine: Machine, values: dict[str, Any], told: str
):
    chosen = on_gpus(**values)
    wanted = need(chosen, NINE_B, NINE_B_BYTES)
    assert told in problem(lambda: check_memory(machine, chosen, wanted))


def write_weights(path: Path, size: int) -> None:
    entry = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": entry}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of two weights' files."""
    for name in ("config.json", "tokenizer.json", "preprocessor_config.json"):
        (tmp_path / name).write_text('{"vision_config": {}}', "utf-8")
    (tmp_path / "chat_template.jinja").write_text("x", "utf-8")
    files = ["a.safetensors", "b.safetensors"]
    index = {"weight_map": {f"w{name}": name for name in files}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    for name in files:
        write_weights(tmp_path / name, 1000)
    return tmp_path


def test_a_whole_model_is_measured(folder: Path):
    sizes = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert check_model_files(folder, "auto") == sizes
    assert check_model_files(folder, "dummy") == 0


def _cut(folder: Path) -> None:
    file = folder / "b.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def _remove(*names: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return act


def _write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text, "utf-8") and None


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        pytest.param(_remove("b.safetensors"), "b.safetensors is named in", id="missing"),
        pytest.param(_cut, "b.safetensors is cut short", id="cut"),
        pytest.param(_write("a.safetensors", ""), "a.safetensors is empty", id="empty"),
        pytest.param(
            _write("a.safetensors", "version https://git-lfs.github.com/spec/v1\n"),
            "is no safetensors file",
            id="lfs pointer",
        ),
        pytest.param(
            _remove("a.safetensors", "b.safetensors", "model.safetensors.index.json"),
            "no weights",
            id="none",
        ),
        pytest.param(_write("model.safetensors.index.json", "{"), "is no JSON", id="index"),
        pytest.param(_remove("tokenizer.json"), "no tokenizer.json", id="tokenizer"),
        pytest.param(_remove("chat_template.jinja"), "no chat_template.jinja", id="template"),
        pytest.param(_remove("preprocessor_config.json"), "no preprocessor", id="processor"),
    ],
)
def test_an_incomplete_model_is_told_with_the_files_name(
    folder: Path, harm: Callable[[Path], None], told: str
):
    harm(folder)
    assert told in problem(lambda: str(check_model_files(folder, "auto")))


def test_all_checks_have_a_line_also_where_one_fails():
    lines = [check.line for check in check_start(settings(tensor_parallel_size=2), CPU)]
    assert lines[0] == "check versions: ok: vllm 0.32.0"
    assert lines[1].startswith("check devices: failed: 2 devices on a CPU")
    assert lines[2].startswith("check model files: ok: ")
    assert lines[3].startswith("check memory: ok: about ")
    assert len(lines) == 4


def test_gpus_are_read_through_the_drivers_library_in_the_order_that_is_visible(
    monkeypatch: pytest.MonkeyPatch,
):
    memory = {3: SimpleNamespace(total=24, free=20), 1: SimpleNamespace(total=48, free=40)}
    visible = [3, 1]  # CUDA_VISIBLE_DEVICES=3,1
    platform = SimpleNamespace(
        device_count=lambda: len(visible),
        device_id_to_physical_device_id=visible.__getitem__,
        get_device_name=lambda index: f"card {visible[index]}",
    )
    nvml = SimpleNamespace(
        nvmlDeviceGetHandleByIndex=lambda physical: physical,
        nvmlDeviceGetMemoryInfo=memory.__getitem__,
    )
    modules = {
        "vllm": {},
        "vllm.platforms": {"current_platform": platform},
        "vllm.platforms.cuda": {"with_nvml_context": lambda read: read},
        "vllm.utils": {},
        "vllm.utils.import_utils": {"import_pynvml": lambda: nvml},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    assert vllm_machine._devices() == (Device("card 3", 24, 20), Device("card 1", 48, 40))
