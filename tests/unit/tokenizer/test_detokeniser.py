from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kit import examples

from services.tokenizer.detokeniser import Detokeniser, StreamDecoder, TextDecoder
from services.tokenizer.model_folder import ModelFolder


def decode(decoder: TextDecoder, ids: list[int]) -> str:
    return "".join([*(decoder.push(token_id) for token_id in ids), decoder.flush()])


def encode(folder: ModelFolder, text: str) -> list[int]:
    ids: list[int] = folder.backend.encode(text, add_special_tokens=False).ids
    return ids


@given(st.data())
@examples(300)
def test_concatenated_text_equals_the_tokenizer_s_own_decoding_of_any_ids(
    folder: ModelFolder, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, folder.vocabulary_size - 1), max_size=40))
    decoder = Detokeniser(folder.backend, folder.special_ids).open()
    assert decode(decoder, ids) == folder.backend.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("红色按钮在屏幕的底部", id="chinese"),
        pytest.param("👨‍👩‍👧‍👦 family 🏳️‍🌈", id="zero-width-joiners"),
        pytest.param("𠮷野家 ไทย العربية", id="four-byte-and-other-scripts"),
        pytest.param("<think>a</think>", id="tags"),
    ],
)
def test_a_character_split_over_tokens_comes_whole(folder: ModelFolder, text: str) -> None:
    decoder = Detokeniser(folder.backend, folder.special_ids).open()
    pieces = [decoder.push(token_id) for token_id in encode(folder, text)]
    assert "".join(pieces) == text
    assert "�" not in "".join(pieces)
    assert decoder.flush() == ""


def test_ids_that_end_inside_a_character_give_one_replacement_at_the_flush(
    folder: ModelFolder,
) -> None:
    ids = encode(folder, "🦜")
    assert len(ids) >= 2
    decoder = Detokeniser(folder.backend, folder.special_ids).open()
    assert [decoder.push(token_id) for token_id in ids[:-1]] == [""] * (len(ids) - 1)
    assert decoder.flush() == "�"


def test_special_tokens_are_never_shown(folder: ModelFolder) -> None:
    decoder = Detokeniser(folder.backend, folder.special_ids).open()
    assert decode(decoder, sorted(folder.special_ids)) == ""


def test_ids_that_the_tokenizer_does_not_know_are_empty(folder: ModelFolder) -> None:
    assert Detokeniser(folder.backend, ()).open().push(10**6) == ""


def test_an_end_token_can_be_shown_as_it_is_spelt(folder: ModelFolder) -> None:
    detokeniser = Detokeniser(folder.backend, folder.special_ids)
    for decoder in (detokeniser.open(), StreamDecoder(folder.backend, folder.special_ids)):
        begun = decoder.push(encode(folder, "a")[0])
        assert begun + decoder.push_text("<|user|>") + decoder.flush() == "a<|user|>"


@pytest.fixture(scope="session")
def word_backend() -> Any:
    """A tokenizer that is not byte-level: words with a leading mark and byte fallback."""
    from tokenizers import Tokenizer, decoders, models

    words = {"▁hello": 0, "▁world": 1, "!": 2, "<0xE4>": 3, "<0xBD>": 4, "<0xA0>": 5}
    backend = Tokenizer(models.BPE(words, [], byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    return backend


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param([0, 1, 2], id="words"),
        pytest.param([0, 3, 4, 5, 2], id="a-character-of-three-bytes"),
        pytest.param([0, 3, 4], id="cut-inside-a-character"),
        pytest.param([], id="nothing"),
    ],
)
def test_other_tokenizers_are_decoded_by_their_own_stream(
    word_backend: Any, ids: list[int]
) -> None:
    decoder = Detokeniser(word_backend, ()).open()
    assert isinstance(decoder, StreamDecoder)
    assert decode(decoder, ids) == word_backend.decode(ids)


def test_a_byte_level_decoder_inside_a_sequence_with_others_is_not_taken_for_one(
    word_backend: Any,
) -> None:
    from tokenizers import Tokenizer, decoders

    backend = Tokenizer.from_str(word_backend.to_str())
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    assert isinstance(Detokeniser(backend, ()).open(), StreamDecoder)
