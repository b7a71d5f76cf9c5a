"""A reader that hears nothing is told that the generation lives, and where it is."""

from timers import Timers

from services.gateway.events import Accepted, Heartbeat, Numbered, State, Text
from services.gateway.pulse import Pulse


class Source:
    def __init__(self) -> None:
        self.wakes = 0

    async def take(self) -> list[Numbered]:
        raise NotImplementedError

    def wake(self) -> None:
        self.wakes += 1


def pulse(source: Source, timers: Timers) -> Pulse:
    return Pulse(2.0, source, lambda: 3, timers.now, timers.later)


def test_silence_wakes_the_reader_once_in_each_interval():
    source, timers = Source(), Timers()
    pulse(source, timers)
    timers.advance(1.9)
    assert source.wakes == 0
    timers.advance(4.2)
    assert source.wakes == 3


def test_what_is_told_puts_the_heartbeat_off():
    source, timers = Source(), Timers()
    beats = pulse(source, timers)
    for _ in range(10):
        timers.advance(1.5)
        assert beats.beat([Numbered(1, Text(0, "x"))]) is None
    assert source.wakes == 0
    timers.advance(2.0)
    assert source.wakes == 1


def test_a_heartbeat_tells_place_phase_and_the_number_of_what_was_told():
    beats = pulse(Source(), Timers())
    assert beats.beat([]) == Numbered(0, Heartbeat(State.QUEUED, 3))
    beats.beat([Numbered(1, Accepted("g", "m", 3, 0))])
    assert beats.beat([]) == Numbered(1, Heartbeat(State.PREFILL))
    beats.beat([Numbered(2, Text(0, "x")), Numbered(7, Text(1, "y"))])
    assert beats.beat([]) == Numbered(7, Heartbeat(State.DECODING))


def test_a_closed_pulse_wakes_nobody():
    source, timers = Source(), Timers()
    pulse(source, timers).close()
    timers.advance(100)
    assert source.wakes == 0
    assert timers.waiting == 0
