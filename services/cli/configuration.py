"""What `hotline up` starts: the YAML files of deploy/config, typed and strict."""

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from services.cli.address import listening_address
from services.cli.deployment import deployment_file
from services.cli.settings_error import explain, kind
from services.cli.strict_yaml import load_yaml
from services.gateway.settings import GatewaySettings
from services.runtime.loopback import is_loopback
from services.runtime.settings import ServiceSettings
from services.tokenizer.settings import TokenizerSettings
from services.worker.settings import WorkerSettings

SET_BY_UP = frozenset(
    {
        *("name", "address", "exit_with_parent", "model_path", "model_name", "model_aliases"),
        *("workers", "tokenizers", "roles", "metrics_address", "admin_address"),
    }
)
"""Settings of services that follow from the rest of the configuration."""


LAST_METRICS_PORT = 65000
"""Of the first process; there is room for the others above it."""


class ConfigurationError(Exception):
    """The configuration cannot be used; the message names the file and every key at fault."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelSection(_Section):
    """The model that the stack serves."""

    path: Path
    """Its folder; relative to the configuration file."""
    name: str = Field(min_length=1, max_length=128)
    """The canonical name, the one that replies carry."""
    aliases: tuple[str, ...] = Field((), max_length=64)
    """Other names that it answers to."""


class EdgeSection(_Section):
    """Where clients come."""

    address: Annotated[str, AfterValidator(listening_address)] = "127.0.0.1:8000"
    """`host:port`; port 0: any free one."""
    anonymous_on_network: bool = False
    """Say so a second time, where others reach this address and gateway.allow_anonymous asks them for no key."""


class ServiceSection(BaseModel):
    """Settings of one kind of service process, by the names of its settings class."""

    model_config = ConfigDict(frozen=True, extra="allow")
    settings_class: ClassVar[type[ServiceSettings]]

    environment: dict[str, str] = Field(default_factory=dict)
    """Further environment variables of the processes, such as VLLM_CPU_OMP_THREADS_BIND."""

    @property
    def settings(self) -> dict[str, Any]:
        """What the section says about the service itself."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _refuse_unknown_keys(self) -> Self:
        known = self.settings_class.model_fields.keys() - SET_BY_UP
        unknown = sorted(self.settings.keys() - known)
        if unknown:
            raise ValueError(
                f"unknown keys: {', '.join(unknown)}; known: environment, {', '.join(sorted(known))}"
            )
        return self


class MetricsSection(_Section):
    """Where Prometheus finds the processes' metrics."""

    host: Annotated[str, Field(pattern=r"^[^:/\[\]]+$")] = "127.0.0.1"
    """Loopback by default: metrics are for operators."""
    first_port: int
    """The first process's port; the others follow, in the order in which `hotline status` lists them. 0: any free ones."""

    @field_validator("first_port")
    @classmethod
    def _refuse_privileged_ports(cls, port: int) -> int:
        if port != 0 and not 1024 <= port <= LAST_METRICS_PORT:
            raise ValueError(f"{port} is not allowed; must be 0 or 1024 to {LAST_METRICS_PORT}")
        return port


class GatewaySection(ServiceSection):
    """The gateway processes."""

    settings_class = GatewaySettings
    count: int = Field(1, ge=1, le=16)
    """How many; each has its own limits, and the edge sends a request to the one with the fewest."""

    @property
    def keys_file(self) -> Path | None:
        """The file of API keys, where one is named."""
        named = self.settings.get("keys_file")
        return None if named is None else Path(str(named))


class TokenizerSection(ServiceSection):
    """The tokenizer processes."""

    settings_class = TokenizerSettings
    count: int = Field(1, ge=1, le=64)
    """How many that render and detokenise."""
    render: int | None = Field(None, ge=1, le=64)
    """In place of count, together with detokenise: how many that only render."""
    detokenise: int | None = Field(None, ge=1, le=64)
    """How many that only detokenise."""

    @model_validator(mode="after")
    def _refuse_half_a_split(self) -> Self:
        if (self.render is None) != (self.detokenise is None):
            raise ValueError("render and detokenise stand together: how many of each")
        if self.render is not None and "count" in self.model_fields_set:
            raise ValueError("count stands alone; render and detokenise take its place")
        return self


class WorkerSection(ServiceSection):
    """The worker processes, one engine each."""

    settings_class = WorkerSettings
    count: int = Field(1, ge=1, le=64)
    """How many."""


class Configuration(_Section):
    """A whole stack on one machine."""

    model: ModelSection
    edge: EdgeSection = EdgeSection()
    gateway: GatewaySection = GatewaySection()
    tokenizer: TokenizerSection = TokenizerSection()
    worker: WorkerSection = WorkerSection()
    metrics: MetricsSection | None = None
    """None: no process answers on a metrics port."""
    start_timeout_s: float = Field(240.0, gt=0, le=3600)
    """From the start until the stack answers; then `up` gives up."""

    @model_validator(mode="after")
    def _refuse_strangers_without_keys(self) -> Self:
        anonymous = self.gateway.settings.get("allow_anonymous") is True
        if anonymous and not is_loopback(self.edge.address) and not self.edge.anonymous_on_network:
            raise ValueError(
                f"edge.address {self.edge.address} is not loopback, and gateway.allow_anonymous asks nobody for a key: "
                "set gateway.keys_file instead, or edge.anonymous_on_network: true to mean it"
            )
        return self

    @model_validator(mode="after")
    def _refuse_unequal_pixels(self) -> Self:
        """What the tokenizer makes of an image is what the worker expects, or every image is refused."""
        kwargs = self.worker.settings.get("mm_processor_kwargs")
        expected = kwargs if isinstance(kwargs, dict) else {}
        for name in ("max_pixels", "min_pixels"):
            made, wanted = self.tokenizer.settings.get(name), expected.get(name)
            if made != wanted:
                raise ValueError(
                    f"tokenizer.{name} is {made}, but worker.mm_processor_kwargs.{name} is {wanted}: they must agree"
                )
        return self


def find(name: str) -> Path:
    """The file of a configuration: a path, or the bare name of one in deploy/config. Raises ConfigurationError."""
    path = Path(name)
    try:
        is_folder = path.is_dir()
        if path.exists() and not is_folder:
            return path
        shipped = {file.stem: file for file in deployment_file("config").glob("*.yaml")}
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(f"no configuration {name!r}: {reason}") from None
    if name in shipped:
        return shipped[name]
    problem = "it is a folder" if is_folder else "no such file"
    raise ConfigurationError(
        f"no configuration {name!r}: {problem}; give a YAML file, or a name: {', '.join(sorted(shipped))}"
    )


def with_model_path(configuration: Configuration, model_path: Path | None) -> Configuration:
    """The configuration with another folder of the model's; None: the same. Relative to the working folder."""
    if model_path is None:
        return configuration
    model = configuration.model.model_copy(update={"path": model_path.resolve()})
    return configuration.model_copy(update={"model": model})


def load(path: Path) -> Configuration:
    """Read and check a configuration. Raises ConfigurationError."""
    try:
        document = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    if not isinstance(document, dict):
        sections = ", ".join(Configuration.model_fields)
        raise ConfigurationError(
            f"{path}: must be a mapping of sections ({sections}), not {kind(document)}"
        )
    try:
        configuration = Configuration.model_validate(document)
    except ValidationError as error:
        raise ConfigurationError(explain(error, str(path), Configuration.model_fields)) from None
    folder = (path.parent / configuration.model.path).resolve()
    model = configuration.model.model_copy(update={"path": folder})
    gateway = configuration.gateway
    if gateway.keys_file is not None:
        # Not resolved: where it is a link, the link is read anew at every reload.
        keys = os.path.normpath(path.parent.resolve() / gateway.keys_file)
        gateway = gateway.model_copy(update={"keys_file": keys})
    return configuration.model_copy(update={"model": model, "gateway": gateway})
