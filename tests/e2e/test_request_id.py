"""One request id from the edge to the worker's log, and back to the client."""

import json
import time

import httpx

from .screens import data_url, png, question, screen


def lines_with(stack, name: str, request_id: str) -> list[dict[str, object]]:
    """The structured lines of one process's log that carry the id."""
    log = (stack.folder / f"{name}.log").read_text(encoding="utf-8")
    return [json.loads(line) for line in log.splitlines() if request_id in line]


def test_every_process_logs_the_call_under_the_clients_request_id(stack):
    request_id = f"e2e-{time.time_ns()}"
    body = {
        "messages": question("点击红色按钮", data_url(png(screen()))),
        "max_tokens": 3,
        "temperature": 0,
    }
    headers = {"x-request-id": request_id}
    url = f"{stack.base_url}/chat/completions"
    answer = httpx.post(url, json=body, headers=headers, timeout=60, trust_env=False)
    assert answer.status_code == 200
    assert answer.headers["x-request-id"] == request_id
    methods = {}
    for name in ("gateway", "tokenizer-0", "worker-0"):
        lines = lines_with(stack, name, request_id)
        assert lines, name
        assert all(line["name"] == name for line in lines)
        methods[name] = {line["method"].rpartition("/")[2] for line in lines if "method" in line}
    assert "CreateChatCompletion" in methods["gateway"]
    assert {"Render", "PushFeatures"} <= methods["tokenizer-0"]
    assert "Generate" in methods["worker-0"]


def test_an_answer_without_an_id_of_the_client_gets_one(stack):
    answer = httpx.get(f"{stack.base_url}/models", timeout=30, trust_env=False)
    assert answer.headers["x-request-id"]
