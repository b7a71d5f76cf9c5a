"""The processes behind the gateway: who serves, what they serve, and who gets the next generation."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.gateway.settings import GatewaySettings
from services.gateway.tokenizer_client import TokenizerClient
from services.gateway.upstream import Upstream
from services.gateway.worker_client import WorkerClient
from services.runtime.errors import ModelNotFoundError, UnavailableError

RETRY_DELAY_S = 1.0


@dataclass(frozen=True)
class ServedModel:
    """A model that a worker has been seen to serve."""

    name: str
    aliases: tuple[str, ...]
    context_tokens: int
    max_images: int
    engine: str
    create_time_s: int
    """Unix time."""
    ready: bool


class Pool:
    """Watches tokenizers and workers, and chooses among those that serve."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._aliases = tuple(settings.model_aliases)
        self.tokenizers = [
            TokenizerClient(Upstream(name, address))
            for name, address in settings.tokenizers.items()
        ]
        self.workers = [
            WorkerClient(Upstream(name, address)) for name, address in settings.workers.items()
        ]
        self._create_time_s = int(time.time())
        self._tasks: list[asyncio.Task[None]] = []

    def start(
        self, on_change: Callable[[], Awaitable[None]], own: Callable[[asyncio.Task[None]], None]
    ) -> None:
        """Begin to watch.

        Args:
            on_change: awaited whenever somebody begins or ceases to serve.
            own: told of every task, so that a failure of one is heard.
        """
        for worker in self.workers:
            self._watch(worker.upstream, worker.refresh, on_change)
        for tokenizer in self.tokenizers:
            self._watch(tokenizer.upstream, _nothing, on_change)
        for task in self._tasks:
            own(task)

    def _watch(
        self,
        upstream: Upstream,
        on_serving: Callable[[], Awaitable[None]],
        on_change: Callable[[], Awaitable[None]],
    ) -> None:
        watch = upstream.watch(on_serving, on_change)
        self._tasks.append(asyncio.create_task(watch, name=f"watch {upstream.name}"))

    @property
    def ready(self) -> bool:
        """Whether a generation could run now."""
        return any(t.upstream.serving for t in self.tokenizers) and any(
            w.upstream.serving for w in self.workers
        )

    def tokenizer(self) -> TokenizerClient:
        """The least loaded tokenizer that serves."""
        serving = [tokenizer for tokenizer in self.tokenizers if tokenizer.upstream.serving]
        if not serving:
            raise UnavailableError("No tokenizer is serving.", retry_delay_s=RETRY_DELAY_S)
        return min(serving, key=lambda tokenizer: tokenizer.load)

    def worker(self, model: str) -> WorkerClient:
        """The least loaded worker that serves this model (a canonical name)."""
        serving = [w for w in self.workers if w.upstream.serving and w.status.model == model]
        if not serving:
            raise UnavailableError(
                f"No worker is serving {model}: it is starting, or restarting.",
                retry_delay_s=RETRY_DELAY_S,
            )
        return min(serving, key=lambda worker: worker.running_count)

    def models(self) -> list[ServedModel]:
        """The models seen so far, the default one first; only it has the aliases."""
        names = dict.fromkeys(w.status.model for w in self.workers if w.status.model)
        found: list[ServedModel] = []
        for name in names:
            workers = [w for w in self.workers if w.status.model == name]
            status = workers[0].status
            found.append(
                ServedModel(
                    name=name,
                    aliases=() if found else self._aliases,
                    context_tokens=status.context_tokens,
                    max_images=status.images.max_count,
                    engine=status.engine,
                    create_time_s=self._create_time_s,
                    ready=any(w.upstream.serving for w in workers),
                )
            )
        return found

    def model(self, name: str) -> ServedModel:
        """A model by name or alias; empty: the default. Raises ModelNotFoundError."""
        models = self.models()
        if not models:
            raise UnavailableError("No worker has begun to serve yet.", retry_delay_s=RETRY_DELAY_S)
        if not name:
            return models[0]
        for model in models:
            if name == model.name or name in model.aliases:
                return model
        raise ModelNotFoundError(name)

    async def close(self) -> None:
        """End the watches and the links, close the channels. Idempotent."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for tokenizer in self.tokenizers:
            await tokenizer.link.close()
        for upstream in (
            *(t.upstream for t in self.tokenizers),
            *(w.upstream for w in self.workers),
        ):
            await upstream.close()


async def _nothing() -> None:
    """A tokenizer has nothing to tell when it begins to serve."""
