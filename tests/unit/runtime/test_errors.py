"""What an error's message repeats of a request."""

from services.runtime.errors import VALUE_LENGTH, InvalidArgumentError


def test_a_long_value_is_cut():
    error = InvalidArgumentError("stop", "x" * 10_000, "short")
    assert len(error.metadata["value"]) == VALUE_LENGTH + 1


def test_a_value_too_deep_for_repr_is_no_fault_of_ours():
    value: list[object] = []
    for _ in range(5_000):
        value = [value]
    error = InvalidArgumentError("tools", value, "flat")
    assert error.message == "tools: <deeply nested> is not allowed; must be flat."
