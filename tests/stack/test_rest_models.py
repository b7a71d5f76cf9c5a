"""Models, health, CORS and both HTTP versions, through a real Envoy before a real gateway."""

import httpx
import openai
import pytest
from edge_process import error_of
from openai.types import Model
from rest_stack import MODEL_NAME, rest_stack
from sim_stack import LIMIT_S

from services.gateway import openapi_document

CONTEXT_TOKENS = 512
ALIASES = ["autoglm-phone-9b", "zai-org/AutoGLM-Phone-9B", "手机"]
PAGE = "http://localhost:5173"


@pytest.fixture(scope="module")
async def stack(tmp_path_factory):
    folder = tmp_path_factory.mktemp("edge")
    worker = {"max_model_len": CONTEXT_TOKENS}
    async with rest_stack(folder, worker, model_aliases=ALIASES) as running:
        yield running


@pytest.fixture(scope="module", params=[False, True], ids=["HTTP/1.1", "h2"])
async def http(request, stack):
    """A client of one HTTP version; HTTP/2 without asking first."""
    is_h2 = request.param
    async with httpx.AsyncClient(
        base_url=stack.url, timeout=LIMIT_S, http1=not is_h2, http2=is_h2
    ) as client:
        yield client


async def test_every_name_is_listed_as_the_openai_package_s_own_type(http):
    answer = await http.get("/v1/models")
    body = answer.json()
    assert (answer.status_code, body["object"]) == (200, "list")
    models = [Model.model_validate(entry, strict=True) for entry in body["data"]]
    assert [model.id for model in models] == [MODEL_NAME, *ALIASES]
    for entry in body["data"]:
        assert entry["root"] == MODEL_NAME
        assert entry["max_model_len"] == CONTEXT_TOKENS
        assert isinstance(entry["created"], int)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        pytest.param(MODEL_NAME, MODEL_NAME, id="name"),
        pytest.param("autoglm-phone-9b", "autoglm-phone-9b", id="alias"),
        pytest.param("zai-org/AutoGLM-Phone-9B", "zai-org/AutoGLM-Phone-9B", id="slash"),
        pytest.param("zai-org%2FAutoGLM-Phone-9B", "zai-org/AutoGLM-Phone-9B", id="escaped slash"),
        pytest.param("%E6%89%8B%E6%9C%BA", "手机", id="escaped UTF-8"),
    ],
)
async def test_a_model_is_found_by_every_name(http, path, name):
    answer = await http.get(f"/v1/models/{path}")
    assert answer.status_code == 200
    assert Model.model_validate(answer.json(), strict=True).id == name


async def test_an_openai_client_lists_and_retrieves(stack):
    async with stack.client() as client:
        names = [model.id async for model in client.models.list()]
        assert names == [MODEL_NAME, *ALIASES]
        for name in names:
            assert (await client.models.retrieve(name)).id == name
        with pytest.raises(openai.NotFoundError) as raised:
            await client.models.retrieve("gpt/4")
    assert raised.value.code == "model_not_found"
    assert "gpt/4" in raised.value.message


@pytest.mark.parametrize("path", ["/health", "/health/ready", "/health/live"])
async def test_a_stack_that_can_generate_is_healthy(http, path):
    answer = await http.get(path)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_there_are_no_other_probes(http):
    answer = await http.get("/health/startup")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "unknown_url")


@pytest.mark.parametrize("path", ["/openapi.json", "/v1/openapi.json"])
async def test_the_openapi_document_is_served(http, path):
    answer = await http.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.content == openapi_document.encoded()


async def test_a_generation_is_the_same_over_both_versions(http):
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "stream": True}
    async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        text = "".join([piece async for piece in answer.aiter_text()])
    assert answer.status_code == 200
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/tokenize"),
        ("GET", "/v1/models"),
        ("GET", "/openapi.json"),
    ],
)
async def test_a_page_of_this_machine_may_ask_with_a_key(http, method, path):
    asked = "authorization,content-type,x-request-id,x-stainless-lang"
    headers = {
        "origin": PAGE,
        "access-control-request-method": method,
        "access-control-request-headers": asked,
    }
    answer = await http.options(path, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert method in answer.headers["access-control-allow-methods"]
    allowed = answer.headers["access-control-allow-headers"].split(",")
    assert set(asked.split(",")) <= set(allowed)


READABLE = {
    "x-request-id",
    "retry-after",
    "x-ratelimit-limit-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param({"prompt": "Hi", "max_tokens": 1}, 200, id="answer"),
        pytest.param({"prompt": "Hi", "max_tokens": 1, "stream": True}, 200, id="stream"),
        pytest.param({"prompt": ""}, 400, id="error"),
    ],
)
async def test_a_page_of_this_machine_may_read_answers_and_their_headers(http, body, status):
    headers = {"origin": PAGE, "authorization": "Bearer EMPTY"}
    answer = await http.post("/v1/completions", json=body, headers=headers)
    assert answer.status_code == status
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert set(answer.headers["access-control-expose-headers"].split(",")) >= READABLE
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize("origin", ["https://example.com", "null", "http://localhost.evil.example"])
async def test_a_page_from_elsewhere_may_read_nothing(http, origin):
    for answer in (
        await http.options(
            "/v1/models", headers={"origin": origin, "access-control-request-method": "GET"}
        ),
        await http.get("/v1/models", headers={"origin": origin}),
    ):
        assert "access-control-allow-origin" not in answer.headers


async def test_a_page_cannot_post_without_asking_first(http):
    """What a form may send anywhere is no JSON, so the request does not run."""
    headers = {"origin": "https://example.com", "content-type": "text/plain"}
    for path in ("/v1/completions", "/v1/tokenize"):
        answer = await http.post(path, content=b'{"prompt": "Hi"}', headers=headers)
        assert (answer.status_code, error_of(answer)["param"]) == (400, "content-type")


async def test_a_stack_without_a_tokenizer_is_alive_and_not_ready(stack):
    """Last: it stops the tokenizer."""
    await stack.behind.tokenizer.stop()
    await stack.behind.until_ready(ready=False)
    async with httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S) as http:
        for path in ("/health", "/health/ready"):
            answer = await http.get(path)
            assert (answer.status_code, error_of(answer)["code"]) == (503, "unavailable")
            assert int(answer.headers["retry-after"]) >= 1
        assert (await http.get("/health/live")).status_code == 200
        assert (await http.get("/v1/models")).status_code == 200
        completion = await http.post("/v1/completions", json={"prompt": "Hi"})
        assert completion.status_code == 503
