"""One table for every failure: total over the contract, over the classes, and over the docs."""

from pathlib import Path

import grpc
import pytest
from hotline.v1 import error_pb2

from services.runtime.error_table import TABLE, Reason
from services.runtime.errors import ServiceError, error_class

ROOT = Path(__file__).resolve().parents[2]


def test_the_reasons_are_those_of_the_contract():
    names = {
        name.removeprefix("ERROR_REASON_")
        for name in error_pb2.ErrorReason.DESCRIPTOR.values_by_name
    }
    assert names - {"UNSPECIFIED"} == {reason.value for reason in Reason}


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_one_class_and_a_row_that_makes_sense(reason):
    classes = [cls for cls in ServiceError.__subclasses__() if cls.reason is reason]
    assert classes == [error_class(reason)]
    row = TABLE[reason]
    assert row.grpc_code in grpc.StatusCode.__members__
    assert 400 <= row.http_status <= 599
    assert row.openai_type
    assert row.openai_code


@pytest.mark.parametrize("reason", list(Reason))
def test_what_is_retryable_is_never_a_400(reason):
    row = TABLE[reason]
    assert not (row.retryable and row.http_status == 400)


def test_the_docs_show_the_same_table():
    lines = (ROOT / "docs" / "errors.md").read_text().splitlines()
    shown = [line for line in lines if line.startswith("| `")]
    wanted = [
        f"| `{reason.value}` | {row.grpc_code} | {row.http_status} | {row.openai_type} "
        f"| {row.openai_code} | {'yes' if row.retryable else 'no'} |"
        for reason, row in TABLE.items()
    ]
    assert shown == wanted
