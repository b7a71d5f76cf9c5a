"""When a stream hears of the load: first, then on change, at most ten times a second, also while it is silent."""

import asyncio

from services.worker.engine import Load
from services.worker.load_report import INTERVAL_S, LoadReport, LoadReports

IDLE, BUSY = Load(0, 0, 0.0), Load(1, 0, 0.5)


class Scene:
    """An engine's load and a clock, both set by hand."""

    def __init__(self) -> None:
        self.load, self.now_s = IDLE, 100.0

    def report(self) -> LoadReport:
        return LoadReport(lambda: self.load, lambda: self.now_s, lambda: None)


def test_the_first_message_tells_it_and_the_next_only_a_change():
    scene = Scene()
    report = scene.report()
    assert report.take() == IDLE
    scene.now_s += 1
    assert report.take() is None
    scene.load = BUSY
    assert report.take() == BUSY


def test_a_change_waits_for_the_interval():
    scene = Scene()
    report = scene.report()
    report.take()
    scene.load = BUSY
    scene.now_s += INTERVAL_S / 2
    assert report.take() is None
    scene.now_s += INTERVAL_S
    assert report.take() == BUSY


async def test_a_silent_stream_is_woken_once_for_many_changes():
    wakes = []
    reports = LoadReports(lambda: IDLE, lambda: 0.0)
    report = reports.open(lambda: wakes.append(1))
    for _ in range(5):
        reports.changed()
    await asyncio.sleep(INTERVAL_S * 2)
    assert wakes == [1]
    reports.changed()
    reports.forget(report)
    await asyncio.sleep(INTERVAL_S * 2)
    assert wakes == [1]
