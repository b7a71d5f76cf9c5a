"""One request id from the edge to the worker's log, and back to the client."""

import json
import time

import httpx

from .screens import data_url, png, question, screen


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
    for name, method in (
        ("gateway", "OpenAIService/CreateChatCompletion"),
        ("tokenizer-0", "TokenizerService/Render"),
        ("tokenizer-0", "TokenizerService/PushFeatures"),
        ("worker-0", "WorkerService/PutFeatures"),
        ("worker-0", "WorkerService/Generate"),
    ):
        lines = stack.logged(name, request_id, method)
        assert lines, (name, method)
        assert all(json.loads(line)["name"] == name for line in lines)


def test_an_answer_without_an_id_of_the_client_gets_one(stack):
    answer = httpx.get(f"{stack.base_url}/models", timeout=30, trust_env=False)
    assert answer.headers["x-request-id"]
