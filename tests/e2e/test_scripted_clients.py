"""One scripted conversation by every client that people use, each unmodified: all must read the same answers."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CLIENTS = Path(__file__).with_name("clients")
NODE = CLIENTS / "node"
RUN_LIMIT_S = 90
INSTALL_LIMIT_S = 60
pytestmark = pytest.mark.slow


def node() -> list[str]:
    """How the script of openai-node is started; installs what its lock file says, once."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program is None or npm is None:
        pytest.skip("node and npm are not on this machine")
    version = subprocess.check_output([program, "--version"], text=True, timeout=10)
    if int(version.removeprefix("v").partition(".")[0]) < 20:
        pytest.skip(f"openai-node wants node 20 or newer; this is {version.strip()}")
    if not (NODE / "node_modules" / "openai").is_dir():
        command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            subprocess.run(
                command, cwd=NODE, check=True, capture_output=True, timeout=INSTALL_LIMIT_S
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"`npm ci` in tests/e2e/clients/node does not work here: {error}")
    return [program, str(NODE / "conversation.mjs")]


def python(name: str) -> list[str]:
    return [sys.executable, str(CLIENTS / name)]


@pytest.fixture(
    scope="module",
    params=["openai_sync.py", "openai_async.py", "langchain_chat.py", "litellm_sdk.py", "node"],
)
def told(request, stack, tmp_path_factory):
    """What a client's conversation told; it was idle while the client still lived."""
    command = node() if request.param == "node" else python(request.param)
    log = tmp_path_factory.mktemp("client") / "stderr"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(log.parent), "PYTHONUTF8": "1"}
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [*command, stack.base_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()  # pytest's own limit of time holds for it
        idle = stack.idle_within(2)
        process.stdin.close()
        code = process.wait(RUN_LIMIT_S)
    assert code == 0, log.read_text(encoding="utf-8", errors="replace")[-3000:]
    results = json.loads(line)
    assert idle, "an aborted stream frees its slot, though its client lives on"
    return results


FIRST: dict[str, object] = {}
"""What the first client read."""


def test_every_client_reads_the_same_texts_and_reasons(told):
    texts = {name: told[name] for name in ("second", "schema", "n", "stop", "length", "models")} | {
        "whole": (told["whole"]["text"], told["whole"]["reason"])
    }
    texts["models"] = sorted(texts["models"])
    if not FIRST:
        FIRST.update(texts)
    assert texts == FIRST


def test_a_stream_is_the_same_text_as_the_whole_answer_with_the_same_usage(told):
    whole, streamed = told["whole"], told["streamed"]
    assert whole["text"] == streamed["text"] != ""
    assert whole["reason"] == streamed["reason"] == "stop"
    for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert whole["usage"][count] == streamed["usage"][count] > 0
    assert "</answer" not in whole["text"]


def test_the_conversation_goes_on(told):
    assert told["second"]["text"]
    assert told["second"]["reason"] == "stop"


def test_an_answer_keeps_to_its_schema(told):
    assert list(json.loads(told["schema"]["text"])) == ["tap"]
    assert isinstance(json.loads(told["schema"]["text"])["tap"], bool)


def test_log_probabilities_spell_the_answer(told):
    spelt = b"".join(bytes(one["bytes"]) for one in told["logprobs"])
    assert told["whole"]["text"] == spelt.decode()
    assert all(one["logprob"] <= 0 and one["top"] == 2 for one in told["logprobs"])


def test_two_choices_of_a_greedy_model_are_one_text(told):
    assert [choice["text"] for choice in told["n"]] == [told["whole"]["text"]] * 2


def test_a_stop_string_is_not_shown(told):
    text, stop = told["whole"]["text"], told["whole"]["text"][4:6]
    assert told["stop"] == {"text": text[: text.index(stop)], "reason": "stop"}


def test_a_short_answer_says_length(told):
    assert told["length"]["reason"] == "length"
    assert told["whole"]["text"].startswith(told["length"]["text"])


@pytest.mark.parametrize(
    ("what", "name", "status", "code", "param"),
    [
        ("tools", "BadRequestError", 400, "invalid_value", "tools"),
        ("range", "BadRequestError", 400, "invalid_value", "top_p"),
        ("missing", "NotFoundError", 404, "model_not_found", "model"),
    ],
)
def test_a_refusal_raises_the_clients_class_with_code_and_param(
    told, what, name, status, code, param
):
    error = told[what]
    assert (error["class"], error["status"]) == (name, status)
    assert error["code"] in (code, None)  # LiteLLM hands neither on
    assert error["param"] in (param, None)


def test_an_aborted_stream_had_begun(told):
    assert told["aborted"]
