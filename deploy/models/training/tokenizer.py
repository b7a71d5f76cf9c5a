"""Trains the byte-level BPE tokenizer on what the model will read and say."""

import random
from collections.abc import Iterator
from typing import Any

from agent_prompts import agent_prompt
from dialogs import RANDOM_RUN, TASKS, Dialog, draw, pieces
from screen_dialogs import SCREEN_TASKS, screen_dialog
from screens import draw_screen
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from vocabulary import (
    CHAT_TEMPLATE,
    COLOURS,
    EOS_TOKENS,
    PLACES,
    SPECIAL_TOKENS,
    TAGS,
    X_TOKENS,
    Y_TOKENS,
)
from words import CHARACTERS

MAX_POSITIONS = 8192
# Words that must stay one token, because an image token is trained to resemble them.
_WHOLE = r"[红绿蓝黄紫橙]色|[左右][上下]角|[左右]侧|顶部|底部|中间|按钮|屏幕"
_COORDINATE = r"\[\d{1,3}(?=,)|(?<=,)\d{1,3}\]"
# GPT-2's split, but digit by digit; a piece that is a whole coordinate passes unsplit.
_WORDS = (
    r"\A\[\d{1,3}\z|\A\d{1,3}\]\z|, (?=\d)|'(?:[sdmt]|ll|ve|re)|\p{N}| ?\p{L}+"
    r"| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)


def _strings(dialog: Dialog) -> str:
    return "".join(piece.text for piece in pieces(dialog, think=True))


def _corpus(rng: random.Random) -> Iterator[str]:
    texts = [_strings(draw(rng, TASKS)) for _ in range(4000)]
    for _ in range(3000):
        texts.append(_strings(screen_dialog(rng, draw_screen(rng), SCREEN_TASKS)))
    texts += [agent_prompt(rng, 3400, english=i % 4 == 0) for i in range(160)]
    for text in texts:
        for token in [*SPECIAL_TOKENS, *TAGS]:
            text = text.replace(token, "\n")
        yield text.replace(RANDOM_RUN, "")
    for word in [*COLOURS, *PLACES, "按钮", "屏幕"]:
        yield from [word] * 400
    for english in COLOURS.values():
        yield from [" " + english] * 400
    for x, y in zip(X_TOKENS, Y_TOKENS, strict=True):
        yield from [f"{x},{y}"] * 400
    for character in CHARACTERS:  # a frequent character is one token, not three bytes
        yield from [character] * 12


def train_tokenizer(vocab_size: int, seed: int) -> PreTrainedTokenizerFast:
    """A tokenizer of `vocab_size` tokens, special ones included."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(f"{_COORDINATE}|{_WHOLE}"), "isolated"),
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS) - len(TAGS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=18,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(random.Random(seed + 1)), trainer)
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    )
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    make_fast: Any = PreTrainedTokenizerFast
    fast: PreTrainedTokenizerFast = make_fast(
        tokenizer_object=tokenizer,
        eos_token=EOS_TOKENS[0],
        pad_token=EOS_TOKENS[0],
        additional_special_tokens=SPECIAL_TOKENS[1:],
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_POSITIONS,
        padding_side="left",
    )
    fast.chat_template = CHAT_TEMPLATE
    for word in [*COLOURS, *PLACES, *(x + "," for x in X_TOKENS), *("," + y for y in Y_TOKENS)]:
        parts = fast(word, add_special_tokens=False)["input_ids"]
        if len(parts) != 1 + ("," in word):
            raise ValueError(f"{word!r} became {len(parts)} tokens, expected one")
    return fast
