"""hotline_client against the real gateway and the simulator, over networks that cut and hang."""

import asyncio
import io
import time
from random import Random

import pytest
from cutting_proxy import cutting_proxy
from hotline.v1 import sampling_pb2
from hotline_client import AsyncClient, Client, HotlineError, NetworkPolicy, Options, system, user
from PIL import Image
from sim_stack import LIMIT_S, sim_stack, started_tokenizer, started_worker

QUICK = NetworkPolicy(
    heartbeat_interval_s=1.0, silence_limit_s=2.5, first_pause_s=0.02, last_pause_s=0.2
)


@pytest.fixture(scope="module")
async def stack():
    worker = await started_worker(sim_step_ms=3, max_num_seqs=32)
    tokenizer = await started_tokenizer(worker.port)
    async with sim_stack(tokenizer, worker, max_waiting=0, max_running=8) as running:
        yield running
    await tokenizer.stop()
    await worker.stop()


def address(stack) -> str:
    return f"127.0.0.1:{stack.gateway.port}"


def options(tokens: int, **fields) -> Options:
    sampling = sampling_pb2.SamplingParameters(max_tokens=tokens, ignore_eos=True)
    return Options(sampling=sampling, deadline_s=LIMIT_S, **fields)


def picture(colour: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (120, 240), colour).save(file, "PNG")
    return file.getvalue()


async def test_a_stream_that_is_cut_again_and_again_is_whole(stack):
    async with (
        cutting_proxy(address(stack), Random(3), after_bytes=(300, 2500)) as proxy,
        AsyncClient(proxy.address, policy=QUICK) as client,
    ):
        stream = client.generate([user("Hi")], options(150), generation_id="cut")
        found = await stream.answer()
    assert proxy.cuts > 2
    assert stream.resumes > 1
    async with AsyncClient(address(stack), policy=QUICK) as client:  # which replays it
        whole = await client.generate([user("Hi")], options(150), generation_id="cut").answer()
    assert (found.text, found.completion_tokens) == (whole.text, 150)
    assert found.finish_reason == "LENGTH"


async def test_many_streams_over_one_connection_that_is_cut_lose_and_repeat_nothing(stack):
    async def text_of(client, name: str) -> str:
        return (await client.generate([user("Hi")], options(60), generation_id=name).answer()).text

    names = [f"many-{number}" for number in range(6)]
    async with (
        cutting_proxy(address(stack), Random(5), after_bytes=(2000, 6000)) as proxy,
        AsyncClient(proxy.address, policy=QUICK) as client,
    ):
        found = await asyncio.gather(*(text_of(client, name) for name in names))
    assert proxy.cuts
    async with AsyncClient(address(stack), policy=QUICK) as client:
        assert found == [await text_of(client, name) for name in names]


async def test_a_connection_that_hangs_is_given_up_for_a_fresh_one(stack):
    silent = asyncio.Event()
    connections = 0

    async def serve(reader, writer):
        nonlocal connections
        connections += 1
        hangs = connections == 1
        host, _, port = address(stack).rpartition(":")
        behind, to_behind = await asyncio.open_connection(host, int(port))

        async def passing(source, target):
            while data := await source.read(2048):
                if hangs and silent.is_set():
                    await asyncio.Event().wait()  # swallowed, as by a radio that is away
                target.write(data)

        tasks = [
            asyncio.create_task(passing(reader, to_behind)),
            asyncio.create_task(passing(behind, writer)),
        ]
        held.extend(tasks)
        ends.extend([writer, to_behind])

    held: list[asyncio.Task] = []
    ends: list[asyncio.StreamWriter] = []
    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with AsyncClient(f"127.0.0.1:{port}", policy=QUICK) as client:
        stream = client.generate([user("Hi")], options(400))
        begun_s = time.monotonic()
        async for event in stream:
            if event.HasField("text"):
                silent.set()
        assert time.monotonic() - begun_s < 15
    assert connections == 2
    assert stream.resumes == 1
    assert stream.result.completion_tokens == 400
    listening.close()
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    for end in ends:
        end.transport.abort()
    await asyncio.sleep(0)


async def test_leaving_early_cancels_at_the_server(stack):
    async with AsyncClient(address(stack), policy=QUICK) as client:
        stream = client.generate([user("Hi")], options(4000))
        events = aiter(stream)
        async for event in events:
            if event.HasField("text"):
                break
        await events.aclose()
        await stack.until(lambda: not stack.app.registry.running_count)
    assert stack.app.admission.seat_count == 0


async def test_a_refusal_that_passes_is_tried_again_and_one_that_does_not_is_raised(stack):
    async with AsyncClient(address(stack), policy=QUICK) as client:
        filling = [
            asyncio.create_task(client.generate([user("fill")], options(150)).answer())
            for _ in range(8)
        ]
        await stack.until(lambda: stack.app.admission.running_count == 8)
        answer = await client.generate([user("wait")], options(3)).answer()  # OVERLOADED at first
        assert answer.completion_tokens == 3
        await asyncio.gather(*filling)
        with pytest.raises(HotlineError) as raised:
            await client.generate([user("Hi")], options(0)).answer()
        assert (raised.value.reason, raised.value.field) == (
            "INVALID_ARGUMENT",
            "sampling.max_tokens",
        )
        assert not raised.value.retryable


async def test_nobody_there_is_told_after_so_many_attempts(tmp_path):
    policy = NetworkPolicy(max_attempts=3, first_pause_s=0.01)
    async with AsyncClient(f"unix:{tmp_path}/nobody.sock", policy=policy) as client:
        with pytest.raises(HotlineError) as raised:
            await client.generate([user("Hi")]).answer()
    assert raised.value.reason == "UNREACHABLE"


async def test_the_deadline_is_one_budget_for_all_attempts(tmp_path):
    policy = NetworkPolicy(max_attempts=1000, first_pause_s=0.1, last_pause_s=0.1)
    begun_s = time.monotonic()
    async with AsyncClient(f"unix:{tmp_path}/nobody.sock", policy=policy) as client:
        with pytest.raises(HotlineError):
            await client.generate([user("Hi")], Options(deadline_s=0.7)).answer()
    assert time.monotonic() - begun_s < 5


async def test_a_session_sends_an_unchanged_image_once(stack):
    shot = picture("red") + b"\0" * 50_000
    async with AsyncClient(address(stack), policy=QUICK) as client:
        async with client.session([system("Be short.")], leave="keep") as session:
            first = session.stream([user("look", shot)], options(4))
            async for _ in first:
                pass
            second = session.stream([user("again", shot)], options(4))
            async for _ in second:
                pass
            assert first.result.turn_committed
            assert second.result.turn_committed
            assert first.sent_bytes > 50_000
            assert second.sent_bytes < 1_000
            # What the server no longer keeps is sent again by itself.
            await stack.app.sessions.store.media.drop(bytes.fromhex(session.session_id))
            third = await session.turn("and again", shot, options(4))
            assert third.turn_committed
        kept = await client.resume_session(session.session_id, leave="delete")
        async with kept:
            assert (await kept.turn("go on", None, options(2))).cached_tokens > 0
        with pytest.raises(HotlineError) as raised:
            await client.resume_session(session.session_id)
    assert raised.value.reason == "SESSION_NOT_FOUND"


async def test_leaving_a_session_clears_it(stack):
    async with AsyncClient(address(stack), policy=QUICK) as client:
        async with client.session([system("Be short.")]) as session:
            await session.turn("one", None, options(2))
        found = await stack.app.sessions.get("anonymous", session.session_id)
        assert (found.turn_count, found.turns, found.preamble) == (0, (), ())


def test_a_key_never_goes_in_the_clear_to_another_machine():
    with pytest.raises(ValueError, match="in the clear"):
        AsyncClient("203.0.113.9:8000", api_key="hl-secret")
    AsyncClient("203.0.113.9:8000", api_key="hl-secret", tls=True)
    AsyncClient("127.0.0.1:8000", api_key="hl-secret")
    AsyncClient("[::1]:8000", api_key="hl-secret")


async def test_the_client_without_asyncio_does_the_same(stack):
    def work() -> tuple[str, str, int, int]:
        with Client(address(stack), policy=QUICK) as client:
            whole = client.generate([user("Hi")], options(20))
            pieces = "".join(event.text.text for event in client.stream([user("Hi")], options(20)))
            for event in client.stream([user("Hi")], options(4000)):
                if event.HasField("text"):
                    break  # leaves it, which cancels it
            with client.session() as session:
                session.turn("one", None, options(2))
                second = session.turn("two", None, options(2))
                list(session.stream("three", None, options(2)))
            assert [model.name for model in client.models()] == ["autoglm-phone-tiny"]
            return whole.text, pieces, second.prompt_tokens, whole.completion_tokens

    text, pieces, prompt_tokens, count = await asyncio.to_thread(work)
    assert text
    assert pieces
    assert count == 20
    assert prompt_tokens > 5
    await stack.until(lambda: not stack.app.registry.running_count)
