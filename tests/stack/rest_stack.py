"""A whole stack on simulated engines behind a real Envoy, for what REST clients see."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import openai
from edge_process import free_port, running_envoy, until_serving
from sim_stack import LIMIT_S, SimStack, sim_stack, started_tokenizer, started_worker

from services.cli.edge import EdgeSettings

MODEL_NAME = "autoglm-phone-tiny"


@dataclass
class RestStack:
    """The stack behind, and the edge's address."""

    behind: SimStack
    address: str

    @property
    def url(self) -> str:
        """For any HTTP client."""
        return f"http://{self.address}"

    def client(self) -> openai.AsyncOpenAI:
        """An unmodified client, which tries nothing twice."""
        return openai.AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key="EMPTY", max_retries=0, timeout=LIMIT_S
        )


@asynccontextmanager
async def rest_stack(
    folder: Path,
    worker: Mapping[str, object] | None = None,
    tokenizer: Mapping[str, object] | None = None,
    **gateway: object,
) -> AsyncGenerator[RestStack, None]:
    """One worker, one tokenizer, one gateway, one edge.

    Args:
        folder: for the edge's files.
        worker: settings of the worker.
        tokenizer: settings of the tokenizer.
        gateway: settings of the gateway.
    """
    engine = await started_worker(**(worker or {}))
    texts = await started_tokenizer(engine.port, **(tokenizer or {}))
    try:
        async with sim_stack(texts, engine, **gateway) as behind:
            settings = EdgeSettings(
                address=f"127.0.0.1:{free_port()}",
                gateways=(f"127.0.0.1:{behind.gateway.port}",),
                runtime_folder=folder,
            )
            async with running_envoy(settings):
                await until_serving(settings.address)
                yield RestStack(behind, settings.address)
    finally:
        await texts.stop()
        await engine.stop()
