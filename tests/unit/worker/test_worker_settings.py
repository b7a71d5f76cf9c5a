"""The worker's settings from the environment."""

import pytest
from worker_calls import MODEL_PATH

from services.runtime.settings import explain
from services.worker.settings import WorkerSettings
from services.worker.vllm_process import prepare_environment


@pytest.fixture(autouse=True)
def _model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOTLINE_WORKER_MODEL_PATH", str(MODEL_PATH))


def test_the_defaults_bound_memory_and_concurrency():
    settings = WorkerSettings.read()
    assert settings.kv_cache_memory_bytes == 64 << 20
    assert (settings.max_model_len, settings.max_num_seqs, settings.max_images) == (8192, 16, 4)


def test_dictionaries_are_read_as_json(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOTLINE_WORKER_MM_PROCESSOR_KWARGS", '{"max_pixels": 5000000}')
    assert WorkerSettings.read().mm_processor_kwargs == {"max_pixels": 5_000_000}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("ENGINE", "gpt", id="engine"),
        pytest.param("MODEL_PATH", "nowhere", id="folder"),
        pytest.param("MAX_NUM_SEQS", "0", id="zero"),
        pytest.param("MAX_MODEL_LEN", "many", id="no number"),
        pytest.param("MAX_NUM_SEQ", "4", id="misspelt"),
        pytest.param("KV_CACHE_MEMORY_BYTES", "5", id="5 bytes"),
    ],
)
def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    monkeypatch.setenv(f"HOTLINE_WORKER_{name}", value)
    with pytest.raises(ValueError, match=r".") as caught:
        WorkerSettings.read()
    assert f"HOTLINE_WORKER_{name}" in explain(WorkerSettings, caught.value)


def test_a_value_that_is_no_json_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOTLINE_WORKER_MM_PROCESSOR_KWARGS", "{")
    with pytest.raises(ValueError, match="mm_processor_kwargs") as caught:
        WorkerSettings.read()
    assert "mm_processor_kwargs" in explain(WorkerSettings, caught.value)


def test_the_environment_of_vllm_keeps_what_the_operator_set(monkeypatch: pytest.MonkeyPatch):
    import os

    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ["OMP_NUM_THREADS"] = "7"
    os.environ["HF_HUB_OFFLINE"] = "0"
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "40"
    prepare_environment(WorkerSettings.read())
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert "VLLM_CPU_KVCACHE_SPACE" not in os.environ
