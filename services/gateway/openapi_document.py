"""The OpenAPI 3.1 document of the REST surface, made from the code that answers."""

from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec
from google.protobuf.descriptor import FieldDescriptor

from services.gateway import openapi_schemas as schemas
from services.gateway.openai_request import ChatMessage
from services.gateway.openai_response import ErrorBody
from services.gateway.openapi_operations import OPERATIONS, Operation
from services.gateway.openapi_routes import Route, routes
from services.gateway.rest_answers import EVENT_STREAM, JSON
from services.gateway.sessions.sessions import MAX_PAGE
from services.runtime.error_table import TABLE, Reason

_Node = dict[str, Any]
_REQUEST_ID: _Node = {"x-request-id": {"$ref": "#/components/headers/RequestId"}}
_RATE_LIMITS: _Node = {
    f"x-ratelimit-{what}-{of}": {"$ref": f"#/components/headers/RateLimit{what.title()}"}
    for of in ("requests", "tokens")
    for what in ("limit", "remaining", "reset")
}
"""On answers and errors of calls that generate, by keys that have such limits."""


@cache
def encoded() -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(document())


def document() -> _Node:
    """The document."""
    paths: _Node = {}
    for route in routes():
        paths.setdefault(route.path, {})[route.method] = _operation(route, OPERATIONS[route.rpc])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hotline",
            "version": version("hotline-serving"),
            "description": "The OpenAI-compatible surface. gRPC clients have hotline.v1 instead.",
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key; none is needed where the server allows anonymous callers.",
                }
            },
            "headers": {
                "RequestId": {
                    "description": "The request's id, as the server's log has it.",
                    "schema": {"type": "string"},
                },
                "RetryAfter": {
                    "description": "Seconds after which the same request may succeed.",
                    "schema": {"type": "integer", "minimum": 1},
                },
                "RateLimitLimit": {
                    "description": "What the key may take in a minute, where it has a limit.",
                    "schema": {"type": "integer", "minimum": 0},
                },
                "RateLimitRemaining": {
                    "description": "What is left of it.",
                    "schema": {"type": "integer", "minimum": 0},
                },
                "RateLimitReset": {
                    "description": "When all of it is back, such as 1.5s or 6m0s.",
                    "schema": {"type": "string"},
                },
            },
            "schemas": schemas.requests() | schemas.structs(ChatMessage, ErrorBody, *_answers()),
            "responses": {f"Error{status}": _error(status) for status in _STATUSES},
        },
    }


def _answers() -> list[type[msgspec.Struct]]:
    """The structs of all answers and events, each once."""
    pairs = ((operation.answer, operation.event) for operation in OPERATIONS.values())
    return list(dict.fromkeys(kind for pair in pairs for kind in pair if kind is not None))


def _operation(route: Route, operation: Operation) -> _Node:
    name = route.rpc[0].lower() + route.rpc[1:]
    node: _Node = {
        "operationId": name + ("Alias" if route.is_alias else ""),
        "summary": operation.summary,
        "parameters": _parameters(route),
        "responses": _responses(operation),
    }
    if operation.request:
        schema = {"$ref": schemas.REFERENCE.format(name=operation.request)}
        examples = {name: {"value": value} for name, value in operation.examples.items()}
        content = {JSON: {"schema": schema, "examples": examples}}
        node["requestBody"] = {"required": True, "content": content}
    if not operation.needs_key:
        node["security"] = []
    return node


def _parameters(route: Route) -> list[_Node]:
    path: list[_Node] = [
        {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS[name]}
        for name in route.path_fields
    ]
    query: list[_Node] = [
        {"name": field.name, "in": "query", "schema": _query_schema(field)}
        for field in route.query_fields
    ]
    return path + query


def _query_schema(field: FieldDescriptor) -> _Node:
    if field.type == FieldDescriptor.TYPE_STRING:
        return {"type": "string", "pattern": "^([0-9a-f]{32})?$"}  # empty is as absent
    return {"type": "integer", "minimum": 0} | _MAXIMA.get(field.name, {})


_MAXIMA: dict[str, _Node] = {"limit": {"maximum": MAX_PAGE}}
_SESSION_ID: _Node = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_PATH_SCHEMAS: dict[str, _Node] = {
    "model": {"type": "string", "minLength": 1},
    "probe": {"enum": ["ready", "live"]},
    "generation_id": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"},
    "session_id": _SESSION_ID,
}


def _responses(operation: Operation) -> _Node:
    statuses = sorted({TABLE[reason].http_status for reason in operation.reasons})
    errors = {str(status): {"$ref": f"#/components/responses/Error{status}"} for status in statuses}
    return ({"200": _success(operation)} if operation.is_built else {}) | errors


def _success(operation: Operation) -> _Node:
    schema: _Node = {"type": "object"}
    if operation.answer is not None:
        schema = {"$ref": schemas.REFERENCE.format(name=operation.answer.__name__)}
    content: _Node = {JSON: {"schema": schema}}
    if operation.event is not None:
        content[EVENT_STREAM] = {"schema": _event(operation.event.__name__)}
    headers = _REQUEST_ID
    if Reason.GENERATION_CONFLICT in operation.reasons:  # it generates
        headers = headers | _RATE_LIMITS
    return {"description": "The answer.", "headers": headers, "content": content}


def _event(name: str) -> _Node:
    """One server-sent event, as OpenAPI sees it: an object of the event's fields."""
    kinds = [{"$ref": schemas.REFERENCE.format(name=kind)} for kind in (name, ErrorBody.__name__)]
    return {
        "type": "object",
        "description": (
            "With `stream`: each event. The last one is [DONE]; an error after the first one is an event of its own, and "
            "there is no [DONE] then."
        ),
        "required": ["data"],
        "properties": {
            "data": {
                "anyOf": [
                    {"const": "[DONE]"},
                    {
                        "type": "string",
                        "contentMediaType": JSON,
                        "contentSchema": {"anyOf": kinds},
                    },
                ]
            }
        },
    }


_STATUSES = sorted({row.http_status for row in TABLE.values()})


def _error(status: int) -> _Node:
    rows = [row for row in TABLE.values() if row.http_status == status]
    headers = dict(_REQUEST_ID)
    if TABLE[Reason.RATE_LIMITED] in rows:
        headers |= _RATE_LIMITS
    if any(row.retryable for row in rows):
        headers["retry-after"] = {"$ref": "#/components/headers/RetryAfter"}
    codes = ", ".join(f"`{row.openai_code}` ({row.openai_type})" for row in rows)
    return {
        "description": f"error.code is one of: {codes}.",
        "headers": headers,
        "content": {JSON: {"schema": {"$ref": schemas.REFERENCE.format(name="ErrorBody")}}},
    }
