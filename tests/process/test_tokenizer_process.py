"""The tokenizer as a process of its own: start, health, signals, wrong settings."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hotline.v1 import conversation_pb2, tokenizer_pb2, tokenizer_pb2_grpc

MODEL_PATH = Path(__file__).parents[2] / "deploy" / "models" / "autoglm-phone-tiny"
START_S = 60

Run = Callable[..., "subprocess.Popen[str]"]


@contextmanager
def running(address: str, **variables: str) -> Iterator["subprocess.Popen[str]"]:
    """`python -m services.tokenizer`, ended whatever happens."""
    settings = {
        "HOTLINE_TOKENIZER_ADDRESS": address,
        "HOTLINE_TOKENIZER_MODEL_PATH": str(MODEL_PATH),
        "HOTLINE_TOKENIZER_MODEL_NAME": "tiny",
        "HOTLINE_TOKENIZER_DRAIN_NOTICE_S": "0.1",
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "services.tokenizer"],
        env=os.environ | settings | variables,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def log_until(process: "subprocess.Popen[str]", words: str) -> str:
    """The log up to the first line with `words` in it."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            break
    return "".join(lines)


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/tokenizer"


@pytest.fixture
def serving(address: str) -> Generator["subprocess.Popen[str]", None, None]:
    with running(address) as process:
        assert '"SERVING"' in log_until(process, '"SERVING"')
        yield process


def test_it_serves_health_status_and_renders_and_sigterm_ends_it(
    serving: "subprocess.Popen[str]", address: str
) -> None:
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "hotline.v1.TokenizerService"):
            checked = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
            assert checked.status == health_pb2.HealthCheckResponse.SERVING
        stub = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
        message = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="hi")
        rendered = stub.Render(tokenizer_pb2.RenderRequest(messages=[message]), timeout=5)
        assert rendered.token_ids
        status = stub.GetTokenizerStatus(tokenizer_pb2.GetTokenizerStatusRequest(), timeout=5)
        assert status.model == "tiny"
    serving.send_signal(signal.SIGTERM)
    _, log = serving.communicate(timeout=10)
    assert serving.returncode == 0
    assert "Traceback" not in log


def test_sigterm_does_not_wait_for_a_stream_on_which_nothing_is_open(
    serving: "subprocess.Popen[str]", address: str
) -> None:
    with grpc.insecure_channel(address) as channel:
        open_ended = threading.Event()

        def requests() -> Iterator[tokenizer_pb2.DetokeniseRequest]:
            yield tokenizer_pb2.DetokeniseRequest(
                inputs=[
                    tokenizer_pb2.DetokeniseInput(handle=1, open=tokenizer_pb2.DetokeniseOpen()),
                    tokenizer_pb2.DetokeniseInput(
                        handle=1, tokens=tokenizer_pb2.DetokeniseTokens(last=True)
                    ),
                ]
            )
            open_ended.wait(START_S)

        responses = tokenizer_pb2_grpc.TokenizerServiceStub(channel).Detokenise(requests())
        assert next(responses).outputs[0].finished
        serving.send_signal(signal.SIGTERM)
        assert list(responses) == []
        open_ended.set()
        serving.communicate(timeout=10)
    assert serving.returncode == 0


def test_sigterm_during_warm_up_ends_it_cleanly(address: str) -> None:
    with running(address) as process:
        log_until(process, '"WARMING"')
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=START_S)
    assert process.returncode == 0
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        pytest.param({"HOTLINE_TOKENIZER_MODEL_PATH": "/nowhere"}, "is no folder", id="no-model"),
        pytest.param(
            {"HOTLINE_TOKENIZER_MAX_IMAGE": "1"}, "HOTLINE_TOKENIZER_MAX_IMAGE", id="misspelt"
        ),
        pytest.param(
            {"HOTLINE_TOKENIZER_ROLES": '["rendre"]'}, "HOTLINE_TOKENIZER_ROLES", id="unknown-role"
        ),
        pytest.param({"HOTLINE_TOKENIZER_ROLES": "[]"}, "HOTLINE_TOKENIZER_ROLES", id="no-role"),
        pytest.param(
            {"HOTLINE_TOKENIZER_RENDER_THREADS": "0"},
            "HOTLINE_TOKENIZER_RENDER_THREADS",
            id="too-small",
        ),
    ],
)
def test_wrong_settings_end_it_at_once_and_are_named(
    address: str, variables: dict[str, str], words: str
) -> None:
    with running(address, **variables) as process:
        _, log = process.communicate(timeout=START_S)
    assert process.returncode == 2
    assert words in log
    assert "Traceback" not in log


def test_a_folder_that_is_no_model_ends_the_start(address: str, tmp_path: Path) -> None:
    with running(address, HOTLINE_TOKENIZER_MODEL_PATH=str(tmp_path)) as process:
        _, errors = process.communicate(timeout=START_S)
    assert process.returncode == 2
    assert "has no config.json" in errors


def test_an_address_that_is_taken_ends_the_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with running(f"127.0.0.1:{taken.getsockname()[1]}") as process:
            process.communicate(timeout=START_S)
    assert process.returncode == 1


def test_a_process_that_only_detokenises_loads_no_model_stack(address: str) -> None:
    with running(address, HOTLINE_TOKENIZER_ROLES='["detokenise"]') as process:
        log_until(process, '"SERVING"')
        loaded = Path(f"/proc/{process.pid}/maps").read_text()
        with grpc.insecure_channel(address) as channel:
            stub = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
            status = stub.GetTokenizerStatus(tokenizer_pb2.GetTokenizerStatusRequest(), timeout=5)
            with pytest.raises(grpc.RpcError) as refused:
                stub.Render(tokenizer_pb2.RenderRequest(), timeout=5)
    assert list(status.roles) == [tokenizer_pb2.TOKENIZER_ROLE_DETOKENISE]
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "/tokenizers/" in loaded
    assert "libtorch" not in loaded


def test_importing_the_service_loads_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, services.tokenizer.app;"
        "sys.exit(bool({'torch', 'transformers', 'vllm'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, timeout=START_S).returncode == 0
    )
