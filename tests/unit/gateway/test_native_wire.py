"""Fields that only native clients have: each limit of the contract is held, by name."""

import pytest
from google.protobuf.json_format import ParseDict
from hotline.v1 import inference_pb2

from services.gateway import wire
from services.gateway.caller import Caller
from services.runtime.errors import InvalidArgumentError

HI = {"messages": [{"role": "ROLE_USER", "text": "Hi"}]}

REFUSED = [
    pytest.param({"disconnect": {}}, "disconnect", id="disconnect-empty"),
    pytest.param({"disconnect": {"cancel": False}}, "disconnect.cancel", id="cancel-false"),
    pytest.param({"disconnect": {"keepS": 0}}, "disconnect.keep_s", id="keep-0"),
    pytest.param({"disconnect": {"keepS": 601}}, "disconnect.keep_s", id="keep-601"),
    pytest.param({"sessionBusy": 77}, "session_busy", id="session-busy"),
    pytest.param({"heartbeatIntervalMs": 999}, "heartbeat_interval_ms", id="heartbeat-999"),
    pytest.param({"heartbeatIntervalMs": 60_001}, "heartbeat_interval_ms", id="heartbeat-60001"),
    pytest.param({"quality": "é" * 17}, "quality", id="quality-34-bytes"),
]
TAKEN = [
    pytest.param({"disconnect": {"cancel": True}}, id="cancel"),
    pytest.param({"disconnect": {"keepS": 600}}, id="keep-600"),
    pytest.param({"sessionBusy": "SESSION_BUSY_POLICY_WAIT"}, id="session-busy"),
    pytest.param({"heartbeatIntervalMs": 0}, id="heartbeat-0"),
    pytest.param({"heartbeatIntervalMs": 1_000}, id="heartbeat-1000"),
    pytest.param({"quality": "é" * 16}, id="quality-32-bytes"),
]


def made(fields: dict[str, object]) -> object:
    request = ParseDict(HI | fields, inference_pb2.GenerateRequest())
    return wire.generation_request(request, "m", Caller("o"), 1.0)


@pytest.mark.parametrize(("fields", "name"), REFUSED)
def test_a_value_that_the_contract_forbids_is_refused_by_name(fields, name):
    with pytest.raises(InvalidArgumentError) as refused:
        made(fields)
    assert refused.value.field == name
    assert refused.value.metadata["limit"] in refused.value.message


@pytest.mark.parametrize("fields", TAKEN)
def test_a_value_at_its_limit_is_taken(fields):
    assert made(fields)
