"""Log-probabilities come back with the text of their tokens, each exactly once, with the tokens' bytes."""

from itertools import pairwise

import pytest
from hotline.v1 import generation_pb2
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kit import examples

from services.tokenizer.detokeniser import Detokeniser
from services.tokenizer.handles import QUICK_IDS, SLICE_IDS, Handles, Open, Tokens
from services.tokenizer.model_folder import ModelFolder
from services.tokenizer.output_text import OutputFormat, OutputOptions, OutputText, Piece

SPLIT = OutputOptions(split_reasoning=True)


def spelt(folder: ModelFolder, text: str) -> list[int]:
    """As many ids as may be: each character by itself, and some characters are several ids."""
    made = folder.backend.encode_batch(list(text), add_special_tokens=False)
    return [token_id for encoding in made for token_id in encoding.ids]


def entries(token_ids: list[int], top: int = 1) -> list[generation_pb2.PositionLogprobs]:
    """Each has its position as its log-probability, and the next ids as likeliest ones."""
    return [
        generation_pb2.PositionLogprobs(
            sampled=generation_pb2.TokenLogprob(token_id=token_id, logprob=-place),
            top=[generation_pb2.TokenLogprob(token_id=token_id + rank) for rank in range(top)],
        )
        for place, token_id in enumerate(token_ids)
    ]


def run(
    form: OutputFormat,
    token_ids: list[int],
    options: OutputOptions = OutputOptions(),  # noqa: B008
    size: int = 1,
) -> list[Piece]:
    """The pieces of some ids that come `size` at a time, and of their end."""
    text, given_logprobs, pieces = OutputText(form, options), entries(token_ids), []
    for at in range(0, len(token_ids), size):
        end = at + size
        pieces.append(text.push(token_ids[at:end], given_logprobs[at:end]))
        if pieces[-1].finished:
            return pieces
    return [*pieces, text.end()]


def bytes_of(pieces: list[Piece]) -> bytes:
    return b"".join(entry.sampled.token for piece in pieces for entry in piece.logprobs)


def places(pieces: list[Piece]) -> list[int]:
    return [-int(entry.sampled.logprob) for piece in pieces for entry in piece.logprobs]


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


@examples(150)
@given(text=st.text(max_size=30), size=st.integers(1, 9))
def test_the_bytes_of_all_tokens_are_the_text_however_it_was_cut(output_format, folder, text, size):
    ids = spelt(folder, text)
    pieces = run(output_format, ids, size=size)
    if not pieces[-1].end_tag:
        assert text_of(pieces).encode() == bytes_of(pieces)
        assert places(pieces) == list(range(len(ids)))


@examples(150)
@given(
    parts=st.lists(
        st.sampled_from(["<think>", "</think>", " ", "<", "a", "好", "🦜", "<answer>", "ENX", "END"]),
        max_size=12,
    ),
    size=st.integers(1, 9),
    split=st.booleans(),
)  # fmt: skip
def test_whatever_is_held_or_cut_the_tokens_come_in_order_each_once_and_stand_for_the_text(
    output_format, folder, parts, size, split
):
    ids = spelt(folder, "".join(parts))
    options = OutputOptions(stop=("END",), split_reasoning=split)
    pieces = run(output_format, ids, options, size)
    assert all(a < b for a, b in pairwise(places(pieces)))
    assert bytes_of(pieces) == text_of(pieces).encode()  # each id is one character or less here
    assert places(pieces) == places(run(output_format, ids, options))
    assert all(piece.text for piece in pieces if piece.logprobs)


def test_an_emoji_over_several_tokens_brings_them_all_when_it_is_whole(output_format, folder):
    ids = spelt(folder, "🦜")
    assert len(ids) > 1, "the test's premise"
    *parts, last, _ = run(output_format, ids)
    assert not any(piece.logprobs for piece in parts)
    assert (last.text, bytes_of([last]), places([last])) == (
        "🦜",
        "🦜".encode(),
        list(range(len(ids))),
    )


def test_an_end_inside_a_character_brings_its_true_bytes_with_u_fffd(output_format, folder):
    first, *_ = spelt(folder, "🦜")
    pieces = run(output_format, [*spelt(folder, "a"), first])
    assert text_of(pieces) == "a\ufffd"
    token = output_format.detokeniser.token_bytes(first)
    assert bytes_of(pieces) == b"a" + token
    assert token == "🦜".encode()[: len(token)]


def test_thought_and_tags_that_are_split_off_are_left_out(output_format, folder):
    ids = spelt(folder, "<think>no</think>\n<answer> yes")
    pieces = run(output_format, ids, SPLIT)
    assert text_of(pieces) == "yes"
    assert places(pieces) == [len(ids) - 3, len(ids) - 2, len(ids) - 1]
    whole = run(output_format, ids)
    assert places(whole) == list(range(len(ids))), "without the split all is text"


def test_whitespace_that_turned_out_to_begin_the_answer_brings_its_tokens(output_format, folder):
    ids = spelt(folder, "  <b>")
    pieces = run(output_format, ids, SPLIT)
    assert text_of(pieces) == "  <b>"
    assert places(pieces) == list(range(len(ids)))


def test_a_stop_string_takes_its_tokens_along_and_held_ones_come_where_it_did_not_match(
    output_format, folder
):
    ids = spelt(folder, "aSTbSTOPc")
    pieces = run(output_format, ids, OutputOptions(stop=("STOP",)))
    assert text_of(pieces) == "aSTb"
    assert bytes_of(pieces) == b"aSTb"
    assert [len(piece.logprobs) for piece in pieces][:4] == [1, 0, 0, 3]


def test_a_token_that_is_partly_a_stop_string_is_left_out(output_format, folder):
    backend = folder.backend
    token_id = next(
        token_id for token_id in range(400, 3000) if len(backend.decode([token_id])) > 3
    )
    spelling = backend.decode([token_id])
    pieces = run(output_format, [token_id], OutputOptions(stop=(spelling[2:],)))
    assert text_of(pieces) == spelling[:2]
    assert not places(pieces)


def test_end_tokens_have_no_entry_unless_they_are_shown(output_format, folder):
    end_id = min(output_format.end_ids)
    ids = [*spelt(folder, "a"), end_id, *spelt(folder, "b")]
    assert places(run(output_format, ids)) == [0]
    shown = run(output_format, ids, OutputOptions(ignore_eos=True))
    assert places(shown) == [0, 1, 2]
    assert bytes_of(shown) == text_of(shown).encode()


def test_control_tokens_have_no_text_and_no_entry(output_format, folder):
    control = folder.backend.token_to_id("<sop>")
    first, *rest = spelt(folder, "🦜")
    ids = [control, first, control, *rest, control]
    pieces = run(output_format, ids)
    assert text_of(pieces) == "🦜"
    assert places(pieces) == [1, *range(3, 3 + len(rest))]


def test_the_likeliest_ones_have_bytes_too(output_format, folder):
    ids = spelt(folder, "a")
    text = OutputText(output_format, OutputOptions())
    [entry] = text.push(ids, entries(ids, top=3)).logprobs
    table = output_format.detokeniser
    assert [one.token for one in entry.top] == [table.token_bytes(ids[0] + r) for r in range(3)]
    assert all(one.token for one in entry.top)


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        pytest.param(0, 2, "came after ids without", id="late"),
        pytest.param(2, 0, "0 logprobs came with 2", id="missing"),
        pytest.param(1, 1, "1 logprobs came with 2", id="too few"),
    ],
)
def test_they_come_for_all_ids_of_a_text_or_for_none(output_format, first, then, message):
    text = OutputText(output_format, OutputOptions())
    one = entries([5, 6])
    if first != 1:
        text.push([5, 6], one[:first])
    with pytest.raises(ValueError, match=message):
        text.push([5, 6], one[:then])


def test_a_backlog_that_is_worked_on_in_slices_keeps_each_with_its_id(output_format, folder):
    ids = spelt(folder, "好🦜a") * (2 * SLICE_IDS // QUICK_IDS)
    ids *= SLICE_IDS * 2 // len(ids) + 1
    handles = Handles(output_format, 4)
    told, inputs = list[Piece](), [(1, Open(OutputOptions())), (1, Tokens(ids, True, entries(ids)))]
    while inputs or handles.waiting_ids:
        outputs = handles.process(inputs)
        assert not any(output.error for output in outputs)
        told += [output.piece for output in outputs]
        inputs = []
    assert places(told) == list(range(len(ids)))
    assert bytes_of(told) == text_of(told).encode()


class SentencePieces:
    """What of a tokenizer that is not byte-level a spelling needs."""

    spellings = ("▁Hi", "<0xF0>", "there", "<|end|>")

    def to_str(self) -> str:
        return '{"decoder": {"type": "Metaspace"}}'

    def id_to_token(self, token_id: int) -> str | None:
        return self.spellings[token_id] if token_id < len(self.spellings) else None


def test_bytes_of_tokens_that_are_spelt_otherwise():
    detokeniser = Detokeniser(SentencePieces(), {3})
    found = [detokeniser.token_bytes(token_id) for token_id in range(5)]
    assert found == [b" Hi", b"\xf0", b"there", b"<|end|>", b""]
    assert [detokeniser.has_text(token_id) for token_id in range(5)] == [True] * 3 + [False] * 2
