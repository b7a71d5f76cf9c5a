"""`hotline chat` against a small InferenceService: what it sends, shows and returns."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from grpc import aio
from hotline.v1 import (
    conversation_pb2,
    error_pb2,
    generation_pb2,
    inference_pb2,
    inference_pb2_grpc,
)

from services.cli import chat
from services.cli.command_line import build_parser
from services.runtime.errors import (
    GenerationNotFoundError,
    ModelNotFoundError,
    ServiceError,
    UnavailableError,
)
from services.runtime.lifecycle import Process, Service
from services.runtime.settings import ServiceSettings

Event = generation_pb2.GenerationEvent
PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
FINISHED = generation_pb2.FinishedEvent(
    reason=generation_pb2.FINISH_REASON_STOP,
    usage=generation_pb2.Usage(prompt_tokens=40, completion_tokens=7, cached_tokens=3),
)


class Scripted(Service, inference_pb2_grpc.InferenceServiceServicer):
    """Answers with the events of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[generation_pb2.GenerationEvent] = []
        self.error: ServiceError | None = None
        self.request = inference_pb2.GenerateRequest()
        self.metadata: dict[str, str | bytes] = {}
        self.left = asyncio.Event()
        self.hang = False
        self.resumed_after = 0

    def register(self, server: aio.Server) -> Sequence[str]:
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(self, server)
        return ("hotline.v1.InferenceService",)

    async def warm(self) -> None:
        """Nothing."""

    async def close(self) -> None:
        """Nothing."""

    async def Generate(
        self, request: inference_pb2.GenerateRequest, context: "aio.ServicerContext[Any, Any]"
    ) -> AsyncIterator[generation_pb2.GenerationEvent]:
        self.request = request
        self.metadata = dict(context.invocation_metadata() or ())
        if self.error:
            raise self.error
        for number, event in enumerate(self.events, 1):
            numbered = Event(sequence=number)
            numbered.MergeFrom(event)
            yield numbered
        if self.hang:
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()

    async def Resume(
        self, request: inference_pb2.ResumeRequest, context: "aio.ServicerContext[Any, Any]"
    ) -> AsyncIterator[generation_pb2.GenerationEvent]:
        self.resumed_after = request.after_sequence
        raise GenerationNotFoundError("no such generation")
        yield Event()


@pytest_asyncio.fixture(loop_scope="session")
async def service() -> AsyncGenerator[Scripted, None]:
    scripted = Scripted()  # type: ignore[abstract]
    settings = ServiceSettings(address="127.0.0.1:0", drain_notice_s=0, drain_grace_s=0)
    process = Process(scripted, settings)
    await process.start()
    yield scripted
    await process.stop()


async def ask(service: Scripted, *arguments: str) -> int:
    assert service.process is not None
    options = build_parser().parse_args(["chat", *arguments, "the question"])
    request, key = chat.make_request(options), chat.credentials(options.key_file)
    return await chat._ask(f"127.0.0.1:{service.process.port}", request, key, 10)


async def test_the_key_of_a_file_goes_with_the_call(service: Scripted, tmp_path: Path) -> None:
    service.events = [Event(finished=FINISHED)]
    file = tmp_path / "key"
    file.write_text("hl-0123-secret\n")
    assert await ask(service, "--key-file", str(file)) == 0
    assert service.metadata["authorization"] == "Bearer hl-0123-secret"
    assert await ask(service) == 0
    assert "authorization" not in service.metadata


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(None, "No such file", id="none"),
        pytest.param("", "must hold one API key", id="empty"),
        pytest.param("one two", "must hold one API key", id="two"),
        pytest.param("schlüssel", "must hold one API key", id="not ASCII"),
        pytest.param("a\x00b", "must hold one API key", id="control character"),
    ],
)
def test_a_file_without_a_key_is_told(tmp_path: Path, text: str | None, told: str) -> None:
    file = tmp_path / "key"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=told):
        chat.credentials(file)


async def test_the_answer_is_on_stdout_and_all_else_on_stderr(
    service: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    action = generation_pb2.ActionEvent(name="Tap")
    action.arguments.update({"element": [500, 750]})
    service.events = [
        Event(accepted=generation_pb2.AcceptedEvent(generation_id="g")),
        Event(reasoning=generation_pb2.ReasoningEvent(text="hm")),
        Event(text=generation_pb2.TextEvent(text="do(")),
        Event(text=generation_pb2.TextEvent(text="...)")),
        Event(action=action),
        Event(finished=FINISHED),
    ]
    assert await ask(service) == 0
    shown = capsys.readouterr()
    assert shown.out.rstrip() == "do(...)"
    thought, action_line, summary = shown.err.splitlines()
    assert thought == "hm"
    assert action_line == "action: Tap element=[500,750]"
    assert summary.startswith("stop: 40 prompt tokens (3 cached), 7 completion tokens")


async def test_the_image_goes_as_raw_bytes_before_the_text(
    service: Scripted, tmp_path: Path
) -> None:
    image = tmp_path / "screen.png"
    image.write_bytes(PNG)
    service.events = [Event(finished=FINISHED)]
    assert await ask(service, "--image", str(image), "--model", "m", "--no-think") == 0
    (message,) = service.request.messages
    assert message.role == conversation_pb2.ROLE_USER
    first, second = message.parts.parts
    assert first.image.data == PNG
    assert second.text == "the question"
    assert service.request.model == "m"
    assert service.request.render.HasField("enable_thinking")
    assert not service.request.render.enable_thinking


async def test_without_options_the_models_own_habits_stand(service: Scripted) -> None:
    service.events = [Event(finished=FINISHED)]
    assert await ask(service) == 0
    assert not service.request.render.HasField("enable_thinking")
    assert not service.request.sampling.HasField("max_tokens")
    assert service.request.model == ""


async def test_an_error_before_the_stream_is_one_line(
    service: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    service.error = ModelNotFoundError("nobody")
    assert await ask(service) == 1
    assert "error: model: 'nobody' is not served here" in capsys.readouterr().err


async def test_a_failed_event_is_an_error_after_the_text_so_far(
    service: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = generation_pb2.FailedEvent(
        reason=error_pb2.ERROR_REASON_ENGINE_DEAD, message="The engine stopped."
    )
    service.events = [
        Event(text=generation_pb2.TextEvent(text="half")),
        Event(failed=failed),
    ]
    assert await ask(service) == 1
    shown = capsys.readouterr()
    assert "half" in shown.out
    assert "error: The engine stopped. [ENGINE_DEAD]" in shown.err


async def test_a_stream_without_an_end_is_resumed_and_an_error_where_it_is_gone(
    service: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    service.events = [Event(text=generation_pb2.TextEvent(text="half"))]
    assert await ask(service) == 1
    assert service.resumed_after == 1
    shown = capsys.readouterr()
    assert shown.out.rstrip() == "half"
    assert "error: no such generation [GENERATION_NOT_FOUND]" in shown.err


def test_a_key_does_not_go_in_the_clear_to_another_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "key"
    file.write_text("hl-0123-secret")
    options = build_parser().parse_args(
        ["chat", "--key-file", str(file), "--address", "203.0.113.1:8000", "hi"]
    )
    assert chat.main(options) == 1
    assert "in the clear" in capsys.readouterr().err


async def test_cancelling_it_cancels_the_call(service: Scripted) -> None:
    service.hang = True
    asking = asyncio.ensure_future(ask(service))
    await asyncio.sleep(0.3)
    asking.cancel()
    await asyncio.wait_for(service.left.wait(), 5)
    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        pytest.param("Tap", {"element": [0, 999]}, "Tap element=[0,999]", id="point"),
        pytest.param(
            "Swipe",
            {"end": [3, 4], "start": [1, 2]},
            "Swipe start=[1,2] end=[3,4]",
            id="two points",
        ),
        pytest.param("Type", {"text": '你好 "x"'}, 'Type text="你好 \\"x\\""', id="text"),
        pytest.param("Wait", {"duration": 1.5}, "Wait duration=1.5", id="fraction"),
        pytest.param("Back", {}, "Back", id="nothing"),
    ],
)
async def test_an_action_is_written_as_the_model_does(
    service: Scripted,
    capsys: pytest.CaptureFixture[str],
    name: str,
    arguments: dict[str, object],
    line: str,
) -> None:
    action = generation_pb2.ActionEvent(name=name)
    action.arguments.update(arguments)
    service.events = [Event(action=action), Event(finished=FINISHED)]
    assert await ask(service) == 0
    assert capsys.readouterr().err.splitlines()[0] == f"action: {line}"


async def test_a_service_that_says_that_it_is_unavailable_is_running(
    service: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    service.error = UnavailableError("all workers are away", retry_delay_s=1)
    assert await ask(service) == 1
    error = capsys.readouterr().err
    assert "all workers are away" in error
    assert "is `hotline up` running?" not in error


@pytest.mark.parametrize("errors_too", [False, True], ids=["stdout", "stdout and stderr"])
async def test_it_ends_quietly_where_nobody_reads_on(service: Scripted, errors_too: bool) -> None:
    assert service.process is not None
    text = Event(text=generation_pb2.TextEvent(text="words " * 100))
    thought = Event(reasoning=generation_pb2.ReasoningEvent(text="hm"))
    service.events = [*[text, thought] * 50, Event(finished=FINISHED)]
    reading, writing = os.pipe()
    os.close(reading)
    address = f"127.0.0.1:{service.process.port}"
    command = [sys.executable, "-m", "services.cli", "chat", "--address", address, "hi"]
    chatting = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=writing, stderr=writing if errors_too else PIPE
    )
    os.close(writing)
    _, error = await asyncio.wait_for(chatting.communicate(), 30)
    assert chatting.returncode == 141
    assert not error
