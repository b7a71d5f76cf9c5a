"""Settings -> vLLM's engine arguments: the one place where engine flags are mapped, and where a refusal is explained."""

from dataclasses import fields
from typing import Any

from pydantic import ValidationError

from services.runtime.start import StartRefusedError
from services.worker.engine_settings import ENGINE_FLAGS, IMAGE_NAMES
from services.worker.pass_through import unknown_problems
from services.worker.settings import WorkerSettings


def engine_arguments(settings: WorkerSettings, has_images: bool) -> dict[str, Any]:
    """Keyword arguments of vllm.AsyncEngineArgs.

    Args:
        has_images: whether the model sees images; vLLM refuses limits for what it does not see.
    """
    names = [name for name in ENGINE_FLAGS if has_images or name not in IMAGE_NAMES]
    values = {name: getattr(settings, name) for name in names}
    arguments = {name: value for name, value in values.items() if value is not None}
    arguments.update(
        model=str(settings.model_path),
        served_model_name=settings.model_name,
        trust_remote_code=False,
        scheduling_policy="priority",
        max_logprobs=20,
        enable_log_requests=False,
        use_tqdm_on_load=False,
        # Without disable_any_whitespace a small model writes blanks until max_tokens.
        structured_outputs_config={"backend": "xgrammar", "disable_any_whitespace": True},
    )
    if has_images:
        arguments.update(
            limit_mm_per_prompt={"image": settings.max_images, "video": 0},
            mm_processor_kwargs=settings.mm_processor_kwargs or None,
            # The tokenizer sends pixels as bytes: normalised twice, or never, they would be silently wrong.
            mm_device_do_normalize=True,
        )
    return {**settings.engine_args, **arguments}


def engine_configuration(settings: WorkerSettings, has_images: bool) -> Any:
    """vLLM's VllmConfig, which vLLM checks as a whole while making it. Imports vLLM.

    Raises:
        StartRefusedError: an argument that vLLM does not know, or a value that it refuses; a line for each.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs

    known = [field.name for field in fields(AsyncEngineArgs)]
    problems = unknown_problems(settings.engine_args, ENGINE_FLAGS, known)
    if problems:
        raise StartRefusedError(problems)
    arguments = engine_arguments(settings, has_images)
    try:
        return AsyncEngineArgs(**arguments).create_engine_config()
    except ValidationError as error:
        raise StartRefusedError(_invalid(error, arguments)) from error
    # What vLLM's own checks raise; anything else is a fault of the program and keeps its traceback.
    except (ValueError, TypeError, AttributeError, ImportError, NotImplementedError) as error:
        raise StartRefusedError(
            [f"vLLM refuses the engine's flags: {_one_line(str(error))}"]
        ) from error


def _invalid(error: ValidationError, arguments: dict[str, Any]) -> list[str]:
    """A line for each thing that vLLM's configuration classes refuse, by the flag's name where it is one of ours."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        message = _one_line(problem["msg"].removeprefix("Value error, "))
        path = [str(part) for part in problem["loc"]]
        flag = _flag(path, arguments)
        where = flag or f"vLLM's {error.title}, {'.'.join(path) or 'as a whole'}"
        shown = repr(problem["input"])[:_SHOWN_LENGTH] if path else ""
        lines.append(f"{where}: {message}" + (f" (not {shown})" if shown else ""))
    return lines


_SHOWN_LENGTH = 80
"""Characters of a refused value that a line repeats."""
_RENAMED = {"policy": "scheduling_policy", "cache_dtype": "kv_cache_dtype"}
"""Fields of vLLM's configuration classes that its arguments call otherwise."""


def _flag(path: list[str], arguments: dict[str, Any]) -> str | None:
    for part in path:
        name = _RENAMED.get(part, part)
        if name in arguments:
            return name if name in ENGINE_FLAGS else f"engine_args.{name}"
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())
