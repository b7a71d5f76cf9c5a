"""JSON Schemas of the REST bodies: answers from their structs, requests from the parameter table."""

import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from services.gateway.completion_request import MAX_CHOICES
from services.gateway.json_ids import MAX_ID
from services.gateway.openai_logprobs import ChoiceLogprobs, ShownToken
from services.gateway.openai_request import ChatMessage
from services.gateway.openapi_sessions import session_requests
from services.gateway.parameter import Parameter, Route, json_schema
from services.gateway.parameter_table import of_route
from services.gateway.parameters import MAX_MESSAGES
from services.gateway.past_calls import PastCall
from services.runtime.plain_text_limits import MAX_IDS

_MADE_EARLIER: Mapping[Any, Any] = {
    (ChoiceLogprobs, "content"): list[ShownToken],
    (ChatMessage, "tool_calls"): list[PastCall] | None,
}
"""Fields that hold JSON when the answer is made, or are read later, and what that is."""
REFERENCE = "#/components/schemas/{name}"
CHAT_REQUEST, COMPLETION_REQUEST = "ChatCompletionRequest", "CompletionRequest"
TOKENIZE_REQUEST, DETOKENIZE_REQUEST = "TokenizeRequest", "DetokenizeRequest"
_Schema = dict[str, Any]

_ID: _Schema = {"type": "integer", "minimum": 0, "maximum": MAX_ID}
_TEXT: _Schema = {"type": "string", "minLength": 1}
_IDS: _Schema = {"type": "array", "items": _ID, "minItems": 1}
_MODEL: _Schema = {
    "type": ["string", "null"],
    "description": "A model name or alias. Default: the server's default model.",
}


def _several(items: _Schema) -> _Schema:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": MAX_CHOICES}


def _object(description: str, required: Sequence[str], **properties: _Schema) -> _Schema:
    """An object that may hold more than is said here."""
    return {
        "type": "object",
        "description": f"{description} Unknown fields are accepted; null counts as absent.",
        "required": list(required),
        "properties": properties,
    }


def _one_of(name: str, kind: str, other: str) -> _Schema:
    """This field, and not the other."""
    return {"required": [name], "properties": {name: {"type": kind}, other: {"type": "null"}}}


def requests() -> dict[str, _Schema]:
    """Schemas of the bodies that clients send, by name."""
    messages: _Schema = {
        "type": "array",
        "items": {"$ref": REFERENCE.format(name=ChatMessage.__name__)},
        "minItems": 1,
        "maxItems": MAX_MESSAGES,
    }
    prompt: _Schema = {
        "anyOf": [_TEXT, _several(_TEXT), _IDS, _several(_IDS)],
        "description": f"A text, token ids, or up to {MAX_CHOICES} of either.",
    }
    rendering = [p for p in of_route(Route.CHAT) if p.goes_to.startswith("render.")]
    return {
        CHAT_REQUEST: _object(
            "A conversation to go on with.",
            ["messages"],
            model=_MODEL,
            messages=messages,
            **_parameters(of_route(Route.CHAT)),
        ),
        COMPLETION_REQUEST: _object(
            f"Prompts to go on with, without a template; at most {MAX_CHOICES} choices in all.",
            ["prompt"],
            model=_MODEL,
            prompt=prompt,
            **_parameters(of_route(Route.COMPLETIONS)),
        ),
        TOKENIZE_REQUEST: {
            **_object(
                "A text, or a conversation as the model's template renders it.",
                [],
                model=_MODEL,
                prompt={"type": ["string", "null"]},
                add_special_tokens={
                    "type": ["boolean", "null"],
                    "description": "With a text: puts before it what the tokenizer puts before every text. Default: true.",
                },
                messages=messages | {"type": ["array", "null"]},
                add_generation_prompt={"enum": [True, None]},
                continue_final_message={"enum": [False, None]},
                return_token_strs={"enum": [False, None]},
                **_parameters(rendering),
            ),
            "oneOf": [
                _one_of("prompt", "string", "messages"),
                _one_of("messages", "array", "prompt"),
            ],
        },
        DETOKENIZE_REQUEST: _object(
            "Token ids.",
            ["tokens"],
            model=_MODEL,
            tokens={"type": "array", "items": _ID, "maxItems": MAX_IDS},
        ),
        **session_requests(_object, messages, _MODEL),
    }


def _parameters(parameters: Sequence[Parameter]) -> dict[str, _Schema]:
    shown = {parameter.name: json_schema(parameter) for parameter in parameters}
    nested = {p.name: shown[p.name] for p in parameters if p.is_nestable}
    return {
        **shown,
        "extra_body": {
            "type": ["object", "null"],
            "description": "What some clients send as it stands, instead of merging it.",
            "properties": nested,
        },
    }


def structs(*kinds: type[msgspec.Struct]) -> dict[str, _Schema]:
    """Schemas of these structs and all that they hold, by name."""
    documented = [_struct(kind) for kind in kinds]
    return msgspec.json.schema_components(documented, ref_template=REFERENCE)[1]


def _documented(kind: Any) -> Any:
    """The type with every struct in it replaced by one that has a schema."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is None or origin is Literal:
        return kind
    mapped = tuple(map(_documented, arguments))
    return Union[mapped] if origin in (Union, types.UnionType) else origin[mapped]  # noqa: UP007


@cache
def _struct(struct: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The struct with free-form JSON where its parser skips a field, whose default msgspec could not write down."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(struct):
        made = _MADE_EARLIER.get((struct, field.name), field.type)
        kind = Any if made is msgspec.Raw else _documented(made)
        is_raw = field.type is msgspec.Raw
        default = () if field.required else (None if is_raw else field.default,)
        fields.append((field.encode_name, kind, *default))
    config = struct.__struct_config__
    return msgspec.defstruct(
        struct.__name__,
        fields,
        namespace={"__doc__": struct.__doc__},
        tag=config.tag,
        tag_field=config.tag_field,
    )
