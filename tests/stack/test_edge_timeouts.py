"""The edge's own times, shortened: what a client reads when a body, or an answer, does not come."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from edge_process import error_of, free_port, running_envoy, stand_in_gateway, until_serving

from services.cli import edge as edge_command
from services.cli.edge import EdgeSettings
from services.runtime.lifecycle import Process
from services.runtime.settings import ServiceSettings

CHAT = "/v1/chat/completions"


@dataclass
class Hasty:
    """An edge that waits for a second where the real one waits for minutes."""

    address: str
    rest: httpx.AsyncClient


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def hasty(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Hasty, None]:
    folder = tmp_path_factory.mktemp("edge")
    gateway = f"unix:{folder}/gateway.sock"
    process = Process(
        stand_in_gateway(), ServiceSettings(address=gateway, drain_notice_s=0, drain_grace_s=0)
    )
    await process.start()
    settings = EdgeSettings(
        address=f"127.0.0.1:{free_port()}", gateways=(gateway,), runtime_folder=folder
    )
    with pytest.MonkeyPatch.context() as patched:
        # `running_envoy` has the name of the function, not the module.
        patched.setattr("edge_process.write", _written)
        async with (
            running_envoy(settings),
            httpx.AsyncClient(base_url=f"http://{settings.address}", timeout=20) as rest,
        ):
            await until_serving(settings.address)
            yield Hasty(settings.address, rest)
    await process.stop()


def _written(settings: EdgeSettings) -> Path:
    path = edge_command.write(settings)
    text = path.read_text(encoding="utf-8")
    shortened = text.replace('"600s"', '"1s"').replace('"120s"', '"1s"')
    shortened = shortened.replace(" 600s", " 1s").replace(" 120s", " 1s")
    assert shortened != text
    path.write_text(shortened, encoding="utf-8")
    return path


async def test_a_body_that_does_not_come_is_408_in_openais_shape(hasty: Hasty) -> None:
    host, _, port = hasty.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{{".encode())
    head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"envoy" not in head.lower()
    error = json.loads(body)["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert (error["type"], error["code"]) == ("timeout_error", "request_timeout")


async def test_an_answer_that_does_not_begin_is_504_in_openais_shape(hasty: Hasty) -> None:
    answer = await hasty.rest.post(CHAT, json={"do": "hang_silently"})
    error = error_of(answer)
    assert (answer.status_code, error["type"], error["code"]) == (504, "timeout_error", "timeout")


async def test_a_stream_that_falls_silent_is_broken_off_and_never_ends_well(hasty: Hasty) -> None:
    async with hasty.rest.stream("POST", CHAT, json={"do": "hang"}) as answer:
        pieces = answer.aiter_raw()
        received = await anext(pieces)
        with pytest.raises(httpx.RemoteProtocolError):
            received += await anext(pieces)
    assert received.startswith(b"data: ")
    assert b"[DONE]" not in received
