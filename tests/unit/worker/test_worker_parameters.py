"""docs/parameters.md, the settings class and the installed vLLM name the same flags."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from worker_calls import MODEL_PATH

from services.runtime.settings import ServiceSettings
from services.worker.engine_settings import ENGINE_FLAGS, OWN_NAMES, EngineSettings
from services.worker.pass_through import FORBIDDEN
from services.worker.settings import WorkerSettings
from services.worker.vllm_arguments import engine_arguments

DOCUMENT = (Path(__file__).parents[3] / "docs/parameters.md").read_text("utf-8")


def _documented() -> dict[str, list[str]]:
    """Flag -> the cells of its row."""
    table = DOCUMENT.split("## Flags")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): [cell.strip() for cell in row] for row in rows}


def test_the_table_has_every_flag_and_no_other():
    assert list(_documented()) == [*ENGINE_FLAGS[: ENGINE_FLAGS.index("mm_processor_kwargs")],
                                   "max_images", *ENGINE_FLAGS[ENGINE_FLAGS.index("mm_processor_kwargs"):],
                                   "engine_args"]  # fmt: skip


@pytest.mark.parametrize("name", [*ENGINE_FLAGS, *sorted(OWN_NAMES)])
def test_the_table_tells_the_default(name: str):
    told = _documented()[name][1].strip("`").split(" ")[0]
    default = EngineSettings.model_fields[name].get_default(call_default_factory=True)
    shown = {"none": None, "true": True, "false": False, "{}": {}}.get(told, told)
    assert shown == default or shown in (str(default), f"{default:g}")


@pytest.mark.parametrize("name", ENGINE_FLAGS)
def test_the_document_names_every_flag_in_its_vllm_column(name: str):
    assert _documented()[name][-1] == "same"


def test_the_deployment_guides_names_are_all_mapped():
    table = DOCUMENT.split("## Names from deployment guides")[1]
    mapped = {name for line in table.splitlines() if line.startswith("| `")
              for name in re.findall(r"`([a-z_]+)", line.split("|")[1])}  # fmt: skip
    guide = {
        *("dtype", "max_batch_size", "max_wait_time_ms", "prefill_ratio_threshold"),
        *("kv_cache_reuse", "cpu_offload_layers", "schedule_policy", "max_batch_len"),
        "enable_chunked_prefill",
    }
    assert guide <= mapped


@pytest.fixture(scope="module")
def vllm_names() -> set[str]:
    from vllm.engine.arg_utils import AsyncEngineArgs

    return {field.name for field in fields(AsyncEngineArgs)}


@pytest.mark.slow
def test_the_installed_vllm_has_every_named_flag(vllm_names: set[str]):
    assert set(ENGINE_FLAGS) <= vllm_names


@pytest.mark.slow
def test_the_installed_vllm_has_every_forbidden_name_or_it_says_that_it_is_gone(
    vllm_names: set[str],
):
    gone = {name for name, reason in FORBIDDEN.items() if "no more" in reason}
    assert set(FORBIDDEN) - vllm_names == gone


@pytest.mark.slow
def test_what_hotline_passes_itself_exists_and_cannot_be_replaced(vllm_names: set[str]):
    settings = WorkerSettings(model_path=MODEL_PATH)
    passed = set(engine_arguments(settings, has_images=True))
    assert passed <= vllm_names
    assert passed - set(ENGINE_FLAGS) <= set(FORBIDDEN)


def test_no_flag_hides_a_setting_of_every_service():
    assert not set(ENGINE_FLAGS) & set(ServiceSettings.model_fields)
