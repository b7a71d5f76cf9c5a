"""vLLM's outputs as steps; the outputs are stand-ins with vLLM's attributes."""

from types import SimpleNamespace
from typing import Any

import pytest

from services.runtime.errors import InternalError
from services.worker.engine import Finished, Reason, Sampling, Started, Step, Tokens
from services.worker.vllm_arguments import engine_arguments
from services.worker.vllm_inputs import multimodal_hash
from services.worker.vllm_outputs import OutputReader

ENDS = (90, 91)


def output(*completions: Any, cached: int | None = 0) -> Any:
    return SimpleNamespace(num_cached_tokens=cached, outputs=list(completions))


def completion(ids: list[int], reason: str | None = None, **fields: Any) -> Any:
    given = {"index": 0, "stop_reason": None, "logprobs": None, **fields}
    return SimpleNamespace(token_ids=ids, finish_reason=reason, **given)


def read(outputs: list[Any], copies: int = 1, **sampling: Any) -> list[Step]:
    reader = OutputReader(Sampling(**{"max_tokens": 9, **sampling}), ENDS, copies)
    return [step for one in outputs for step in reader.read(one, 3)]


def test_positions_go_on_from_output_to_output():
    steps = read([output(completion([1]), cached=2), output(completion([2, 3], "length"))])
    assert steps == [
        Started(3, 2),
        Tokens(0, 0, [1], []),
        Tokens(0, 1, [2, 3], []),
        Finished(0, Reason.LENGTH, 3),
    ]


@pytest.mark.parametrize(
    ("fields", "sampling", "reason", "stop"),
    [
        pytest.param({}, {}, Reason.STOP, 90, id="first end token"),
        pytest.param({"stop_reason": 91, "ids": [91]}, {}, Reason.STOP, 91, id="other end token"),
        pytest.param(
            {"stop_reason": 7, "ids": [7]},
            {"stop_token_ids": (7,)},
            Reason.STOP_SEQUENCE,
            7,
            id="the request's",
        ),
        pytest.param(
            {"stop_reason": 91, "ids": [91]},
            {"stop_token_ids": (91,)},
            Reason.STOP,
            91,
            id="the request's, an end token too",
        ),
        pytest.param(
            {"stop_reason": 91, "ids": [91]},
            {"stop_token_ids": (91,), "ignore_eos": True},
            Reason.STOP_SEQUENCE,
            91,
            id="the request's only, with ignore_eos",
        ),
    ],
)
def test_a_stop_is_told_apart_by_whose_token_it_was(
    fields: dict[str, Any], sampling: dict[str, Any], reason: Reason, stop: int
):
    ids = fields.pop("ids", [90])
    steps = read([output(completion(ids, "stop", **fields))], **sampling)
    assert steps[-1] == Finished(0, reason, 1, stop)


def test_an_abort_from_outside_is_cancelled():
    assert read([output(completion([], "abort"))])[-1] == Finished(0, Reason.CANCELLED, 0)


def test_a_failed_request_is_an_error_and_no_answer():
    with pytest.raises(InternalError):
        read([output(completion([], "error"))])


def test_choices_count_by_themselves():
    steps = read([output(completion([1], index=1)), output(completion([2], index=0))], n=2)
    assert steps[1:] == [Tokens(1, 0, [1], []), Tokens(0, 0, [2], [])]


def test_one_greedy_choice_stands_for_all():
    steps = read([output(completion([1], "length"))], copies=2, n=2)
    assert [step for step in steps if isinstance(step, Finished)] == [
        Finished(0, Reason.LENGTH, 1),
        Finished(1, Reason.LENGTH, 1),
    ]


def test_logprobs_are_the_sampled_tokens_and_the_best_ones_in_order():
    entries = {
        7: SimpleNamespace(logprob=-3.0, rank=9),
        1: SimpleNamespace(logprob=-0.1, rank=1),
        2: SimpleNamespace(logprob=-2.0, rank=2),
    }
    (_, tokens) = read([output(completion([7], logprobs=[entries]))], logprobs=2)
    assert isinstance(tokens, Tokens)
    (position,) = tokens.logprobs
    assert position.sampled == (7, -3.0)
    assert position.top == [(1, -0.1), (2, -2.0)]


def test_an_image_has_another_name_in_the_engine_under_each_salt():
    names = {
        multimodal_hash(salt, digest)
        for salt in ("", "a", "b")
        for digest in (b"x" * 32, b"y" * 32)
    }
    assert len(names) == 6


def test_salt_and_digest_cannot_run_into_each_other():
    assert multimodal_hash("ab", b"c" * 32) != multimodal_hash("a", b"b" + b"c" * 31)


def test_engine_arguments_carry_the_settings_and_leave_out_what_is_not_set():
    from worker_calls import MODEL_PATH

    from services.worker.settings import WorkerSettings

    settings = WorkerSettings(model_path=MODEL_PATH, max_num_seqs=3, block_size=None)
    arguments = engine_arguments(settings, has_images=True)
    assert arguments["max_num_seqs"] == 3
    assert "block_size" not in arguments
    assert arguments["limit_mm_per_prompt"] == {"image": 4, "video": 0}
    assert "limit_mm_per_prompt" not in engine_arguments(settings, has_images=False)
