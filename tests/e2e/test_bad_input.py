"""Cases 7, 11, 13 and 28, and whatever else a client may get wrong: a clear 4xx, and the stack still answers."""

import json

import httpx
import pytest

from .screens import data_url, png, question, screen

GOOD = {
    "model": "autoglm-phone-tiny",
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 3,
}
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xdb"


@pytest.fixture
def http(stack):
    with httpx.Client(base_url=stack.base_url, timeout=60, trust_env=False) as client:
        yield client
        assert client.post("/chat/completions", json=GOOD).status_code == 200


def refusal(response: httpx.Response, status: int = 400) -> dict[str, object]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    for internal in ("Traceback", "site-packages", "grpc", "unix:", "vllm", "transformers"):
        assert internal not in error["message"]
    return error


TRUNCATED = png(screen())[:-128]
BAD_IMAGES = [
    pytest.param(data_url(TRUNCATED), id="cut short"),
    pytest.param(data_url(JPEG, "image/jpeg"), id="half a JPEG"),
    pytest.param("data:image/png;base64", id="no comma"),
    pytest.param("data:image/png;base64,@@@@", id="no base64"),
    pytest.param("data:image/png;base64,", id="empty"),
    pytest.param(data_url(b"<html><body>404</body></html>"), id="HTML"),
    pytest.param("http://127.0.0.1:1/x.png", id="http"),
    pytest.param("https://example.com/x.png", id="https"),
    pytest.param("file:///etc/passwd", id="file"),
    pytest.param("http://169.254.169.254/latest", id="link-local"),
    pytest.param("x.png", id="no scheme"),
    pytest.param("", id="nothing"),
    pytest.param(data_url(png(screen(size=(6000, 28)))), id="aspect ratio above 200"),
]


@pytest.mark.parametrize("url", BAD_IMAGES)
@pytest.mark.parametrize("stream", [True, False])
def test_cases_5_7_11_a_bad_image_is_400_naming_the_part(http, url, stream):
    messages = [{"role": "system", "content": "s"}, *question("tap", url)]
    body = {**GOOD, "messages": messages, "stream": stream}
    error = refusal(http.post("/chat/completions", json=body))
    assert str(error["param"]).startswith("messages[1].content[0]")


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        pytest.param([], "messages", id="no messages"),
        pytest.param([{"role": None, "content": "x"}], "messages[0].role", id="null role"),
        pytest.param(
            [{"role": "user", "content": [{"type": "hologram"}]}],
            "messages[0].content[0].type",
            id="unknown part type",
        ),
        pytest.param(
            [{"role": "user", "content": [{"text": "x"}]}],
            "messages[0].content[0]",
            id="part without type",
        ),
    ],
)
def test_case_13_odd_messages_are_400_with_param(http, messages, param):
    error = refusal(http.post("/chat/completions", json={**GOOD, "messages": messages}))
    assert error["param"] == param


def test_case_13_an_empty_prompt_is_answered_or_refused_but_never_500(http):
    body = {**GOOD, "messages": [{"role": "user", "content": ""}]}
    assert http.post("/chat/completions", json=body).status_code in (200, 400)


def test_case_17_a_prompt_beyond_the_context_says_both_numbers(http):
    body = {**GOOD, "messages": [{"role": "user", "content": "界" * 20_000}]}
    error = refusal(http.post("/chat/completions", json=body))
    assert error["code"] == "context_length_exceeded"
    assert "tokens" in error["message"]


def test_case_37_tools_are_refused_where_the_template_has_none(http):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    error = refusal(http.post("/chat/completions", json={**GOOD, "tools": [tool]}))
    assert error["param"] == "tools"
    assert "this model's template has no tools" in error["message"]


@pytest.mark.parametrize("size", [1_200_000, 8_000_000])
def test_case_28_large_bodies_pass(http, size):
    image = screen(size=(1080, 2400))
    image.info.clear()
    data = png(image)
    padded = data + b"\0" * max(0, size * 3 // 4 - len(data))  # PNG readers stop at IEND
    body = {**GOOD, "messages": question("点击红色按钮", data_url(padded))}
    assert len(json.dumps(body)) >= size * 0.99
    assert http.post("/chat/completions", json=body).status_code == 200


def test_case_28_40_mb_is_413_with_the_limit(http):
    body = {**GOOD, "messages": [{"role": "user", "content": "x" * 40_000_000}]}
    error = refusal(http.post("/chat/completions", json=body), 413)
    assert "32" in error["message"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b'{"messages": [{"role": "user", "content": "\\ud800"}]}', b"[" * 50_000],
    ids=["empty", "cut", "not UTF-8", "lone surrogate", "deep"],
)
def test_case_18_a_broken_body_is_400(http, content):
    headers = {"content-type": "application/json"}
    refusal(http.post("/chat/completions", content=content, headers=headers))


def test_an_unknown_route_and_a_wrong_method_have_the_same_shape(http):
    refusal(http.post("/nothing", json={}), 404)
    refusal(http.get("/chat/completions"), 405)


def test_a_generation_that_never_was_cannot_be_resumed(http):
    assert refusal(http.get("/generations/x/events"), 404)["code"] == "generation_not_found"


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"grpc-timeout": "zz"}, id="grpc-timeout"),
        pytest.param({"x-bin-bin": "%%%"}, id="binary metadata"),
        pytest.param({"cookie": "c" * 12_000}, id="12 KB of cookies"),
        pytest.param({"cookie": "c" * 40_000}, id="40 KB of cookies"),
    ],
)
def test_headers_that_mean_nothing_to_rest_do_no_harm(http, headers):
    assert http.post("/chat/completions", json=GOOD, headers=headers).status_code == 200


def test_a_model_id_that_is_no_utf8_is_a_client_error(http):
    error = refusal(http.get("/models/%ff"))
    assert "Unexpected" not in error["message"]


@pytest.mark.parametrize("request_id", ["a b", "{x}", "é", "x" * 300])
def test_a_malformed_request_id_is_mended_at_the_edge(http, stack, request_id):
    headers = {"x-request-id": request_id.encode("latin-1")}
    answer = http.post("/chat/completions", json=GOOD, headers=headers)
    taken = answer.headers["x-request-id"]
    assert 0 < len(taken) <= 128
    assert stack.logged("gateway", taken)


def test_what_a_user_wrote_is_not_in_the_log(http, stack):
    body = {**GOOD, "messages": [{"role": "user", "content": {"secret": "hunter2"}}]}
    answer = http.post("/chat/completions", json=body)
    refusal(answer)
    assert stack.logged("gateway", answer.headers["x-request-id"])
    for log in stack.folder.glob("*.log"):
        assert "hunter2" not in log.read_text(encoding="utf-8")


def test_a_conversation_nested_too_deeply_is_refused_at_once(http):
    tree: object = "x"
    for _ in range(40):
        tree = {"a": tree}
    error = refusal(
        http.post(
            "/chat/completions", json={**GOOD, "chat_template_kwargs": {"v": tree}}, timeout=5
        )
    )
    assert error["param"] == "chat_template_kwargs"


def test_a_query_does_not_overwrite_what_the_path_says(http):
    answer = http.get("/models/autoglm-phone-9b?model=zzz")
    assert (answer.status_code, answer.json()["id"]) == (200, "autoglm-phone-9b")
