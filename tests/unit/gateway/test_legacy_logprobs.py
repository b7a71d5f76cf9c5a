"""Log-probabilities of text completions: four lists of one length, offsets in characters, only finite numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pytest
from openai.types.completion_choice import Logprobs

from services.gateway.legacy_logprobs import LogprobWriter, joined


@dataclass(frozen=True)
class One:
    token: bytes
    logprob: float = -0.5
    token_id: int = 0


@dataclass(frozen=True)
class Place:
    sampled: One
    top: Sequence[One] = ()


def places(*tokens: bytes) -> list[Place]:
    return [Place(One(token)) for token in tokens]


def test_each_token_has_its_text_its_probability_and_its_place():
    made = LogprobWriter().piece(
        [
            Place(One(b"Hi", -0.25), [One(b"Hi", -0.25), One(b"Ho", -2.0)]),
            Place(One(b" you", -3.0), [One(b" me", -0.1), One(b" us", -1.0)]),
        ]
    )
    assert made.tokens == ["Hi", " you"]
    assert made.token_logprobs == [-0.25, -3.0]
    assert made.text_offset == [0, 2]
    assert made.top_logprobs == [
        {"Hi": -0.25, "Ho": -2.0},
        {" me": -0.1, " us": -1.0, " you": -3.0},
    ]


def test_where_none_of_the_likeliest_is_asked_for_the_sampled_one_still_stands_there():
    [top] = LogprobWriter().piece(places(b"Hi")).top_logprobs
    assert top == {"Hi": -0.5}


def test_offsets_count_characters_and_go_on_from_piece_to_piece():
    writer = LogprobWriter()
    first = writer.piece(places("世界".encode(), b"!"))
    second = writer.piece(places(b" ok", b"."))
    assert first.text_offset == [0, 2]
    assert second.text_offset == [3, 6]


def test_a_character_over_several_tokens_counts_once_it_is_whole():
    emoji = "👋".encode()
    made = LogprobWriter().piece(places(b"a", emoji[:2], emoji[2:], b"b"))
    assert made.tokens == ["a", "bytes:\\xf0\\x9f", "bytes:\\x91\\x8b", "b"]
    assert made.text_offset == [0, 1, 1, 2]


@pytest.mark.parametrize("logprob", [-math.inf, -1e30, math.nan])
def test_what_json_cannot_hold_is_a_very_small_number(logprob):
    made = LogprobWriter().piece([Place(One(b"x", logprob))])
    assert made.token_logprobs == [-9999.0]
    assert msgspec.json.decode(msgspec.json.encode(made))["top_logprobs"] == [{"x": -9999.0}]


def test_pieces_add_up_to_the_whole_in_the_openai_package_s_own_type():
    tokens = places(b"a", b"b", b"c")
    writer, whole = LogprobWriter(), LogprobWriter().piece(tokens)
    together = joined([writer.piece(tokens[:1]), writer.piece(tokens[1:])])
    assert together == whole
    body = msgspec.json.decode(msgspec.json.encode(together))
    assert Logprobs.model_validate(body, strict=True).text_offset == [0, 1, 2]
