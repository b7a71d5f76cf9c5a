"""POST /v1/tokenize and /v1/detokenize through a real Envoy, shaped as vLLM's."""

import httpx
import pytest
from edge_process import error_of
from rest_stack import rest_stack
from sim_stack import LIMIT_S

CONTEXT_TOKENS = 512
HI = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
async def http(tmp_path_factory):
    folder = tmp_path_factory.mktemp("edge")
    async with (
        rest_stack(folder, {"max_model_len": CONTEXT_TOKENS}) as stack,
        httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S) as client,
    ):
        yield client


@pytest.mark.parametrize("prefix", ["/v1", ""], ids=["ours", "vLLM's"])
@pytest.mark.parametrize("text", ["", "Hello 世界 👋", "[gMASK]<sop><|user|>\n"])
async def test_a_text_comes_back_from_its_ids(http, prefix, text):
    made = (await http.post(f"{prefix}/tokenize", json={"prompt": text})).json()
    assert set(made) == {"count", "max_model_len", "tokens", "token_strs"}
    assert made["count"] == len(made["tokens"])
    assert made["max_model_len"] == CONTEXT_TOKENS
    answer = await http.post(f"{prefix}/detokenize", json={"tokens": made["tokens"]})
    assert answer.json() == {"prompt": text}


async def test_a_conversation_is_rendered_as_chat_completions_render_it(http):
    chat = {"messages": HI, "max_tokens": 1, "enable_thinking": False, "unknown": [1]}
    made = (await http.post("/v1/tokenize", json=chat)).json()
    completed = (await http.post("/v1/chat/completions", json=chat)).json()
    assert made["count"] == completed["usage"]["prompt_tokens"]
    thinking = (await http.post("/v1/tokenize", json={"messages": HI})).json()
    assert thinking["tokens"] == made["tokens"][: thinking["count"]]
    assert thinking["count"] < made["count"]


async def test_vllm_s_switches_are_accepted_where_they_say_what_is_done_anyway(http):
    wanted = {
        "messages": HI,
        "model": "autoglm-phone-9b",
        "add_generation_prompt": True,
        "continue_final_message": False,
        "return_token_strs": False,
        "add_special_tokens": False,
    }
    assert (await http.post("/v1/tokenize", json=wanted)).status_code == 200


@pytest.mark.parametrize(
    ("route", "body", "param"),
    [
        pytest.param("tokenize", {}, "prompt", id="nothing"),
        pytest.param("tokenize", {"prompt": "a", "messages": HI}, "prompt", id="both"),
        pytest.param("tokenize", {"prompt": 5}, "prompt", id="number"),
        pytest.param("tokenize", {"prompt": "x" * (2**20 + 1)}, "prompt", id="long"),
        pytest.param("tokenize", {"messages": []}, "messages", id="no messages"),
        pytest.param(
            "tokenize", {"messages": [{"role": "user"}]}, "messages[0].content", id="no content"
        ),
        pytest.param(
            "tokenize",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            "messages[0].content[0]",
            id="a bad image",
        ),
        pytest.param(
            "tokenize",
            {"messages": HI, "add_generation_prompt": False},
            "add_generation_prompt",
            id="no generation prompt",
        ),
        pytest.param(
            "tokenize",
            {"prompt": "a", "return_token_strs": True},
            "return_token_strs",
            id="strings",
        ),
        pytest.param("detokenize", {}, "tokens", id="no tokens"),
        pytest.param("detokenize", {"tokens": "1"}, "tokens", id="a string"),
        pytest.param("detokenize", {"tokens": [1, "2"]}, "tokens[1]", id="a string among ids"),
        pytest.param("detokenize", {"tokens": [1, -2]}, "tokens[1]", id="negative"),
        pytest.param("detokenize", {"tokens": [1, 3072]}, "tokens[1]", id="not in the vocabulary"),
        pytest.param("detokenize", {"tokens": [7] * (2**20 + 1)}, "tokens", id="too many"),
    ],
)
async def test_what_cannot_be_is_400_naming_the_field(http, route, body, param):
    answer = await http.post(f"/v1/{route}", json=body)
    error = error_of(answer)
    assert (answer.status_code, error["param"]) == (400, param)


@pytest.mark.parametrize(
    ("route", "body"), [("tokenize", {"prompt": "a"}), ("detokenize", {"tokens": [1]})]
)
async def test_an_unknown_model_is_404(http, route, body):
    answer = await http.post(f"/v1/{route}", json={**body, "model": "gpt"})
    assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")


async def test_the_most_ids_make_the_round_trip(http):
    text = "ab" * 2**19
    made = (await http.post("/v1/tokenize", json={"prompt": text})).json()
    answer = await http.post("/v1/detokenize", json={"tokens": made["tokens"]})
    assert answer.json()["prompt"] == text


@pytest.mark.parametrize("path", ["/v1/tokenize", "/tokenize", "/v1/detokenize", "/detokenize"])
async def test_other_methods_are_405(http, path):
    answer = await http.get(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST, OPTIONS")
