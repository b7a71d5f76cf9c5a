"""vLLM in the engine's place: AsyncLLM, ids and features in, ids out."""

import asyncio
import gc
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from services.runtime.errors import (
    EngineDeadError,
    InternalError,
    InvalidArgumentError,
    UnavailableError,
)
from services.runtime.logs import get_logger
from services.runtime.start import StartRefusedError
from services.worker.engine import Job, Load, Sampling, Step
from services.worker.model import ModelFacts
from services.worker.settings import WorkerSettings
from services.worker.startup_checks import check_start
from services.worker.vllm_arguments import engine_configuration
from services.worker.vllm_inputs import engine_input, sampling_parameters
from services.worker.vllm_loading import Loading
from services.worker.vllm_outputs import OutputReader
from services.worker.vllm_process import prepare_environment
from services.worker.vllm_remains import create_folder, remove_remains

_log = get_logger()

STOP_TIMEOUT_S = 2.0
"""The engine process is told to end; after so long it is killed."""


class VllmEngine:
    """See engine.Engine. vLLM runs its scheduler and model in processes of its own, which end with this one."""

    name = "vllm"

    def __init__(self, settings: WorkerSettings, facts: ModelFacts) -> None:
        self._settings, self._facts = settings, facts
        self._engine: Any = None
        self._loading: Loading | None = None
        self._stats: Any = None  # vLLM's SchedulerStats of the last step
        self.last_step_s = 0.0
        self._was_checked = False
        self._folder: Path | None = None  # the engine's own, for its sockets

    async def start(self) -> None:
        """Load the model in a thread, so that health and signals are answered meanwhile. After `close`, again.

        Raises StartRefusedError where the machine, the model's files or a flag are not fit for a start.
        """
        self._stats = None
        self._loading = Loading(self._build)
        self._engine = await self._loading.result()
        # AsyncLLM was made outside the loop; its reader belongs to this one.
        self._engine._run_output_handler()

    def _build(self, stopped: threading.Event) -> Any:
        prepare_environment(self._settings)
        from vllm.v1.engine.async_llm import AsyncLLM
        from vllm.v1.executor.abstract import Executor

        from services.worker.vllm_child import WATCHED

        if stopped.is_set():
            return None
        self._check()
        config = engine_configuration(self._settings, self._facts.images is not None)
        if stopped.is_set():
            return None
        self._folder = create_folder()
        executor = Executor.get_class(config)
        return AsyncLLM(
            config,
            executor_class=WATCHED.get(executor, executor),
            log_stats=False,
            log_requests=False,
            stat_loggers=[self._stat_logger],
        )

    def _check(self) -> None:
        """The first time: a restart finds the same machine, but memory that a dead engine has not given back yet."""
        if self._was_checked:
            return
        from services.worker.vllm_machine import look

        checks = check_start(self._settings, look())
        if not all(check.passed for check in checks):
            raise StartRefusedError([check.line for check in checks])
        for check in checks:
            _log.info(check.line)
        self._was_checked = True

    def _stat_logger(self, config: Any, engine_index: int = 0) -> Any:
        from vllm.v1.metrics.loggers import StatLoggerBase

        engine = self

        class Recorder(StatLoggerBase):  # type: ignore[misc]
            """Keeps the last step's figures."""

            def __init__(self) -> None:
                """Nothing of vLLM's."""

            def record(self, scheduler_stats: Any, *args: Any, **kwargs: Any) -> None:
                engine.last_step_s = time.monotonic()
                if scheduler_stats is not None:
                    engine._stats = scheduler_stats

            def log_engine_initialized(self) -> None:
                """Said by the worker's own log."""

        return Recorder()

    def load(self) -> Load:
        """Exact in sum at once; how many of them wait and the cache's share are those of the last step."""
        if self._engine is None:
            return Load(0, 0, 0.0)
        total = self._engine.get_num_unfinished_requests()
        if not total or self._stats is None:
            return Load(total, 0, 0.0)
        waiting = min(total, self._stats.num_waiting_reqs)
        return Load(total - waiting, waiting, self._stats.kv_cache_usage)

    async def generate(self, job: Job) -> AsyncGenerator[Step, None]:
        """See engine.Engine."""
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError as VllmDeadError
        from vllm.v1.engine.exceptions import EngineGenerateError

        engine = self._engine
        if engine is None:
            raise UnavailableError("The engine is not loaded.", retry_delay_s=1.0)
        sampling, copies = self._choices(job.sampling)
        reader = OutputReader(job.sampling, self._facts.end_token_ids, copies)
        try:
            params = sampling_parameters(sampling, self._defaults())
            if job.prompt.features:  # megabytes of pixels
                prompt = await asyncio.to_thread(engine_input, job.prompt, self._facts.images)
            else:
                prompt = engine_input(job.prompt, None)
            outputs = engine.generate(prompt, params, job.generation_id, priority=job.priority)
            async with aclosing(outputs):
                async for output in outputs:
                    for step in reader.read(output, len(job.prompt.token_ids)):
                        yield step
        except VllmDeadError as error:
            raise EngineDeadError(
                "The engine ended while this generation ran.", retry_delay_s=5.0
            ) from error
        except VLLMClientError as error:
            raise _refused(job.sampling) from error
        except EngineGenerateError as error:
            if job.sampling.constraint is not None:  # found wrong only when the engine compiled it
                raise _refused(job.sampling) from error
            _log.error("the engine failed a generation", exc_info=error)
            raise InternalError from error
        except InternalError as error:
            if job.sampling.constraint is not None:
                raise _refused(job.sampling) from error
            raise
        finally:
            # Closes the moment between vLLM's taking the request and its knowing how to take it back.
            if not engine.errored:
                await engine.abort(job.generation_id)

    def _choices(self, sampling: Sampling) -> tuple[Sampling, int]:
        """What to ask of vLLM, which refuses n > 1 where all choices would be the same, and how often to repeat it."""
        temperature = sampling.temperature
        if temperature is None:
            temperature = self._defaults().get("temperature", 1.0)
        return (replace(sampling, n=1), sampling.n) if temperature == 0 else (sampling, 1)

    def _defaults(self) -> dict[str, Any]:
        defaults: dict[str, Any] = self._engine.model_config.get_diff_sampling_param()
        return {"temperature": 0.0, **defaults} if self._facts.greedy_by_default else defaults

    async def died(self) -> None:
        """Return when vLLM's reader has ended: it does when its engine process has."""
        await asyncio.wait([self._engine.output_handler])

    async def close(self) -> None:
        """End vLLM's processes, also half started ones."""
        if self._loading is not None:
            self._engine = await self._loading.stop() or self._engine
            self._loading = None
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await asyncio.to_thread(engine.shutdown, timeout=STOP_TIMEOUT_S)
            del engine
            # AsyncLLM stands in reference cycles, and its __del__ fails when the interpreter is half gone.
            gc.collect()
        if self._folder is not None:
            folder, self._folder = self._folder, None
            await asyncio.to_thread(remove_remains, folder)


def _refused(sampling: Sampling) -> InvalidArgumentError:
    """What a client may know of vLLM's refusal. All else was checked before; a constraint only vLLM can judge."""
    if sampling.constraint is not None:
        field = f"sampling.structured_output.{sampling.constraint.kind}"
        shown = sampling.constraint.text or list(sampling.constraint.choices)
        return InvalidArgumentError(field, shown, "a form that the engine can hold the output to")
    return InvalidArgumentError("request", "this combination", "one that the engine accepts")
