"""Two gateways with API keys: what one owner has is nobody else's through either of them."""

import secrets
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest
from grpc import aio
from hotline.v1 import inference_pb2, session_pb2, session_pb2_grpc
from sim_stack import LIMIT_S, hello, sim_stack, started_tokenizer, started_worker, text_of

from services.gateway import key_file
from services.gateway.api_key import key_hash, new_key
from services.gateway.key_document import KeyDocument, StoredKey
from services.runtime.status import from_rpc_error


@pytest.fixture(scope="module")
def keys():
    made = {}
    for name in ("acme", "bell"):
        key_id, text = new_key()
        stored = StoredKey(
            id=key_id, name=name, owner=name, hash=key_hash(text), created=datetime.now(UTC)
        )
        made[name] = (text, stored)
    return made


@pytest.fixture(scope="module")
async def pair(tmp_path_factory, keys):
    folder = tmp_path_factory.mktemp("owners")
    key_file.write(
        folder / "keys.json", KeyDocument(keys=tuple(stored for _, stored in keys.values()))
    )
    shared = {
        "peers": {name: f"unix:{folder}/{name}.sock" for name in ("one", "other")},
        "sessions": {"store": "sqlite", "sqlite_path": folder / "sessions.db"},
        "keys_file": folder / "keys.json",
        "allow_anonymous": False,
    }
    worker = await started_worker(sim_profile="rtx4090x2")
    tokenizer = await started_tokenizer(worker.port)
    async with AsyncExitStack() as exits:
        yield [
            await exits.enter_async_context(
                sim_stack(tokenizer, worker, name=name, address=address, **shared)
            )
            for name, address in shared["peers"].items()
        ]
    await tokenizer.stop()
    await worker.stop()


def of(keys, name: str, *more: tuple[str, str]) -> dict[str, object]:
    metadata = (("authorization", f"Bearer {keys[name][0]}"), *more)
    return {"metadata": metadata, "timeout": LIMIT_S}


async def all_of(call) -> list:
    return [event async for event in call]


async def reason_of(call) -> str:
    with pytest.raises(aio.AioRpcError) as raised:
        await call
    return from_rpc_error(raised.value, "the gateway").reason.value


RELAYED = ("x-hotline-relayed", "one")


@pytest.mark.parametrize("more", [(), (RELAYED,)], ids=["asked", "as if passed on"])
async def test_a_foreign_generation_is_not_found_not_cancelled_and_not_joined(pair, keys, more):
    one, other = pair
    name = secrets.token_hex(8)
    running = one.inference.Generate(hello(400, generation_id=name), **of(keys, "acme"))
    await running.read()
    resume = inference_pb2.ResumeRequest(generation_id=name)
    cancel = inference_pb2.CancelRequest(generation_id=name)
    for stack in (one, other):
        foreign = of(keys, "bell", *more)
        assert await reason_of(all_of(stack.inference.Resume(resume, **foreign))) == (
            "GENERATION_NOT_FOUND"
        )
        assert not (await stack.inference.Cancel(cancel, **foreign)).cancelled
    theirs = await all_of(
        other.inference.Generate(hello(5, generation_id=name), **of(keys, "bell", *more))
    )
    assert theirs[-1].finished.usage.completion_tokens == 5  # of its own
    mine = await all_of(other.inference.Resume(resume, **of(keys, "acme")))
    assert mine[-1].finished.usage.completion_tokens == 400
    assert len(text_of(mine)) > len(text_of(theirs))


async def test_a_foreign_session_is_not_found_through_any_gateway(pair, keys):
    one, other = pair
    services = [session_pb2_grpc.SessionServiceStub(stack.channel) for stack in (one, other)]
    made = await services[0].CreateSession(session_pb2.CreateSessionRequest(), **of(keys, "acme"))
    session_id = made.session.session_id
    foreign = of(keys, "bell")
    for stack, service in zip((one, other), services, strict=True):
        for call in (
            service.GetSession(session_pb2.GetSessionRequest(session_id=session_id), **foreign),
            service.TouchSession(session_pb2.TouchSessionRequest(session_id=session_id), **foreign),
            service.ClearSession(session_pb2.ClearSessionRequest(session_id=session_id), **foreign),
            all_of(stack.inference.Generate(hello(1, session_id=session_id), **foreign)),
        ):
            assert await reason_of(call) == "SESSION_NOT_FOUND"
        await service.DeleteSession(
            session_pb2.DeleteSessionRequest(session_id=session_id), **foreign
        )
        listed = await service.ListSessions(session_pb2.ListSessionsRequest(), **foreign)
        assert session_id not in [each.session_id for each in listed.sessions]
    turn = await all_of(
        other.inference.Generate(hello(2, session_id=session_id), **of(keys, "acme"))
    )
    assert turn[-1].finished.turn_committed


async def test_a_revoked_key_is_refused_by_the_peer_too(pair, keys):
    resume = inference_pb2.ResumeRequest(generation_id="x")
    call = pair[1].inference.Resume(
        resume, metadata=(("authorization", "Bearer hl-no-such"), RELAYED), timeout=LIMIT_S
    )
    assert await reason_of(all_of(call)) == "UNAUTHENTICATED"
