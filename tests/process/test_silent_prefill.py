"""Case 27: clients that ping every 10 s and 30 s through 90 s of silent prefill get no GOAWAY."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from grpc import aio
from hotline.v1 import inference_pb2, inference_pb2_grpc
from up_process import Up, running_up

from services.cli.configuration import find

PREFILL_TOKENS_PER_S = 66
LONG_PROMPT = "你好。" * 3_200  # some 6,400 tokens, which keep the simulator for more than 90 s
SILENT_S = 90.0


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A simulator that reads so slowly that everybody behind a long prompt waits for a minute and a half."""
    file = find("sim")
    document = yaml.safe_load(file.read_text())
    document["model"]["path"] = str((file.parent / document["model"]["path"]).resolve())
    document["worker"]["sim_prefill_tokens_per_s"] = PREFILL_TOKENS_PER_S
    written: Path = tmp_path_factory.mktemp("silent") / "stack.yaml"
    written.write_text(yaml.safe_dump(document))
    with running_up("--config", str(written), "--port", "0") as stack:
        yield stack.until_ready()


def request(text: str) -> inference_pb2.GenerateRequest:
    made = inference_pb2.GenerateRequest()
    made.messages.add(role="ROLE_USER", text=text)
    made.sampling.max_tokens = 4
    return made


async def silence_s(address: str, ping_interval_s: int) -> float:
    """Seconds between acceptance and the next event, with pings all the while; raises where the call fails."""
    options = [
        ("grpc.keepalive_time_ms", ping_interval_s * 1000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    async with aio.insecure_channel(address, options=options) as channel:
        call = inference_pb2_grpc.InferenceServiceStub(channel).Generate(request("Hi"), timeout=170)
        last_s, longest_s, kinds = time.monotonic(), 0.0, []
        async for event in call:
            now_s = time.monotonic()
            last_s, longest_s = now_s, max(longest_s, now_s - last_s)
            kinds.append(event.WhichOneof("event"))
        assert kinds[-1] == "finished", kinds
        return longest_s


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_case_27_pings_through_90_silent_seconds_are_welcome_at_edge_and_gateway(up: Up):
    edge, gateway = up.url.removeprefix("http://"), f"unix:{up.folder}/gateway.sock"
    async with aio.insecure_channel(edge) as channel:
        filler = inference_pb2_grpc.InferenceServiceStub(channel).Generate(
            request(LONG_PROMPT), timeout=170
        )
        accepted = await filler.read()
        assert accepted.accepted.prompt_tokens > PREFILL_TOKENS_PER_S * SILENT_S
        await asyncio.sleep(0.5)  # the engine has begun to read it
        waits = [
            silence_s(address, interval) for address in (edge, gateway) for interval in (10, 30)
        ]
        silences = await asyncio.gather(*waits)
        filler.cancel()
    assert min(silences) > SILENT_S, silences
