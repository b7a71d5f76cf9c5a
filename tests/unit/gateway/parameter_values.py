"""Random values of every parameter, right and wrong, for the property tests. Written by hand beside the table, not from it."""

from typing import Any

from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
_IDS = st.integers(0, 999_999_999)
_SCHEMA = st.dictionaries(
    TEXT, st.recursive(TEXT | st.integers(-(2**53), 2**53) | st.booleans(), st.lists), max_size=4
)


_NAMES = st.text("ab_-9", min_size=1, max_size=4)


def _tool(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def _numbers(low: float, high: float, open_low: bool = False) -> Any:
    # As wide as a float of 32 bits, which is what the contract carries.
    return st.floats(low, high, width=32, exclude_min=open_low, allow_subnormal=False)


GOOD: dict[str, Any] = {
    "temperature": _numbers(0, 2) | st.integers(0, 2),
    "top_p": _numbers(0, 1, open_low=True) | st.just(1),
    "top_k": st.integers(-1, 2**31 - 1),
    "min_p": _numbers(0, 1),
    "presence_penalty": _numbers(-2, 2),
    "frequency_penalty": _numbers(-2, 2),
    "repetition_penalty": _numbers(0, 2, open_low=True),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "stop": TEXT | st.lists(TEXT, max_size=16),
    "stop_token_ids": st.lists(_IDS, max_size=64),
    "max_tokens": st.integers(100, 2**40),
    "max_completion_tokens": st.integers(100, 2**40),
    "min_tokens": st.integers(0, 100),
    "n": st.integers(1, 16),
    "logprobs": st.booleans(),
    "top_logprobs": st.integers(0, 20),
    "logit_bias": st.dictionaries(_IDS.map(str), _numbers(-100, 100), max_size=20),
    "ignore_eos": st.booleans(),
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries({}, optional={"include_usage": st.booleans()}),
    "priority": st.integers(-100, 100),
    "x_keep_seconds": st.integers(1, 600),
    "session_id": st.text("0123456789abcdef", min_size=32, max_size=32),
    "session_wait": st.booleans(),
    "user": TEXT,
    "enable_thinking": st.booleans(),
    "return_reasoning": st.booleans(),
    "chat_template_kwargs": _SCHEMA,
    "tools": st.lists(
        st.builds(_tool, _NAMES, _SCHEMA),
        max_size=3,
        unique_by=lambda tool: tool["function"]["name"],
    ),
    "tool_choice": st.just("none"),
    "parallel_tool_calls": st.booleans(),
}
CONSTRAINTS: dict[str, Any] = {
    "response_format": st.just({"type": "json_object"})
    | _SCHEMA.map(lambda s: {"type": "json_schema", "json_schema": {"name": "n", "schema": s}}),
    "structured_outputs": st.one_of(
        st.just({"json_object": True}),
        TEXT.map(lambda text: {"regex": text}),
        TEXT.map(lambda text: {"grammar": text}),
        st.lists(TEXT, min_size=1, max_size=9).map(lambda values: {"choice": values}),
        _SCHEMA.map(lambda schema: {"json": schema}),
    ),
    "guided_json": _SCHEMA,
    "guided_regex": TEXT,
    "guided_choice": st.lists(TEXT, min_size=1, max_size=9),
    "guided_grammar": TEXT,
}

_BOOLEANS, _NUMBERS = st.booleans(), st.integers() | st.floats(allow_nan=False)
_TEXTS = st.text(max_size=5)
_LISTS = st.lists(st.none() | _NUMBERS, max_size=3)
_OBJECTS = st.dictionaries(st.text("xyz", max_size=3), st.integers(), max_size=2)
_NO_NUMBER = _BOOLEANS | _TEXTS | _LISTS | _OBJECTS
_NO_BOOLEAN = _NUMBERS | _TEXTS | _LISTS | _OBJECTS
_NO_OBJECT = _BOOLEANS | _NUMBERS | _TEXTS | _LISTS
_NO_TEXT = _BOOLEANS | _NUMBERS | _LISTS | _OBJECTS
_NO_LIST = _BOOLEANS | _NUMBERS | _TEXTS | _OBJECTS


def _outside(low: float, high: float | None) -> Any:
    outside = st.floats(max_value=low, exclude_max=True) | st.floats(-1e6, -1000)
    if high is not None:
        outside |= st.floats(min_value=high, exclude_min=True)
    return outside.filter(lambda value: value != low) | _NO_NUMBER


def _no_integer(low: int, high: int | None) -> Any:
    fractions = st.floats(-5, 5).filter(lambda value: value != int(value))
    outside = st.integers(max_value=low - 1) | fractions
    if high is not None:
        outside |= st.integers(min_value=high + 1)
    return outside | _NO_NUMBER


_LONG = st.integers(1, 50).map(lambda more: "é" * (128 + more))
BAD: dict[str, Any] = {
    "temperature": _outside(0, 2),
    "top_p": _outside(0, 1) | st.just(0),
    "top_k": _no_integer(-1, 2**31 - 1),
    "min_p": _outside(0, 1),
    "presence_penalty": _outside(-2, 2),
    "frequency_penalty": _outside(-2, 2),
    "repetition_penalty": _outside(0, 2) | st.just(0),
    "seed": _no_integer(-(2**63), 2**63 - 1),
    "stop": _BOOLEANS | _NUMBERS | _OBJECTS | st.just("") | _LONG | st.just(["x"] * 10_000),
    "stop_token_ids": _NO_LIST | st.lists(st.integers(max_value=-1), min_size=1) | st.just([1.5]),
    "max_tokens": _no_integer(1, None),
    "max_completion_tokens": _no_integer(1, None),
    "min_tokens": _no_integer(0, None),
    "n": _no_integer(1, 16),
    "logprobs": _NO_BOOLEAN,
    "top_logprobs": _no_integer(0, 20),
    "logit_bias": _NO_OBJECT | st.sampled_from([{"x": 1}, {"5": 101}, {"5": True}, {"-1": 1}]),
    "ignore_eos": _NO_BOOLEAN,
    "stream": _NO_BOOLEAN,
    "stream_options": _NO_OBJECT | st.just({"include_usage": 1}),
    "priority": _no_integer(-100, 100),
    "x_keep_seconds": _no_integer(1, 600),
    "session_id": _NO_TEXT | st.just("0" * 33),
    "session_wait": _NO_BOOLEAN,
    "user": _NO_TEXT | st.just("é" * 257),
    "enable_thinking": _NO_BOOLEAN,
    "return_reasoning": _NO_BOOLEAN,
    "chat_template_kwargs": _NO_OBJECT | st.just({"enable_thinking": 1}),
    "tools": _BOOLEANS | _NUMBERS | _TEXTS | _OBJECTS | st.just([1]) | st.just([{}] * 129),
    "tool_choice": _BOOLEANS | _NUMBERS | _LISTS | _OBJECTS | st.just("maybe"),
    "parallel_tool_calls": _NO_BOOLEAN,
    "response_format": _NO_OBJECT
    | _OBJECTS
    | st.sampled_from([{"type": "yaml"}, {"type": "json_schema"}]),
    "structured_outputs": _NO_OBJECT | _OBJECTS | st.just({"json_object": False, "json": None}),
    "guided_json": _BOOLEANS | _NUMBERS | _LISTS | st.sampled_from(["", "{", "[]", "nope"]),
    "guided_regex": _NO_TEXT | st.just("") | st.just("a" * 4097),
    "guided_choice": _NO_LIST | st.sampled_from([[], [""], ["a"] * 257, ["a" * 1025], [1]]),
    "guided_grammar": _NO_TEXT | st.just("") | st.just("a" * 8193),
}
