"""The REST routes, read from the contract's own annotations, so that none is forgotten."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from google.api import annotations_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hotline.v1 import openai_pb2

_VARIABLE = re.compile(r"\{(\w+)(?:=[^}]*)?\}")


@dataclass(frozen=True)
class Route:
    """One method and path."""

    rpc: str
    """The name of the RPC."""
    method: str
    """In lower case."""
    path: str
    """With its variables as OpenAPI writes them: /v1/models/{model}."""
    path_fields: Sequence[str]
    query_fields: Sequence[FieldDescriptor]
    is_alias: bool
    """Another path of the same operation came before."""


def routes() -> list[Route]:
    """All of OpenAIService, in the order of openai.proto."""
    service = openai_pb2.DESCRIPTOR.services_by_name["OpenAIService"]
    return [
        Route(
            rpc=rpc.name,
            method=method,
            path=_VARIABLE.sub(r"{\1}", path),
            path_fields=_VARIABLE.findall(path),
            query_fields=_query_fields(rpc.input_type, path, method),
            is_alias=index > 0,
        )
        for rpc in service.methods
        for index, (method, path) in enumerate(_bindings(rpc))
    ]


def _bindings(rpc: Any) -> Iterator[tuple[str, str]]:
    rule = rpc.GetOptions().Extensions[annotations_pb2.http]
    for binding in (rule, *rule.additional_bindings):
        method = binding.WhichOneof("pattern")
        yield method, getattr(binding, method)


def _query_fields(message: Descriptor, path: str, method: str) -> list[FieldDescriptor]:
    """What the transcoder reads from a query: what neither the path nor a body holds."""
    if method != "get":
        return []
    bound = {field for field in message.fields_by_name if field in _VARIABLE.findall(path)}
    return [field for field in message.fields if field.name not in bound | _IGNORED]


_IGNORED = {"model", "probe", "generation_id", "session_id"}
"""ignored_query_parameters of the edge."""
