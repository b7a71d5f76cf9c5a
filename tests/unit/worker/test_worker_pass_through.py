"""What `engine_args` lets through, and how it says no."""

import json
from typing import Any

import pytest
from worker_calls import MODEL_PATH

from services.runtime.settings import explain
from services.runtime.start import StartRefusedError
from services.worker.engine_settings import ENGINE_FLAGS
from services.worker.pass_through import refuse_forbidden, unknown_problems
from services.worker.settings import WorkerSettings
from services.worker.vllm_arguments import engine_arguments, engine_configuration


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"watermark": 0.1}, id="number"),
        pytest.param({"compilation_config": {"backend": "inductor"}}, id="vllm's own backend"),
        pytest.param({"distributed_executor_backend": "ray"}, id="ray"),
        pytest.param({"kv_transfer_config": {"kv_connector": "NixlConnector"}}, id="connector"),
    ],
)
def test_harmless_arguments_pass(arguments: dict[str, Any]):
    assert refuse_forbidden(arguments) == arguments


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param({"trust_remote_code": True}, "run code", id="remote code"),
        pytest.param({"worker_cls": "a.B"}, "run code", id="worker class"),
        pytest.param({"allowed_local_media_path": "/"}, "read files", id="local media"),
        pytest.param({"kv_events_config": {}}, "without authentication", id="kv events"),
        pytest.param({"limit_mm_per_prompt": {}}, "max_images", id="has a setting"),
        pytest.param({"max_num_partial_prefills": 2}, "no more", id="gone"),
        pytest.param({"_api_process_count": 2}, "vLLM's own", id="private"),
        pytest.param(
            {"distributed_executor_backend": "a.B"}, "distributed_executor_backend", id="class path"
        ),
        pytest.param(
            {"compilation_config": {"inductor_passes": {"a": "b.c"}}},
            "compilation_config.inductor_passes",
            id="passes",
        ),
        pytest.param(
            {"kv_transfer_config": {"kv_connector_module_path": "a.b"}},
            "kv_connector_module_path",
            id="module",
        ),
    ],
)
def test_a_forbidden_argument_is_refused_with_its_reason(arguments: dict[str, Any], told: str):
    with pytest.raises(ValueError, match="is refused") as caught:
        refuse_forbidden(arguments)
    assert told in str(caught.value)


@pytest.mark.parametrize("config", [{"model": "a.B"}, {"method": "custom_class", "model": "a.B"}])
def test_speculation_by_a_class_that_a_configuration_names_is_refused(config: dict[str, Any]):
    with pytest.raises(ValueError, match="custom_class"):
        WorkerSettings(model_path=MODEL_PATH, speculative_config=config)


def test_every_forbidden_argument_is_told_at_once():
    with pytest.raises(ValueError, match=r"model is refused.*runner is refused"):
        refuse_forbidden({"runner": "generate", "model": "x"})


def test_settings_with_a_forbidden_argument_are_refused_by_the_variables_name(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("HOTLINE_WORKER_MODEL_PATH", str(MODEL_PATH))
    monkeypatch.setenv("HOTLINE_WORKER_ENGINE_ARGS", json.dumps({"trust_remote_code": True}))
    with pytest.raises(ValueError, match="trust_remote_code") as caught:
        WorkerSettings.read()
    assert "HOTLINE_WORKER_ENGINE_ARGS" in explain(WorkerSettings, caught.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        pytest.param("watermarc", "did you mean watermark?", id="misspelt"),
        pytest.param("gpu_memory_utilisation", "did you mean gpu_memory_utilization?", id="ours"),
        pytest.param("zzz", "no such argument", id="nothing near"),
        pytest.param("max_num_seqs", "has a setting", id="named"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(name: str, told: str):
    [line] = unknown_problems([name], ENGINE_FLAGS, ["watermark", *ENGINE_FLAGS])
    assert line.startswith(f"engine_args.{name}: ")
    assert told in line


def test_known_names_are_no_problem():
    assert unknown_problems(["watermark"], ENGINE_FLAGS, ["watermark"]) == []


def arguments(has_images: bool = True, **settings: Any) -> dict[str, Any]:
    return engine_arguments(WorkerSettings(model_path=MODEL_PATH, **settings), has_images)


def test_named_flags_and_further_ones_reach_vllm_and_none_leaves_it_its_choice():
    found = arguments(
        tensor_parallel_size=2, kv_cache_memory_bytes=None, engine_args={"watermark": 0.1}
    )
    assert (found["tensor_parallel_size"], found["watermark"]) == (2, 0.1)
    assert "kv_cache_memory_bytes" not in found
    assert found["limit_mm_per_prompt"] == {"image": 4, "video": 0}


def test_a_model_that_sees_no_images_is_told_nothing_of_them():
    found = arguments(has_images=False)
    assert not {name for name in found if "mm_processor_kwargs" in name or "limit_mm" in name}
    assert "mm_encoder_tp_mode" not in found


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        pytest.param({"engine_args": {"watermarc": 1}}, ["watermarc", "watermark?"], id="unknown"),
        pytest.param(
            {"engine_args": {"watermark": 2.0}},
            ["engine_args.watermark: ", "less than 1", "2.0"],
            id="out of range",
        ),
        pytest.param(
            {"engine_args": {"watermark": "much"}}, ["engine_args.watermark: ", "much"], id="type"
        ),
        pytest.param({"kv_cache_dtype": "int3"}, ["kv_cache_dtype: ", "int3"], id="choice"),
        pytest.param({"quantization": "magic"}, ["quantization", "magic"], id="quantisation"),
        pytest.param(
            {"tensor_parallel_size": 2}, ["attention heads (3)", "tensor parallel size"], id="heads"
        ),
        pytest.param({"max_model_len": 99_999}, ["99999", "8192"], id="beyond the model"),
        pytest.param(
            {"max_num_batched_tokens": 4}, ["max_num_batched_tokens", "max_num_seqs"], id="both"
        ),
        pytest.param(
            {"speculative_config": {"method": "magic"}},
            ["SpeculativeConfig, method: ", "magic"],
            id="speculation",
        ),
    ],
)
def test_what_vllm_refuses_is_one_line_with_flag_and_value(
    settings: dict[str, Any], told: list[str]
):
    with pytest.raises(StartRefusedError) as caught:
        engine_configuration(WorkerSettings(model_path=MODEL_PATH, **settings), has_images=True)
    [line] = caught.value.lines
    assert "\n" not in line
    for text in told:
        assert text in line
