"""The processes behind the gateway: who serves, what they serve, and who gets the next generation."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random

from services.gateway.caller import Caller
from services.gateway.changes import Changes
from services.gateway.detokenisers import RETRY_DELAY_S, ModelDetokenisers
from services.gateway.interfaces import TextOptions, TextSink, TextStream, Tokenizer, Worker
from services.gateway.pinned_text import PinnedText
from services.gateway.placement import WorkerPlacement, least_of_two
from services.gateway.settings import GatewaySettings
from services.gateway.tokenizer_client import TokenizerClient
from services.gateway.upstream import Upstream
from services.gateway.worker_client import WorkerClient
from services.runtime.errors import ModelNotFoundError, UnavailableError


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
    vocabulary_size: int = 2**32
    """Token ids are below this."""


class Pool:
    """Watches tokenizers and workers, and chooses among those that serve; see interfaces.Placement.

    What drains is no longer chosen, and goes on with what it has.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        random: Random,
        text_rebuilt: Callable[[], None] = lambda: None,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._random, self._text_rebuilt, self.moved = random, text_rebuilt, moved
        self.move_timeout_s = settings.move_timeout_s
        self._placement = WorkerPlacement(random)
        self._changes = Changes()
        self._rebuild_timeout_s = settings.text_rebuild_timeout_s
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

        async def changed() -> None:
            self._changes.tell()
            await on_change()

        for worker in self.workers:
            self._watch(worker.upstream, worker.refresh, changed)
        for tokenizer in self.tokenizers:
            self._watch(tokenizer.upstream, tokenizer.refresh, changed)
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
        """Whether a generation could run now, of one model at least."""
        return any(map(self._serves, self._model_names()))

    def _serves(self, model: str) -> bool:
        """Whether a worker, a renderer and a detokeniser serve this model."""
        return (
            any(w.upstream.serving and w.status.model == model for w in self.workers)
            and any(tokenizer.renders(model) for tokenizer in self.tokenizers)
            and any(tokenizer.detokenises(model) for tokenizer in self.tokenizers)
        )

    def renderer(self, model: str, other_than: Tokenizer | None = None) -> TokenizerClient:
        """See interfaces.Placement; the one with fewer renders under way of two."""
        serving = [t for t in self.tokenizers if t.renders(model) and t is not other_than]
        if not serving:
            raise UnavailableError(f"No renderer is serving {model}.", retry_delay_s=RETRY_DELAY_S)
        return least_of_two(serving, lambda client: client.rendering_count, self._random)

    def worker(
        self, model: str, other_than: Worker | None = None, prefer: str = ""
    ) -> AbstractContextManager[WorkerClient]:
        """See interfaces.Placement; chosen as placement.WorkerPlacement says."""
        serving = [
            w
            for w in self.workers
            if w.upstream.serving and w.status.model == model and w is not other_than
        ]
        if not serving:
            raise UnavailableError(
                f"No worker is serving {model}: it is starting, or restarting.",
                retry_delay_s=RETRY_DELAY_S,
            )
        return self._placement.place(serving, prefer)

    def open_text(
        self, model: str, options: TextOptions, choice_index: int, sink: TextSink
    ) -> TextStream:
        """See interfaces.Placement."""
        detokenisers = ModelDetokenisers(self.tokenizers, model, self._changes, self._random)
        return PinnedText(
            detokenisers,
            options,
            choice_index,
            sink,
            self._rebuild_timeout_s,
            self._text_rebuilt,
        )

    async def changed(self) -> None:
        """See interfaces.Placement."""
        await self._changes.wait()

    async def abort(self, generation_id: str) -> bool:
        """End a generation on whatever worker runs it, whichever gateway placed it; whether one did.

        Args:
            generation_id: as workers know it, see worker_id.

        Raises UnavailableError where none ran it and one that serves did not answer.
        """
        answers = await asyncio.gather(*(worker.abort(generation_id) for worker in self.workers))
        if any(answers):
            return True
        silent = [
            worker.name
            for worker, answer in zip(self.workers, answers, strict=True)
            if answer is None and worker.upstream.serving
        ]
        if silent:
            raise UnavailableError(
                f"generation_id: {', '.join(silent)} did not say whether it runs there.",
                retry_delay_s=RETRY_DELAY_S,
            )
        return False

    def _model_names(self) -> list[str]:
        return list(dict.fromkeys(w.status.model for w in self.workers if w.status.model))

    def models(self, caller: Caller) -> list[ServedModel]:
        """The models seen so far that the caller may use, the default one first; only it has the aliases."""
        return [model for model in self._models() if _may_use(caller, model)]

    def _models(self) -> list[ServedModel]:
        found: list[ServedModel] = []
        for name in self._model_names():
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
                    ready=self._serves(name),
                    vocabulary_size=status.vocabulary_size or 2**32,
                )
            )
        return found

    def model(self, name: str, caller: Caller) -> ServedModel:
        """A model by name or alias; empty: the caller's default.

        Raises ModelNotFoundError, for one that the caller may not use as for one that is none: the same words.
        """
        if not self._model_names():
            raise UnavailableError("No worker has begun to serve yet.", retry_delay_s=RETRY_DELAY_S)
        models = self.models(caller)
        if not name and models:
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
        for worker in self.workers:
            await worker.link.close()
        for upstream in (
            *(t.upstream for t in self.tokenizers),
            *(w.upstream for w in self.workers),
        ):
            await upstream.close()


def _may_use(caller: Caller, model: ServedModel) -> bool:
    return caller.models is None or not caller.models.isdisjoint((model.name, *model.aliases))
