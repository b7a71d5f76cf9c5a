"""Gateways before any number of tokenizers and workers, some of which are processes that can be killed."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hotline.v1 import generation_pb2, inference_pb2
from sim_stack import LIMIT_S, MODEL, SimStack

from services.gateway.app import Gateway
from services.gateway.settings import GatewaySettings
from services.runtime.channel import open_channel
from services.runtime.lifecycle import Process


def at(process: Process) -> str:
    """Where a process of this process listens."""
    return f"127.0.0.1:{process.port}"


@asynccontextmanager
async def gateway_before(
    tokenizers: Mapping[str, str], workers: Mapping[str, str], **fields: object
) -> AsyncGenerator[SimStack, None]:
    """A gateway before those addresses, by name; ready, with all of them serving."""
    settings = GatewaySettings(
        name="gateway",
        tokenizers=tokenizers,
        workers=workers,
        **{"allow_anonymous": True, "drain_notice_s": 0, "drain_grace_s": 0, **fields},
    )
    app = Gateway(settings)
    process = Process(app, settings)
    await process.start()
    async with open_channel(at(process)) as channel:
        stack = SimStack(None, None, process, app, channel)
        pool = app.pool
        try:
            await stack.until(
                lambda: all(c.upstream.serving for c in (*pool.tokenizers, *pool.workers))
            )
            yield stack
        finally:
            await process.stop()


class TokenizerProcess:
    """A real `python -m services.tokenizer` on a unix socket; it can be killed, frozen, and started again."""

    def __init__(self, folder: Path, name: str, roles: Sequence[str]) -> None:
        self.address = f"unix:{folder}/{name}"
        self._environment = {
            "HOTLINE_TOKENIZER_ADDRESS": self.address,
            "HOTLINE_TOKENIZER_NAME": name,
            "HOTLINE_TOKENIZER_MODEL_PATH": str(MODEL),
            "HOTLINE_TOKENIZER_MODEL_NAME": "autoglm-phone-tiny",
            "HOTLINE_TOKENIZER_ROLES": "[" + ",".join(f'"{role}"' for role in roles) + "]",
            "HOTLINE_TOKENIZER_LOG_LEVEL": "ERROR",
            "OMP_NUM_THREADS": "1",
        }

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.tokenizer", env=os.environ | self._environment
        )

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        """kill -9. Idempotent."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@dataclass
class Told:
    """What a client was told of one generation."""

    text: dict[int, str] = field(default_factory=dict)
    reasoning: dict[int, str] = field(default_factory=dict)
    logprobs: dict[int, list[generation_pb2.PositionLogprobs]] = field(default_factory=dict)
    actions: list[str] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)
    end: tuple[object, ...] = ()
    failed: generation_pb2.FailedEvent | None = None


async def told(stack: SimStack, request: inference_pb2.GenerateRequest) -> Told:
    """Play one generation to its end."""
    told = Told()
    async with asyncio.timeout(LIMIT_S):
        async for event in stack.inference.Generate(request, timeout=LIMIT_S):
            index = event.choice_index
            match event.WhichOneof("event"):
                case "text":
                    told.text[index] = told.text.get(index, "") + event.text.text
                    told.logprobs.setdefault(index, []).extend(event.text.logprobs)
                case "reasoning":
                    told.reasoning[index] = told.reasoning.get(index, "") + event.reasoning.text
                case "action":
                    told.actions.append(event.action.name)
                case "started":
                    told.workers.append(event.started.worker)
                case "failed":
                    told.failed = event.failed
                case "finished":
                    end = event.finished
                    reasons = [(choice.reason, choice.stop_match) for choice in end.choices]
                    told.end = (
                        end.reason,
                        end.stop_match,
                        end.usage.completion_tokens,
                        tuple(reasons),
                    )
    return told
