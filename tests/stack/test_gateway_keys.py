"""API keys through a real edge and past it: who comes in, as whom, and that owners never meet."""

import base64
import io
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc
import httpx
import openai
import pytest
from edge_process import error_of, free_port, running_envoy, until_serving
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hotline.v1 import generation_pb2, inference_pb2, model_pb2, model_pb2_grpc
from PIL import Image
from sim_stack import LIMIT_S, SimStack, hello, sim_stack, started_tokenizer, started_worker

from services.cli.edge import EdgeSettings
from services.gateway import key_file
from services.gateway.api_key import key_hash, new_key
from services.gateway.key_document import KeyDocument, StoredKey
from services.runtime.channel import open_channel
from services.runtime.status import from_rpc_error

CHAT = "/v1/chat/completions"
MODEL = "autoglm-phone-tiny"


def stored(name: str, owner: str, **fields: object) -> tuple[str, StoredKey]:
    key_id, text = new_key()
    now = datetime.now(UTC)
    return text, StoredKey(
        id=key_id, name=name, owner=owner, hash=key_hash(text), created=now, **fields
    )


@dataclass
class Guarded:
    """A stack with keys, its edge, and the keys by name."""

    stack: SimStack
    edge: str
    keys: dict[str, str]

    def rest(self, key: str | None) -> httpx.AsyncClient:
        """A REST client with that key, or with what is no name of one."""
        sent = {} if key is None else {"authorization": f"Bearer {self.keys.get(key, key)}"}
        return httpx.AsyncClient(base_url=f"http://{self.edge}", headers=sent, timeout=LIMIT_S)

    def metadata(self, key: str) -> tuple[tuple[str, str], ...]:
        """The same for native calls."""
        return (("authorization", f"Bearer {self.keys.get(key, key)}"),)


@pytest.fixture(scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Guarded, None]:
    folder: Path = tmp_path_factory.mktemp("keys")
    made = {
        "a": stored("a", "acme"),
        "a2": stored("a2", "acme"),
        "b": stored("b", "bell"),
        "dotted": stored("dotted", "a.b"),
        "plain": stored("plain", "a"),
        "narrow": stored("narrow", "narrow", models=("another-model",)),
        "by_alias": stored("by_alias", "by_alias", models=("autoglm-phone-9b",)),
        "revoked": stored("revoked", "acme", disabled=True),
        "expired": stored("expired", "acme", expires=datetime(2020, 1, 1, tzinfo=UTC)),
    }
    keys_file = folder / "keys.json"
    key_file.write(keys_file, KeyDocument(keys=tuple(key for _, key in made.values())))
    worker = await started_worker()
    tokenizer = await started_tokenizer(worker.port)
    guards = {"keys_file": keys_file, "allow_anonymous": False}
    async with sim_stack(tokenizer, worker, **guards) as stack:
        settings = EdgeSettings(
            address=f"127.0.0.1:{free_port()}",
            gateways=(f"127.0.0.1:{stack.gateway.port}",),
            runtime_folder=folder,
        )
        async with running_envoy(settings):
            await until_serving(settings.address)
            keys = {name: text for name, (text, _) in made.items()}
            yield Guarded(stack, settings.address, keys)
    await tokenizer.stop()
    await worker.stop()


def chat(**fields: object) -> dict[str, object]:
    messages = [{"role": "user", "content": "Hi"}]
    return {"model": MODEL, "messages": messages, "max_tokens": 4, "ignore_eos": True} | fields


BAD = [
    pytest.param(None, id="no key"),
    pytest.param("EMPTY", id="placeholder"),
    pytest.param("hl-0123456789ab-" + "x" * 43, id="unknown"),
    pytest.param("revoked", id="revoked"),
    pytest.param("expired", id="expired"),
    pytest.param("x" * 50_000, id="huge"),
]


@pytest.mark.parametrize("key", BAD)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("POST", CHAT, id="chat"),
        pytest.param("GET", "/v1/models", id="models"),
        pytest.param("GET", f"/v1/models/{MODEL}", id="model"),
        pytest.param("POST", "/v1/completions", id="completions"),
        pytest.param("POST", "/v1/tokenize", id="tokenize"),
        pytest.param("GET", "/v1/generations/x/events", id="events"),
    ],
)
async def test_without_a_good_key_every_route_is_401_in_openais_shape(guarded, method, path, key):
    body = chat() if method == "POST" else None
    async with guarded.rest(key) as rest:
        answer = await rest.request(method, path, json=body)
    assert answer.status_code == 401
    error = error_of(answer)
    assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert (key or "nothing") not in answer.text


async def test_a_stream_is_refused_before_it_begins(guarded):
    async with guarded.rest("EMPTY") as rest:
        answer = await rest.post(CHAT, json=chat(stream=True))
    assert (answer.status_code, error_of(answer)["code"]) == (401, "invalid_api_key")


async def test_the_openai_client_raises_its_authentication_error(guarded):
    async with openai.AsyncOpenAI(
        base_url=f"http://{guarded.edge}/v1", api_key="EMPTY", max_retries=0
    ) as client:
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()
    async with openai.AsyncOpenAI(
        base_url=f"http://{guarded.edge}/v1", api_key=guarded.keys["a"], max_retries=0
    ) as client:
        assert (await client.models.list()).data[0].id == MODEL


@pytest.mark.parametrize("path", ["/health", "/health/ready", "/health/live"])
async def test_health_needs_no_key(guarded, path):
    async with guarded.rest(None) as rest:
        assert (await rest.get(path)).status_code == 200


@pytest.mark.parametrize("through_the_edge", [True, False])
async def test_native_calls_need_a_key_as_well_and_health_does_not(guarded, through_the_edge):
    address = guarded.edge if through_the_edge else f"127.0.0.1:{guarded.stack.gateway.port}"
    async with open_channel(address) as channel:
        health = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=LIMIT_S
        )
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        models = model_pb2_grpc.ModelServiceStub(channel)
        for metadata in ((), *(guarded.metadata(key) for key in ("EMPTY", "revoked"))):
            with pytest.raises(aio.AioRpcError) as refused:
                await models.ListModels(
                    model_pb2.ListModelsRequest(), timeout=LIMIT_S, metadata=metadata
                )
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert from_rpc_error(refused.value, "gateway").reason.value == "UNAUTHENTICATED"
        answer = await models.ListModels(
            model_pb2.ListModelsRequest(), timeout=LIMIT_S, metadata=guarded.metadata("a")
        )
        assert [model.name for model in answer.models] == [MODEL]


async def test_a_native_stream_runs_with_a_key(guarded):
    call = guarded.stack.inference.Generate(
        hello(4), timeout=LIMIT_S, metadata=guarded.metadata("a")
    )
    events = [event async for event in call]
    assert events[-1].HasField("finished")


async def test_a_page_over_grpc_web_is_refused_and_let_in_alike(guarded):
    message = hello(2).SerializeToString()
    for key, status in ((None, b"16"), ("a", b"0")):
        async with guarded.rest(key) as rest:
            answer = await rest.post(
                "/hotline.v1.InferenceService/Generate",
                content=b"\0" + len(message).to_bytes(4, "big") + message,
                headers={"content-type": "application/grpc-web+proto", "x-grpc-web": "1"},
            )
        told = answer.headers.get("grpc-status", "").encode() or answer.content
        assert (
            told.endswith(b"grpc-status:" + status + b"\r\n")
            or told == status
            or (b"grpc-status:" + status in told)
        )


async def test_reflection_needs_a_key_and_channelz_is_for_no_client(guarded):
    address = f"127.0.0.1:{guarded.stack.gateway.port}"
    async with open_channel(address) as channel:
        for method, key, code in (
            ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "x", "UNAUTHENTICATED"),
            ("/grpc.channelz.v1.Channelz/GetServers", "a", "UNIMPLEMENTED"),
            ("/hotline.v1.AdminService/GetSystemStatus", "a", "UNIMPLEMENTED"),
            ("/hotline.v1.WorkerService/GetStatus", "a", "UNIMPLEMENTED"),
            ("/hotline.v1.OpenAIService/GetHealthOrSo", "x", "UNAUTHENTICATED"),
        ):  # fmt: skip
            with pytest.raises(aio.AioRpcError) as refused:
                await channel.unary_unary(method)(
                    b"", timeout=LIMIT_S, metadata=guarded.metadata(key)
                )
            assert refused.value.code().name == code, method


async def test_headers_that_name_an_owner_let_nobody_in(guarded):
    pretence = (("x-hotline-owner", "acme"), ("x-forwarded-user", "acme"), ("x-api-key", "acme"))
    with pytest.raises(aio.AioRpcError) as refused:
        await guarded.stack.inference.Generate(hello(1), timeout=LIMIT_S, metadata=pretence).read()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_large_body_without_a_key_is_refused_and_nothing_of_it_decoded(guarded):
    text = "x" * (8 * 1024 * 1024)
    async with guarded.rest(None) as rest:
        answer = await rest.post(CHAT, json=chat(messages=[{"role": "user", "content": text}]))
    assert answer.status_code == 401
    request = hello(1)
    request.messages[0].text = text
    with pytest.raises(aio.AioRpcError) as refused:
        await guarded.stack.inference.Generate(request, timeout=LIMIT_S).read()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    method = "/hotline.v1.InferenceService/Generate"
    with pytest.raises(aio.AioRpcError) as refused:  # not INVALID_ARGUMENT: it was never read
        await guarded.stack.channel.unary_unary(method)(b"\xff\xff", timeout=LIMIT_S)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def cancelled(guarded: Guarded, key: str, generation_id: str) -> bool:
    answer = await guarded.stack.inference.Cancel(
        inference_pb2.CancelRequest(generation_id=generation_id),
        timeout=LIMIT_S,
        metadata=guarded.metadata(key),
    )
    return answer.cancelled


def begun(guarded: Guarded, key: str, generation_id: str):
    return guarded.stack.inference.Generate(
        hello(4000, generation_id=generation_id), timeout=LIMIT_S, metadata=guarded.metadata(key)
    )


async def test_only_its_owner_can_cancel_a_generation_with_any_of_his_keys(guarded):
    call = begun(guarded, "a", "mine")
    await call.read()
    assert not await cancelled(guarded, "b", "mine")
    assert (await call.read()) is not aio.EOF
    assert await cancelled(guarded, "a2", "mine")
    while not (event := await call.read()).HasField("finished"):
        pass
    assert event.finished.reason == generation_pb2.FINISH_REASON_CANCELLED


async def test_two_owners_may_have_one_generation_id_at_once(guarded):
    calls = [begun(guarded, key, "same") for key in ("a", "b")]
    for call in calls:
        assert (await call.read()).HasField("accepted")
    third = begun(guarded, "a2", "same")  # joins the first
    assert (await third.read()).HasField("accepted")
    assert guarded.stack.app.registry.running_count == 2
    for key in ("a", "b"):
        assert await cancelled(guarded, key, "same")
    for call in calls:
        call.cancel()


async def test_owner_and_id_never_run_into_each_other(guarded):
    call = begun(guarded, "plain", "b.c")
    await call.read()
    assert not await cancelled(guarded, "dotted", "c")
    assert not await cancelled(guarded, "dotted", "b.c")
    assert not await cancelled(guarded, "plain", "c")
    assert await cancelled(guarded, "plain", "b.c")
    call.cancel()


def picture() -> str:
    data = io.BytesIO()
    Image.new("RGB", (224, 448), (12, 200, 97)).save(data, "PNG")
    return "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()


async def test_case_33_no_owner_finds_anothers_prefix_or_image_in_the_cache(guarded):
    parts = [
        {"type": "image_url", "image_url": {"url": picture()}},
        {"type": "text", "text": "the same question, " * 40},
    ]
    body = chat(messages=[{"role": "user", "content": parts}])

    async def cached(key: str) -> int:
        async with guarded.rest(key) as rest:
            answer = await rest.post(CHAT, json=body)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert await cached("a") == 0
    assert await cached("a") > 100
    assert await cached("a2") > 100  # the owner counts, not the key
    for other in ("b", "dotted", "plain"):
        assert await cached(other) == 0
    assert await cached("b") > 100


@pytest.mark.parametrize(
    ("key", "names"),
    [
        pytest.param("narrow", [], id="another model only"),
        pytest.param("by_alias", [MODEL, "autoglm-phone-9b"], id="by alias"),
        pytest.param("a", [MODEL, "autoglm-phone-9b"], id="all"),
    ],
)
async def test_a_key_sees_only_its_models(guarded, key, names):
    async with guarded.rest(key) as rest:
        listed = await rest.get("/v1/models")
        assert [model["id"] for model in listed.json()["data"]] == names
        for path, body in ((f"/v1/models/{MODEL}", None), (CHAT, chat())):
            answer = await (rest.get(path) if body is None else rest.post(path, json=body))
            if names:
                assert answer.status_code == 200
            else:
                assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")


async def test_a_model_that_it_may_not_use_reads_as_one_that_is_none(guarded):
    told = []
    async with guarded.rest("narrow") as rest:
        for name in (MODEL, "no-such-model"):
            answer = await rest.post(CHAT, json=chat(model=name))
            told.append(answer.text.replace(name, "NAME"))
        assert (await rest.post(CHAT, json=chat(model=""))).status_code in (400, 404)
    assert told[0] == told[1]


async def test_reloaded_keys_are_known_and_a_running_stream_goes_on(guarded, tmp_path):
    file = guarded.stack.app._settings.keys_file
    before = file.read_bytes()
    call = begun(guarded, "b", "goes-on")
    await call.read()
    document, _ = key_file.read(file)
    text, fresh = stored("fresh", "fresh")
    keys = tuple(key for key in document.keys if key.name != "b")
    try:
        key_file.write(file, KeyDocument(keys=(*keys, fresh)))
        guarded.keys["fresh"] = text
        await guarded.stack.app._reload.now()
        async with guarded.rest("fresh") as rest:
            assert (await rest.get("/v1/models")).status_code == 200
        async with guarded.rest("b") as rest:
            assert (await rest.get("/v1/models")).status_code == 401
        assert (await call.read()) is not aio.EOF
    finally:
        call.cancel()
        file.write_bytes(before)
        await guarded.stack.app._reload.now()
