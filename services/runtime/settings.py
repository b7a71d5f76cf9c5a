"""The base of every service's settings: read once, frozen, and strict about names."""

import os
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """What every service process is told by its environment.

    A subclass sets `env_prefix`; a variable with that prefix that names no field is an error,
    because a misspelt limit would otherwise be no limit.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_nested_delimiter="__", env_parse_none_str="null"
    )

    name: str = Field("", max_length=64, pattern=r"^[A-Za-z0-9._-]*$")
    """The process's name in logs and in other services' settings, such as `worker-0`."""
    address: str = "127.0.0.1:0"
    """Where to listen: `host:port` (port 0: any free one) or `unix:/path`. Loopback by default."""
    metrics_address: str = Field("", pattern=r"^$|^([^:/]*|\[[^/]+\]):[0-9]{1,5}$")
    """Where GET /metrics is answered for Prometheus: `host:port`; without host: loopback; port 0: any free one, which
    the log names. Empty: nowhere."""
    channelz: bool = True
    """Whether grpc.channelz.v1 tells about connections and calls of this process, to who reaches its own address."""
    log_format: str = Field("json", pattern="^(json|console)$")
    """`json`: one object a line; `console`: for people."""
    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    """Least severe level that is written."""
    drain_notice_s: float = Field(0.5, ge=0, le=60)
    """How long health says NOT_SERVING before new calls are refused; longer than the peers' health interval."""
    drain_grace_s: float = Field(20.0, ge=0, le=600)
    """How long running calls may go on after that; then they are cancelled."""
    exit_with_parent: bool = False
    """Linux: end (SIGTERM) when the parent process dies, so that no crash of a supervisor leaves orphans."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_variables(cls, data: Any) -> Any:
        prefix = str(cls.model_config.get("env_prefix", "")).upper()
        known = {f"{prefix}{field}".upper() for field in cls.model_fields}
        unknown = sorted(
            name
            for name in (key.upper() for key in os.environ)
            if prefix
            and name.startswith(prefix)
            and not any(name == field or name.startswith(f"{field}__") for field in known)
        )
        if unknown:
            raise ValueError(f"unknown settings: {', '.join(unknown)}")
        return data

    @classmethod
    def read(cls) -> Self:
        """The settings from the environment. Raises pydantic.ValidationError naming every bad variable."""
        return cls()


def explain(settings_class: type[ServiceSettings], error: ValueError) -> str:
    """What is wrong with the environment, for people: a line for each variable, by its name.

    Args:
        error: what `ServiceSettings.read` raised.
    """
    prefix = str(settings_class.model_config.get("env_prefix", "")).upper()
    if not isinstance(
        error, ValidationError
    ):  # pydantic-settings: a value that is no JSON; names the field
        return f"{prefix}: {error}\n"
    lines = []
    for problem in error.errors(include_url=False, include_context=False):
        name = "__".join(str(part) for part in problem["loc"]).upper()
        message = problem["msg"].removeprefix("Value error, ")
        given = (
            "" if problem["type"] in ("missing", "value_error") else f" (not {problem['input']!r})"
        )
        lines.append(f"{prefix}{name}: {message}{given}\n" if name else f"{message}\n")
    return "".join(lines)


def environment(prefix: str, values: dict[str, Any]) -> dict[str, str]:
    """Settings as environment variables, the inverse of `ServiceSettings.read`.

    Args:
        prefix: such as `HOTLINE_WORKER_`.
        values: field name to value; lists and dictionaries become JSON, None becomes `null`.
    """
    from pydantic_core import to_json

    return {
        f"{prefix}{name}".upper(): value if isinstance(value, str) else to_json(value).decode()
        for name, value in values.items()
    }


def existing_folder(path: Path) -> Path:
    """`path`, checked. Raises ValueError where it is no folder, or none of a model."""
    if not path.is_dir():
        raise ValueError(f"{path} is no folder")
    if not (path / "config.json").is_file():
        raise ValueError(f"{path} has no config.json, so it is no model's folder")
    return path
