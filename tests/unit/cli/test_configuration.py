"""The YAML of a stack is typed and strict, and an error names the file and the key."""

from pathlib import Path

import pytest

from services.cli.configuration import ConfigurationError, find, load
from services.cli.processes import plan

MODEL = Path(__file__).parents[3] / "deploy" / "models" / "autoglm-phone-tiny"
GOOD = f"model: {{path: {MODEL}, name: m}}\n"


def write(folder: Path, text: str) -> Path:
    file = folder / "stack.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("name", ["tiny-cpu", "sim"])
def test_a_shipped_configuration_is_found_by_its_name_and_every_setting_is_known(
    name: str, tmp_path: Path
) -> None:
    configuration = load(find(name))
    assert configuration.model.name == "autoglm-phone-tiny"
    assert configuration.model.aliases == ("autoglm-phone-9b",)
    assert configuration.edge.address == "127.0.0.1:8000"
    assert len(plan(configuration, tmp_path)) == 4


def test_the_default_bounds_what_the_engine_may_take() -> None:
    settings = load(find("tiny-cpu")).worker.settings
    assert settings["engine"] == "vllm"
    assert {"kv_cache_memory_bytes", "max_model_len", "max_num_seqs", "max_images"} <= set(settings)


def test_the_models_path_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    file = write(tmp_path, "model: {path: models, name: m}\n")
    assert load(file).model.path == tmp_path / "models"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            GOOD + "wrker: {}\n", "wrker: unknown key; known: model, edge, gateway,", id="top level"
        ),
        pytest.param("model: {path: x, nam: m}\n", "model.nam: unknown key", id="section"),
        pytest.param("model: {path: x}\n", "model.name: Field required", id="missing"),
        pytest.param(
            GOOD + "gateway: {max_runing: 3}\n",
            "gateway: unknown keys: max_runing; known: environment, allow_anonymous, channelz, ",
            id="misspelt setting",
        ),
        pytest.param(
            GOOD + "tokenizer: {render: 1}\n",
            "tokenizer: render and detokenise stand together",
            id="half a split",
        ),
        pytest.param(
            GOOD + "tokenizer: {count: 1, render: 1, detokenise: 1}\n",
            "tokenizer: count stands alone",
            id="count and a split",
        ),
        pytest.param(
            GOOD + "worker: {address: 0.0.0.0:1}\n",
            "worker: unknown keys: address",
            id="a setting that `up` sets",
        ),
        pytest.param(
            GOOD + "worker: {count: many}\n",
            "worker.count: Input should be a valid integer",
            id="type",
        ),
        pytest.param(GOOD + "worker: {count: 0}\n", "worker.count: Input should be", id="range"),
        pytest.param(
            GOOD + "edge: {address: nowhere}\n",
            "edge.address: 'nowhere' is not host:port, such as 127.0.0.1:8000",
            id="form",
        ),
        pytest.param("model: [\n", "while parsing", id="not YAML"),
        pytest.param(
            GOOD + "edge: {address: 'a:65536'}\n", "a port of 0 (any free one) to 65535", id="port"
        ),
        pytest.param("hello\n", "must be a mapping of sections (model, edge,", id="text"),
        pytest.param("- model\n", "worker, metrics, start_timeout_s), not a list", id="list"),
        pytest.param("", "start_timeout_s), not empty", id="empty"),
        pytest.param("# nothing\n", "start_timeout_s), not empty", id="comment"),
        pytest.param("model: [1]\n", "model: must be a mapping, not a list", id="section list"),
        pytest.param(
            GOOD + "worker:\n", "worker: must be a mapping, not empty", id="section empty"
        ),
        pytest.param(
            GOOD + "worker: {environment: 3}\n",
            "worker.environment: must be a mapping, not a number",
            id="environment",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


def test_every_problem_has_a_line_of_its_own(tmp_path: Path) -> None:
    file = write(tmp_path, "model: {path: x}\nedge: {address: y}\n")
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("name", ["nothing", "no/such/file.yaml", "../config/sim"])
def test_a_configuration_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match="no configuration"):
        find(name)


def test_what_is_no_mapping_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(write(tmp_path, ""))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["nothing", "no/such/file.yaml"])
def test_a_configuration_that_is_not_there_is_told_the_names_that_are(name: str) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"no such file; .* a name: autoglm-phone-9b, sim, tiny-cpu, tiny-cpu-tp2$",
    ):
        find(name)


def test_a_folder_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"it is a folder; .* a name: autoglm-phone-9b, sim, tiny-cpu, tiny-cpu-tp2$",
    ):
        find(str(tmp_path))


def test_a_name_is_not_taken_for_the_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sim").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find("sim").name == "sim.yaml"


def test_a_name_that_no_file_can_have_is_no_traceback() -> None:
    with pytest.raises(ConfigurationError, match="File name too long"):
        find("x" * 5000)
