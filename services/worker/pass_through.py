"""What `engine_args` may hold. Knows no vLLM: the configuration is checked before anything is started."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_RUNS_CODE = "it would run code that is named in a configuration"
_OTHER_SETTING = "Hotline has a setting for it: {}"
_LOCAL = "models are local folders, and nothing is downloaded: model.path"
_RENDERING = "the tokenizer service renders and reads text, the engine only sees ids"
_ADAPTERS = "adapters are not in this version"
_ONE_ENGINE = "a worker is one engine on one machine: worker.count starts several"
_MODEL_READ = (
    "worker and tokenizer read the model's own files and would disagree: change the files instead"
)

FORBIDDEN: dict[str, str] = {
    **dict.fromkeys(
        (
            *("trust_remote_code", "worker_cls", "worker_extension_cls", "scheduler_cls"),
            *("logits_processors", "model_class_overrides", "io_processor_plugin"),
            *("reasoning_parser", "reasoning_parser_plugin", "log_config_file", "logging_config"),
        ),
        _RUNS_CODE,
    ),
    **dict.fromkeys(
        ("allowed_local_media_path", "allowed_media_domains", "media_io_kwargs"),
        "the engine reads no media, and a client must not make it read files or addresses",
    ),
    **dict.fromkeys(
        ("enable_prompt_embeds", "enable_mm_embeds"),
        "tensors in place of ids cannot be checked, and wrong ones end the engine",
    ),
    "kv_events_config": "it publishes token ids of prompts on a socket without authentication",
    "weight_transfer_config": "it lets other processes replace the weights",
    "enable_log_requests": "prompts never stand in a log",
    "otlp_traces_endpoint": "the engine sends nothing out by itself",
    **dict.fromkeys(
        (
            *("model_weights", "download_dir", "revision", "code_revision", "hf_token"),
            *("tokenizer_revision", "hf_config_path"),
        ),
        _LOCAL,
    ),
    "model": _OTHER_SETTING.format("model.path"),
    "served_model_name": _OTHER_SETTING.format("model.name and model.aliases"),
    "limit_mm_per_prompt": _OTHER_SETTING.format("max_images"),
    "language_model_only": _OTHER_SETTING.format("max_images: 0"),
    "max_num_queued_reqs": _OTHER_SETTING.format("max_waiting"),
    "max_num_queued_tokens": _OTHER_SETTING.format("max_waiting"),
    "log_level": _OTHER_SETTING.format("log_level"),
    **dict.fromkeys(
        (
            *("tokenizer", "tokenizer_mode", "skip_tokenizer_init", "interleave_mm_strings"),
            *("renderer_num_workers", "mm_processor_device", "mm_tensor_ipc", "tokens_only"),
        ),
        _RENDERING,
    ),
    **dict.fromkeys(
        ("hf_overrides", "generation_config", "override_generation_config", "config_format"),
        _MODEL_READ,
    ),
    **dict.fromkeys(("runner", "convert"), "the worker generates; nothing else is served"),
    **dict.fromkeys(("enable_lora", "default_mm_loras"), _ADAPTERS),
    **dict.fromkeys(
        (
            *("nnodes", "node_rank", "master_addr", "master_port", "data_parallel_size"),
            *("data_parallel_rank", "data_parallel_start_rank", "data_parallel_size_local"),
            *("data_parallel_address", "data_parallel_rpc_port", "data_parallel_backend"),
            *("data_parallel_hybrid_lb", "data_parallel_external_lb"),
            "data_parallel_multi_port_external_lb",
        ),
        _ONE_ENGINE,
    ),
    "scheduling_policy": "it is always `priority`, which is first come first served among equals",
    "max_logprobs": "the contract says 20",
    "structured_outputs_config": "clients' constraints are checked for the backend that Hotline sets",
    "mm_device_do_normalize": "pixels come as bytes; another value would be silently wrong",
    "disable_log_stats": "load and metrics are read from the engine's statistics",
    "use_tqdm_on_load": "a progress bar is no log line",
    **dict.fromkeys(
        ("max_num_partial_prefills", "max_long_partial_prefills"),
        "vLLM has it no more: as many prompts as fit are read side by side in a step; "
        "long_prefill_token_threshold bounds what one of them takes",
    ),
    "swap_space": "vLLM has it no more: kv_offloading_size keeps KV in host memory",
}
"""Name -> why it is refused."""

_CLASS_PATHS = (
    ("distributed_executor_backend", ()),
    ("compilation_config", ("backend", "inductor_passes")),
    ("kv_transfer_config", ("kv_connector_module_path",)),
    ("ec_transfer_config", ("ec_connector_module_path",)),
)
"""Arguments, and keys in them, that may name a class or module to import."""


def refuse_forbidden(arguments: dict[str, Any]) -> dict[str, Any]:
    """`arguments`, checked. Raises ValueError with a sentence for each one that is refused."""
    problems = [
        f"{name} is refused: {reason}"
        for name in sorted(arguments)
        if (reason := FORBIDDEN.get(name)) is not None
    ]
    problems += [
        f"{name} is refused: it is vLLM's own" for name in sorted(arguments) if name[:1] == "_"
    ]
    problems += [f"{path} is refused: {_RUNS_CODE}" for path in _code_in(arguments)]
    if problems:
        raise ValueError("; ".join(problems))
    return arguments


def refuse_custom_speculation(config: dict[str, Any] | None) -> dict[str, Any] | None:
    """A speculative_config, checked. Raises ValueError where its method is not named: `model` could name a class then."""
    if config is not None and config.get("method") in (None, "custom_class"):
        raise ValueError(f"method must be named, and not custom_class: {_RUNS_CODE}")
    return config


def _code_in(arguments: dict[str, Any]) -> Iterable[str]:
    for name, keys in _CLASS_PATHS:
        value = arguments.get(name)
        if not keys and isinstance(value, str) and "." in value:
            yield name
        if isinstance(value, dict):
            for key in keys:
                inner = value.get(key)
                # `inductor` is a name of vLLM's own; with a dot or a dictionary it is a path to import.
                if isinstance(inner, dict) or (isinstance(inner, str) and "." in inner):
                    yield f"{name}.{key}"


def unknown_problems(
    arguments: Iterable[str], own: Iterable[str], known: Iterable[str]
) -> list[str]:
    """A line for each name of `arguments` that the engine does not know or that has a setting.

    Args:
        own: settings that carry the engine's names.
        known: every argument of the installed engine.
    """
    own, known = frozenset(own), frozenset(known)
    problems = []
    for name in sorted(arguments):
        if name in own:
            problems.append(f"engine_args.{name}: {_OTHER_SETTING.format(name)}")
        elif name not in known:
            allowed = sorted((known | own) - FORBIDDEN.keys())
            near = get_close_matches(name, allowed, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            problems.append(f"engine_args.{name}: the installed vLLM has no such argument{hint}")
    return problems
