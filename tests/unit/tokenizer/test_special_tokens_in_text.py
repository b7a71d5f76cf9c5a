"""Tokenize where control tokens count, and where a tokenizer puts something before every text."""

from dataclasses import replace
from typing import Any

import pytest
from hotline.v1 import tokenizer_pb2
from tokenizer_kit import Settings, Stub

from services.tokenizer import model as model_module
from services.tokenizer.model import Model, load_model
from services.tokenizer.model_folder import ModelFolder, load

TEXTS = [
    pytest.param("[gMASK]<sop><|user|>\nHi<|assistant|>\n", id="a whole prompt"),
    pytest.param("你好 <|user|", id="half of a control token"),
    pytest.param("no control token", id="none"),
]


@pytest.mark.parametrize("text", TEXTS)
async def test_control_tokens_become_their_ids_where_asked(
    stub: Stub, folder: ModelFolder, text: str
) -> None:
    request = tokenizer_pb2.TokenizeRequest(text=text, parse_special_tokens=True)
    ids = list((await stub.Tokenize(request, timeout=30)).token_ids)
    assert ids == folder.backend.encode(text, add_special_tokens=False).ids
    spelt = {control for spelling, control in folder.control.items() if spelling in text}
    assert spelt <= set(ids)


async def test_a_tokenizer_that_adds_nothing_adds_nothing(stub: Stub) -> None:
    request = tokenizer_pb2.TokenizeRequest(text="Hi")
    plain = await stub.Tokenize(request, timeout=30)
    request.add_special_tokens = True
    assert (await stub.Tokenize(request, timeout=30)).token_ids == plain.token_ids


@pytest.fixture(scope="module")
def beginning(tokenizer_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model whose tokenizer puts [gMASK]<sop> before every text and <eop> after it, and its folder."""
    from tokenizers.processors import TemplateProcessing

    settings = tokenizer_settings()
    folder = load(settings.model_path)
    control = folder.control
    folder.backend.post_processor = TemplateProcessing(
        single="[gMASK] <sop> $A <eop>",
        special_tokens=[(name, control[name]) for name in ("[gMASK]", "<sop>", "<eop>")],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_module, "load", lambda path: replace(folder))
        return load_model(settings), folder


@pytest.mark.parametrize("parse", [False, True], ids=["plain", "parsed"])
@pytest.mark.parametrize("text", ["", "a", "Hi <|user|>"], ids=["nothing", "a letter", "a text"])
def test_what_stands_before_every_text_is_added_and_what_stands_after_is_not(
    beginning: tuple[Model, ModelFolder], parse: bool, text: str
) -> None:
    model, folder = beginning
    assert model.plain is not None
    without = model.plain.encode(text, parse_special_tokens=parse)
    added = model.plain.encode(text, parse_special_tokens=parse, add_special_tokens=True)
    assert added == [folder.control["[gMASK]"], folder.control["<sop>"], *without]
    assert (folder.control["<|user|>"] in without) == (parse and "<|user|>" in text)
