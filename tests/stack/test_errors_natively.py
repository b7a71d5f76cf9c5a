"""Every reason of the error table as a native client reads it, through a real Envoy: code, ErrorInfo, RetryInfo, or event."""

from typing import Any

import grpc
import pytest
from failing_stack import authorization, still_answers
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from hotline.v1 import error_pb2, inference_pb2, inference_pb2_grpc
from provoked_errors import FAULTS, INTERNALS, PROVOKED, WAITING_HELPS, failing_stacks, fault
from sim_stack import LIMIT_S, hello

from services.runtime.error_table import TABLE, Reason
from services.runtime.status import DETAILS_KEY

FIELDS = {
    Reason.INVALID_ARGUMENT: "sampling.temperature",
    Reason.INVALID_MEDIA: "messages[0].content[0]",
}
"""Fields of the request at fault."""


@pytest.fixture(scope="module")
async def stacks(tmp_path_factory):
    async with failing_stacks(lambda: tmp_path_factory.mktemp("edge")) as running:
        yield running


@pytest.mark.parametrize("reason", list(PROVOKED))
async def test_a_native_client_reads_code_reason_and_delay(stacks, reason):
    async with PROVOKED[reason](stacks) as failing:
        fields = {**failing.native}
        sampling = {"max_tokens": 3, **fields.pop("sampling", {})}
        request = inference_pb2.GenerateRequest(
            **({"messages": hello().messages} | fields), sampling=sampling
        )
        metadata = tuple(authorization(failing).items())
        # A gRPC channel of its own: 21 MiB are above what a client receives, not what it sends.
        async with aio.insecure_channel(failing.stack.address) as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            call = stub.Generate(request, timeout=LIMIT_S, metadata=metadata)
            accepted, told = await outcome(call)
    row = TABLE[reason]
    if accepted:  # after acceptance a failure is an event
        assert told.reason == error_pb2.ErrorReason.Value(f"ERROR_REASON_{reason.value}")
        assert told.retryable == row.retryable
        assert told.HasField("retry_delay") == (reason in WAITING_HELPS)
        assert not INTERNALS.search(told.message)
    else:
        code, message, info, retry = told
        assert code.name == row.grpc_code
        assert (info.domain, info.reason) == ("hotline.v1", reason.value)
        assert (retry is not None) == (reason in WAITING_HELPS)
        assert info.metadata["field"].startswith(FIELDS.get(reason, ""))
        assert not INTERNALS.search(message)
    await still_answers(failing)


async def outcome(call: "aio.UnaryStreamCall") -> tuple[bool, Any]:
    """Whether the failure came after acceptance; the failed event, or code, message, ErrorInfo and RetryInfo."""
    last, error = None, None
    try:
        async for event in call:
            last = event
    except aio.AioRpcError as raised:
        error = raised
    if error is not None:
        [packed] = [v for k, v in error.trailing_metadata() or () if k == DETAILS_KEY]
        status = status_pb2.Status.FromString(packed)
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        assert status.details[0].Unpack(info)
        has_delay = len(status.details) > 1 and status.details[1].Unpack(retry)
        assert status.code == error.code().value[0]
        return False, (error.code(), error.details(), info, retry if has_delay else None)
    assert last is not None
    assert last.HasField("failed"), last
    return True, last.failed


async def test_a_conflict_is_native_only(stacks):
    stack = stacks.usual
    metadata = tuple(stack.headers().items())
    first = stack.behind.inference.Generate(
        hello(4000, generation_id="mine"), timeout=LIMIT_S, metadata=metadata
    )
    await first.read()
    again = stack.behind.inference.Generate(
        hello(1, generation_id="mine"), timeout=LIMIT_S, metadata=metadata
    )
    accepted, told = await outcome(again)
    first.cancel()
    assert not accepted
    code, _, info, retry = told
    assert code is grpc.StatusCode.ALREADY_EXISTS
    assert (info.reason, info.metadata["field"], retry) == (
        "GENERATION_CONFLICT",
        "generation_id",
        None,
    )


@pytest.mark.parametrize("where", FAULTS)
async def test_a_fault_of_ours_wherever_it_is_tells_a_native_client_nothing_of_itself(
    stacks, where
):
    async with fault(stacks, where) as failing, aio.insecure_channel(failing.stack.address) as edge:
        metadata = tuple(authorization(failing).items())
        call = inference_pb2_grpc.InferenceServiceStub(edge).Generate(
            hello(3), timeout=LIMIT_S, metadata=metadata
        )
        accepted, (code, message, info, retry) = await outcome(call)
    assert not accepted
    assert code is grpc.StatusCode.INTERNAL
    assert (info.reason, dict(info.metadata), retry) == ("INTERNAL", {}, None)
    assert not INTERNALS.search(message)
    await still_answers(failing)
