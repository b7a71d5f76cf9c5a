import pytest

from services.tokenizer.handles import Act, Close, Handles, Open, Output, Tokens
from services.tokenizer.model_folder import ModelFolder
from services.tokenizer.output_text import OutputFormat, OutputOptions

OPEN = Open(OutputOptions())


@pytest.fixture
def handles(output_format: OutputFormat) -> Handles:
    return Handles(output_format, capacity=3)


def tokens(folder: ModelFolder, text: str, last: bool = False) -> Tokens:
    return Tokens(folder.backend.encode(text, add_special_tokens=False).ids, last)


def told(outputs: list[Output]) -> list[tuple[int, str, bool]]:
    return [(output.handle, output.piece.text, output.piece.finished) for output in outputs]


def test_texts_of_many_handles_are_told_in_one_message(
    handles: Handles, folder: ModelFolder
) -> None:
    first: list[tuple[int, Act]] = [(1, OPEN), (2, OPEN)]
    outputs = handles.process([*first, (2, tokens(folder, "b")), (1, tokens(folder, "a", True))])
    assert told(outputs) == [(2, "b", False), (1, "a", True)]


def test_a_handle_has_one_output_in_a_message_with_all_its_text(
    handles: Handles, folder: ModelFolder
) -> None:
    acts: list[Act] = [OPEN, tokens(folder, "ab"), tokens(folder, "cd"), tokens(folder, "e", True)]
    outputs = handles.process([(7, act) for act in acts])
    assert told(outputs) == [(7, "abcde", True)]
    assert outputs[0].piece.consumed_tokens == sum(
        len(act.token_ids) for act in acts if isinstance(act, Tokens)
    )


def test_nothing_is_told_where_nothing_is_ready(handles: Handles, folder: ModelFolder) -> None:
    half_a_character = Tokens(tokens(folder, "🦜").token_ids[:1])
    acts: list[Act] = [OPEN, Tokens([]), half_a_character]
    assert handles.process([(1, act) for act in acts]) == []
    assert handles.process([]) == []


def test_a_text_that_ended_by_itself_frees_its_handle_and_ignores_late_ids(
    handles: Handles, folder: ModelFolder
) -> None:
    assert told(handles.process([(1, OPEN), (1, tokens(folder, "a</answer>"))])) == [(1, "a", True)]
    assert len(handles) == 0
    assert handles.process([(1, tokens(folder, "late")), (1, tokens(folder, "er", True))]) == []
    assert told(handles.process([(1, OPEN), (1, tokens(folder, "new"))])) == [(1, "new", False)]


def test_ids_after_the_end_in_the_same_message_do_not_change_its_output(
    handles: Handles, folder: ModelFolder
) -> None:
    acts: list[Act] = [OPEN, tokens(folder, "a</answer>"), tokens(folder, "late")]
    assert told(handles.process([(1, act) for act in acts])) == [(1, "a", True)]


def test_close_forgets_the_handle_and_is_not_answered(
    handles: Handles, folder: ModelFolder
) -> None:
    assert handles.process([(1, OPEN), (1, tokens(folder, "a")), (1, Close())]) == []
    assert len(handles) == 0
    assert handles.process([(9, Close())]) == []
    assert handles.process([(1, tokens(folder, "a"))])[0].error == "no such handle is open"


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        pytest.param(None, "no act", id="nothing"),
        pytest.param(Tokens([10**6]), "not below the vocabulary's size", id="unknown-id"),
        pytest.param(OPEN, "open already", id="opened-twice"),
    ],
)
def test_one_bad_handle_is_told_and_forgotten_and_hurts_no_other(
    handles: Handles, folder: ModelFolder, act: Act, problem: str
) -> None:
    handles.process([(1, OPEN), (2, OPEN)])
    outputs = handles.process(
        [(2, tokens(folder, "x")), (1, act), (2, tokens(folder, "y")), (1, tokens(folder, "late"))]
    )
    assert [(output.handle, problem in output.error) for output in outputs] == [
        (2, False),
        (1, True),
    ]
    assert outputs[0].piece.text == "xy"
    assert len(handles) == 1
    assert told(handles.process([(2, tokens(folder, "z", last=True))])) == [(2, "z", True)]


@pytest.mark.parametrize(
    ("stop", "problem"),
    [
        pytest.param(("x",) * 17, "17 stop strings are more than 16", id="too-many"),
        pytest.param(("",), "1 to 256 bytes", id="empty"),
        pytest.param(("好" * 86,), "1 to 256 bytes", id="too-long"),
    ],
)
def test_stop_strings_beyond_the_contract_are_refused(
    handles: Handles, stop: tuple[str, ...], problem: str
) -> None:
    outputs = handles.process([(1, Open(OutputOptions(stop=stop)))])
    assert problem in outputs[0].error
    assert len(handles) == 0


def test_more_handles_than_the_limit_are_refused(handles: Handles) -> None:
    outputs = handles.process([(number, OPEN) for number in range(4)])
    assert [(output.handle, output.error) for output in outputs] == [
        (3, "3 handles are open, which is the limit")
    ]


def test_a_handle_opened_again_in_the_message_of_its_end_is_an_error(
    handles: Handles, folder: ModelFolder
) -> None:
    outputs = handles.process([(1, OPEN), (1, tokens(folder, "a", True)), (1, OPEN)])
    assert "opened again" in outputs[0].error
    assert len(handles) == 0


def test_state_can_be_rebuilt_from_the_ids_in_one_message(
    handles: Handles, folder: ModelFolder
) -> None:
    acts: list[Act] = [OPEN, tokens(folder, "<think>T</think>\n<answer>do(")]
    step_by_step = handles.process([(1, act) for act in acts])[0].piece
    token_ids = tokens(folder, "<think>T</think>\n<answer>do(").token_ids
    one_by_one = Handles(handles._form, capacity=1)
    one_by_one.process([(1, OPEN)])
    texts = [
        output.piece.text
        for token_id in token_ids
        for output in one_by_one.process([(1, Tokens([token_id]))])
    ]
    assert "".join(texts) == step_by_step.text
