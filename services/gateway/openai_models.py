"""GET /v1/models, /v1/models/{id} and /health."""

import msgspec

from services.gateway.caller import Caller
from services.gateway.openai_response import encode
from services.gateway.pool import Pool, ServedModel
from services.runtime.errors import RouteNotFoundError, UnavailableError


class ModelBody(msgspec.Struct):
    """One entry of /v1/models."""

    id: str
    object: str
    created: int
    owned_by: str
    root: str
    """The canonical name, where `id` is an alias."""
    max_model_len: int
    """Tokens of prompt and output together, as vLLM calls it."""


class ModelListBody(msgspec.Struct):
    """The body of /v1/models."""

    object: str
    data: list[ModelBody]


class HealthBody(msgspec.Struct):
    """The body of /health."""

    status: str


def model_list(pool: Pool, caller: Caller) -> bytes:
    """Canonical names and aliases of what the caller may use, the default model first."""
    entries = [
        _model_body(model, name)
        for model in pool.models(caller)
        for name in (model.name, *model.aliases)
    ]
    return encode(ModelListBody("list", entries))


def one_model(pool: Pool, name: str, caller: Caller) -> bytes:
    """A model by name or alias. Raises ModelNotFoundError, or UnavailableError where none is known yet."""
    return encode(_model_body(pool.model(name, caller), name))


def health(pool: Pool, probe: str) -> bytes:
    """Whether generations can run (`ready`, or empty), or only that the process answers (`live`).

    Raises UnavailableError where they cannot, RouteNotFoundError for any other probe.
    """
    if probe not in ("", "ready", "live"):
        raise RouteNotFoundError(
            f"/health/{probe[:32]} is no route; there are /health, /health/ready, /health/live."
        )
    if probe != "live" and not pool.ready:
        raise UnavailableError("The model is not ready yet.", retry_delay_s=1.0)
    return encode(HealthBody("ok"))


def _model_body(model: ServedModel, name: str) -> ModelBody:
    owner = "hotline" if model.engine == "vllm" else f"hotline ({model.engine} engine)"
    return ModelBody(name, "model", model.create_time_s, owner, model.name, model.context_tokens)
