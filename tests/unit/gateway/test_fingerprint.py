"""Two requests are the same if they ask for the same, whatever they say of their reader."""

from collections.abc import Callable

import pytest
from hotline.v1 import conversation_pb2, inference_pb2

from services.gateway.fingerprint import body_fingerprint, fingerprint

Request = inference_pb2.GenerateRequest


def request() -> Request:
    made = Request(generation_id="g", model="m", priority=0)
    made.messages.add(role=conversation_pb2.ROLE_USER, text="Hi")
    made.messages.add(role=conversation_pb2.ROLE_USER, text="Ho")
    made.sampling.temperature = 0.5
    made.render.template_variables.update({"a": 1, "b": {"c": True, "d": "x"}})
    return made


def changed(change: Callable[[Request], object]) -> bytes:
    made = request()
    change(made)
    return fingerprint(made)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: setattr(r, "generation_id", "other"),
        lambda r: setattr(r.disconnect, "keep_s", 5),
        lambda r: setattr(r, "heartbeat_interval_ms", 1000),
        lambda r: r.MergeFromString(b""),
    ],
    ids=["name", "disconnect", "heartbeat", "nothing"],
)
def test_what_is_said_of_the_reader_makes_no_other_request(change):
    assert changed(change) == fingerprint(request())


@pytest.mark.parametrize(
    "change",
    [
        lambda r: setattr(r.messages[1], "text", "Hx"),
        lambda r: r.messages.add(text="more"),
        lambda r: setattr(r.sampling, "temperature", 0.6),
        lambda r: setattr(r, "priority", 1),
        lambda r: r.ClearField("priority"),
        lambda r: setattr(r, "session_id", "s"),
        lambda r: setattr(r.render, "enable_thinking", False),
        lambda r: setattr(r.prompt, "text", "raw"),
        lambda r: r.render.template_variables.update({"b": 2}),
    ],
)
def test_everything_else_does(change):
    assert changed(change) != fingerprint(request())


def test_neighbours_do_not_run_together():
    one, other = Request(), Request()
    for made, parts in ((one, ("ab", "c")), (other, ("a", "bc"))):
        for text in parts:
            made.messages.add(text=text)
    assert fingerprint(one) != fingerprint(other)


def test_a_map_s_order_does_not_count():
    one, other = request(), request()
    one.render.template_variables.Clear()
    one.render.template_variables.update({"b": {"d": "x", "c": True}, "a": 1})
    assert fingerprint(one) == fingerprint(other)


def test_a_body_counts_byte_for_byte_and_by_its_route():
    assert body_fingerprint("/a", b"{}") == body_fingerprint("/a", b"{}")
    assert body_fingerprint("/a", b"{}") != body_fingerprint("/a", b"{} ")
    assert body_fingerprint("/a", b"{}") != body_fingerprint("/b", b"{}")
