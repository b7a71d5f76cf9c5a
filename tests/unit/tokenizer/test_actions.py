import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kit import examples

from services.tokenizer.actions import MAX_CHARACTERS, Action, parse_action


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        pytest.param(
            'do(action="Tap", element=[500,750])', Action("Tap", {"element": [500, 750]}), id="tap"
        ),
        pytest.param(
            'do(action="Swipe", start=[1,2], end=[3,4])',
            Action("Swipe", {"start": [1, 2], "end": [3, 4]}),
            id="swipe",
        ),
        pytest.param(
            'do(action="Long Press", element=[1, 2])',
            Action("Long Press", {"element": [1, 2]}),
            id="name-with-a-space",
        ),
        pytest.param("do(action='Back')", Action("Back", {}), id="no-arguments"),
        pytest.param(
            'do(action="Wait", duration="2 seconds")',
            Action("Wait", {"duration": "2 seconds"}),
            id="string-argument",
        ),
        pytest.param('do(action="Wait", s=-1.5)', Action("Wait", {"s": -1.5}), id="negative"),
        pytest.param(
            'finish(message="好的\n完成")',
            Action("finish", {"message": "好的\n完成"}),
            id="line-break",
        ),
        pytest.param(
            'do(action="Type", text="a \\"b\\"")', Action("Type", {"text": 'a "b"'}), id="escapes"
        ),
        pytest.param(' finish(message="ok")\n', Action("finish", {"message": "ok"}), id="space"),
        pytest.param("finish()", Action("finish", {}), id="finish-without-message"),
    ],
)
def test_an_answer_that_is_an_action_is_read(answer: str, action: Action) -> None:
    assert parse_action(answer) == action


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("", id="empty"),
        pytest.param("你好", id="text"),
        pytest.param('do(action="Tap", element=[500,750]', id="cut-short"),
        pytest.param('do(action="Tap") and more', id="trailing-text"),
        pytest.param('I will do(action="Tap")', id="leading-text"),
        pytest.param("do(element=[1,2])", id="no-action"),
        pytest.param("do(action=3)", id="action-is-no-string"),
        pytest.param('do(action="")', id="empty-action"),
        pytest.param('do("Tap")', id="positional"),
        pytest.param('do(action="Tap", element=__import__("os"))', id="call-inside"),
        pytest.param('do(action="Tap", element=x)', id="name-inside"),
        pytest.param('do(action="Tap", **{"a": 1})', id="unpacked"),
        pytest.param('do(action="Tap", element=[1, [2]])', id="nested-list"),
        pytest.param('do(action="Tap", element=["a"])', id="list-of-strings"),
        pytest.param('do(action="Tap", element={})', id="dictionary"),
        pytest.param('do(action="Tap", element=True)', id="boolean"),
        pytest.param('do(action="Tap", element=1e999)', id="infinite"),
        pytest.param('do(action="Tap", element=9007199254740993)', id="inexact-on-the-wire"),
        pytest.param(f'do(action="Tap", element={"9" * 5000})', id="too-many-digits"),
        pytest.param('do(action="Tap", text="\\ud800")', id="lone-surrogate"),
        pytest.param('do(action="Tap", element=' + "[" * 300 + "]" * 300 + ")", id="deep"),
        pytest.param(f'finish(message="{"a" * MAX_CHARACTERS}")', id="too-long"),
        pytest.param('do(action="a\x00b")', id="null-character"),
        pytest.param('do(action="Tap", a=1, a=2)', id="twice-the-same-name"),
        pytest.param("do.it(action='Tap')", id="attribute"),
    ],
)
def test_anything_else_is_no_action(answer: str) -> None:
    assert parse_action(answer) is None


@given(st.sampled_from(["do(", "finish("]), st.text(max_size=60), st.sampled_from(["", ")"]))
@examples(100)
def test_no_answer_makes_the_parser_fail(head: str, middle: str, end: str) -> None:
    parse_action(head + middle + end)
