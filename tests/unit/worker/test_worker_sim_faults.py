"""Faults of the simulator: planned by its settings, or by a test; never by a request."""

import asyncio
from contextlib import aclosing

import pytest
from worker_calls import MODEL_PATH
from worker_simulator import (
    LIMIT_S,
    Time,
    gaps,
    ids_of,
    job,
    rest,
    run,
    run_timed,
    simulator,
    trace,
)

from services.runtime.errors import EngineDeadError
from services.runtime.settings import explain
from services.worker.engine import Started
from services.worker.model import read_model
from services.worker.settings import WorkerSettings
from services.worker.sim_build import create_simulator


async def test_a_killed_simulator_fails_what_runs_and_what_comes():
    engine = await simulator(Time())
    async with aclosing(engine.generate(job())) as steps:
        await anext(steps)
        engine.kill()
        with pytest.raises(EngineDeadError):
            await rest(steps)
    with pytest.raises(EngineDeadError):
        await run(engine, job())
    await engine.died()


async def test_after_close_and_start_it_lives_again_with_the_same_tokens_and_an_empty_cache():
    engine = await simulator(Time())
    before = await run(engine, job(ids=20))
    engine.kill()
    await engine.close()
    await engine.start()
    died = asyncio.ensure_future(engine.died())
    assert await run(engine, job(ids=20)) == before
    assert not died.done()
    died.cancel()


async def test_close_may_be_called_twice_and_before_any_start():
    engine = await simulator(Time())
    await engine.close()
    await engine.close()


async def test_it_dies_after_so_many_tokens():
    engine = await simulator(Time(), {"die_after_tokens": 5})
    with pytest.raises(EngineDeadError):
        await run(engine, job(max_tokens=20, ignore_eos=True))
    async with asyncio.timeout(LIMIT_S):
        await engine.died()


async def test_it_dies_after_so_long_also_when_nothing_runs():
    time = Time()
    engine = await simulator(time, {"die_after_s": 30.0})
    async with asyncio.timeout(LIMIT_S):
        await engine.died()
    assert time.now == 30.0


async def test_only_the_first_engines_have_the_faults():
    engine = await simulator(Time(), {"die_after_tokens": 5, "engine_count": 1})
    with pytest.raises(EngineDeadError):
        await run(engine, job(max_tokens=20, ignore_eos=True))
    await engine.close()
    await engine.start()
    assert ids_of(await run(engine, job(max_tokens=20, ignore_eos=True))) == trace("g", 20)


async def test_the_first_starts_fail_as_planned():
    engine = create_simulator(
        WorkerSettings(engine="sim", model_path=MODEL_PATH, sim_fault={"failing_starts": 2}),
        read_model(MODEL_PATH, {}),
        lambda: 0.0,
    )
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await engine.start()
    await engine.start()
    await engine.close()


async def test_steps_that_stall_go_on_after_the_stall_and_do_not_make_up_for_it():
    time = Time()
    engine = await simulator(time, {"stall_after_tokens": 3, "stall_s": 10.0})
    steps = await run_timed(engine, job(ids=1, max_tokens=6, ignore_eos=True), time)
    assert max(gaps(steps)) >= 10.0
    assert time.now == pytest.approx(0.01 + 6 * 0.11 + 10.0, abs=0.12)
    assert ids_of([step for _, step in steps]) == trace("g", 6)


async def test_a_stall_without_end_lasts_until_the_engine_is_closed():
    engine = await simulator(Time())
    async with aclosing(engine.generate(job(max_tokens=50, ignore_eos=True))) as steps:
        assert isinstance(await anext(steps), Started)
        engine.stall()
        reading = asyncio.ensure_future(rest(steps))
        for _ in range(200):
            await asyncio.sleep(0)
        assert not reading.done()
        stopped_s = engine.last_step_s
        for _ in range(200):
            await asyncio.sleep(0)
        assert engine.last_step_s == stopped_s
        await engine.close()
        with pytest.raises(EngineDeadError):
            await reading


async def test_a_slow_engine_takes_so_many_times_its_time():
    time = Time()
    await run(await simulator(time, {"slow_factor": 3.0}), job(ids=10, max_tokens=4))
    assert time.now == pytest.approx(3 * (4 * 0.11 + 10 / 100))


async def test_a_fault_of_the_simulators_own_ends_it_loudly_instead_of_letting_readers_wait(
    monkeypatch: pytest.MonkeyPatch,
):
    engine = await simulator(Time())

    def broken(work: object) -> list[object]:
        raise ZeroDivisionError

    monkeypatch.setattr(engine._scheduler, "finish", broken)
    with pytest.raises(EngineDeadError):
        await run(engine, job())
    async with asyncio.timeout(LIMIT_S):
        await engine.died()


def test_no_field_of_a_request_reaches_a_fault():
    """Faults have names in the settings and methods on the object; the contract has no word for them."""
    from hotline.v1 import sampling_pb2, worker_pb2

    from services.worker.sim_faults import SimFaults

    names = {
        field.name
        for message in (worker_pb2.WorkerGenerateRequest, sampling_pb2.SamplingParameters)
        for field in message.DESCRIPTOR.fields
    }
    assert not names & set(SimFaults.model_fields)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("SIM_FAULT__DIE_AFTER_TOKEN", "5", id="misspelt fault"),
        pytest.param("SIM_FAULT__SLOW_FACTOR", "0", id="no time at all"),
        pytest.param("SIM_PROFILE", "h100", id="unknown profile"),
        pytest.param("SIM_STEP_MS", "-1", id="negative step"),
    ],
)
def test_a_bad_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    monkeypatch.setenv("HOTLINE_WORKER_MODEL_PATH", str(MODEL_PATH))
    monkeypatch.setenv(f"HOTLINE_WORKER_{name}", value)
    with pytest.raises(ValueError, match=r".") as caught:
        WorkerSettings.read()
    assert f"HOTLINE_WORKER_{name}" in explain(WorkerSettings, caught.value)


def test_faults_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOTLINE_WORKER_MODEL_PATH", str(MODEL_PATH))
    monkeypatch.setenv("HOTLINE_WORKER_SIM_FAULT__DIE_AFTER_TOKENS", "100")
    monkeypatch.setenv("HOTLINE_WORKER_SIM_FAULT__ENGINE_COUNT", "1")
    fault = WorkerSettings.read().sim_fault
    assert (fault.die_after_tokens, fault.engine_count, fault.die_after_s) == (100, 1, None)


def test_too_little_kv_for_one_context_is_refused_by_name():
    settings = WorkerSettings(engine="sim", model_path=MODEL_PATH, sim_kv_tokens=100)
    with pytest.raises(ValueError, match="HOTLINE_WORKER_SIM_KV_TOKENS"):
        create_simulator(settings, read_model(MODEL_PATH, {}), lambda: 0.0)


@pytest.mark.parametrize(
    ("fields", "duration_s"),
    [
        pytest.param({}, 0.0129 + 2 * 0.000_076 + 0.05 + 0.25, id="the profile"),
        pytest.param({"sim_step_ms": 20}, 0.02 + 2 * 0.000_076 + 0.05 + 0.25, id="own step"),
        pytest.param({"sim_step_per_sequence_ms": 0}, 0.0129 + 0.05 + 0.25, id="own slope"),
        pytest.param(
            {"sim_prefill_tokens_per_s": 500}, 0.0129 + 2 * 0.000_076 + 1 + 0.25, id="own prefill"
        ),
        pytest.param({"sim_image_ms": 0}, 0.0129 + 2 * 0.000_076 + 0.05, id="own image"),
        pytest.param({"sim_profile": "fast"}, 0.001 + 0.0005 + 0.001, id="fast"),
        pytest.param({"sim_profile": "instant"}, 0, id="instant"),
    ],
)
def test_each_number_of_a_profile_has_a_setting_of_its_own(
    fields: dict[str, object], duration_s: float
):
    settings = WorkerSettings(engine="sim", model_path=MODEL_PATH, **fields)
    engine = create_simulator(settings, read_model(MODEL_PATH, {}), lambda: 0.0)
    assert engine._config.costs.step_duration_s(2, 500, 1) == pytest.approx(duration_s)
