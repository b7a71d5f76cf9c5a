"""What `up` prints, and who it believes to serve."""

import asyncio
import contextlib
import io
import os
import re
from collections.abc import Sequence
from contextlib import aclosing

import pytest
from grpc import aio

from services.cli.progress import PlainProgress, TerminalProgress, indented, open_progress, readable
from services.cli.readiness import until_chain_answers, watch
from services.runtime.lifecycle import Process, Service
from services.runtime.settings import ServiceSettings


def test_each_change_is_one_line_with_seconds() -> None:
    output = io.StringIO()
    progress = PlainProgress(output)
    progress.change("worker-0", "starting")
    progress.change("worker-0", "starting")
    progress.change("worker-0", "ended", "exit code 3")
    first, second = output.getvalue().splitlines()
    assert re.fullmatch(r"\[ +0\.\d s\] worker-0     starting", first)
    assert second.endswith("worker-0     ended  (exit code 3)")


def test_a_terminal_shows_the_same_words() -> None:
    output = io.StringIO()
    progress = TerminalProgress(output)
    progress.change("worker-0", "loading")
    progress.change("worker-0", "ready")
    progress.line("[not markup]")
    progress.close()
    assert re.search(r"worker-0     ready", output.getvalue())
    assert "[not markup]" in output.getvalue()


def test_a_pipe_gets_plain_lines() -> None:
    assert type(open_progress(io.StringIO())) is PlainProgress


def test_lines_of_a_log_are_set_apart() -> None:
    assert indented(["a", "b"]) == "    a\n    b"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        pytest.param("plain text", "plain text", id="text"),
        pytest.param('{"a": 1}', '{"a": 1}', id="other JSON"),
        pytest.param("[1]", "[1]", id="list"),
        pytest.param(
            '{"event": "state", "level": "info", "state": "WARMING", "name": "w", "timestamp": "t"}',
            "info: state state=WARMING",
            id="event",
        ),
        pytest.param(
            '{"event": "ended", "level": "error", "exception": "Traceback\\n  File\\nOSError: no"}',
            "error: ended: OSError: no",
            id="traceback",
        ),
    ],
)
def test_a_line_of_a_log_is_shown_for_people(line: str, shown: str) -> None:
    assert readable(line) == shown


class Empty(Service):
    """Serves nothing but health."""

    def register(self, server: aio.Server) -> Sequence[str]:
        return ()

    async def warm(self) -> None:
        """Nothing."""

    async def close(self) -> None:
        """Nothing."""


@pytest.fixture
def settings(tmp_path_factory: pytest.TempPathFactory) -> ServiceSettings:
    socket = tmp_path_factory.mktemp("watch") / "it.sock"
    return ServiceSettings(address=f"unix:{socket}", drain_notice_s=0.2, drain_grace_s=0)


async def test_a_process_is_watched_from_before_it_is_there_until_it_is_gone(
    settings: ServiceSettings,
) -> None:
    process = Process(Empty(), settings)
    async with asyncio.timeout(20), aclosing(watch(settings.address)) as states:
        coming = asyncio.ensure_future(anext(states))
        await asyncio.sleep(0.2)
        assert not coming.done()
        await process.start()
        while await coming is not True:
            coming = asyncio.ensure_future(anext(states))
        coming = asyncio.ensure_future(anext(states))
        stopping = asyncio.ensure_future(process.stop())
        assert await coming is False
        assert await anext(states) is None
        await stopping


async def test_grpc_without_rest_is_not_a_chain_that_answers(settings: ServiceSettings) -> None:
    at_a_port = settings.model_copy(update={"address": "127.0.0.1:0"})
    process = Process(Empty(), at_a_port)
    await process.start()
    try:
        async with asyncio.timeout(20):
            with pytest.raises(ConnectionError):
                await until_chain_answers(f"127.0.0.1:{process.port}")
    finally:
        await process.stop()


def test_what_is_going_on_is_told_while_it_starts_and_while_it_stops() -> None:
    progress = PlainProgress(io.StringIO())
    assert progress.activity() == ""
    progress.change("worker-0", "loading")
    progress.change("gateway", "ready")
    assert progress.activity() == "waiting for worker-0"
    progress.stopping()
    assert progress.activity() == "stopping worker-0, gateway"
    progress.change("gateway", "stopping")
    progress.change("gateway", "stopped")
    assert progress.activity() == "stopping worker-0"
    progress.change("worker-0", "ended")
    assert progress.activity() == ""


def test_the_spinner_says_so_from_the_beginning_of_the_stop() -> None:
    progress = TerminalProgress(io.StringIO())
    try:
        progress.change("worker-0", "loading")
        assert progress._spinner.status == "waiting for worker-0"
        progress.stopping()
        assert progress._spinner.status == "stopping worker-0"
    finally:
        progress.close()


def test_an_output_that_nobody_reads_raises_once_so_that_the_stop_goes_on() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    output = open(writing, "w")  # noqa: SIM115
    progress = PlainProgress(output)
    with pytest.raises(BrokenPipeError):
        progress.line("lost")
    progress.line("lost too")
    with contextlib.suppress(BrokenPipeError):
        output.close()
