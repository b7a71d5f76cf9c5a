"""schemathesis against a stack that runs: every answer is documented, keeps to its schema, and no fault is the server's.

Bounded and the same in every run: the document's examples, the corners of every schema, then a few generated bodies.
"""

import asyncio
import json
import sys
from pathlib import Path

import httpx
import pytest
from rest_stack import RestStack, rest_stack
from sim_stack import LIMIT_S

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
RUN_LIMIT_S = 90.0
RULES = """
[phases.coverage]
# QUERY is left out: the edge answers it as its draft says, with 400 where there is no content-type.
unexpected-methods = ["DELETE", "PATCH", "PUT", "TRACE"]

[checks.not_a_server_error]
# 501: what this version, or the simulator, does not build.
expected-statuses = ["2xx", "3xx", "4xx", "501"]

[checks.positive_data_acceptance]
# What one parameter says about another, or the vocabulary about an id, no schema says.
enabled = false
"""


@pytest.fixture(scope="module")
async def stack(tmp_path_factory):
    worker = {"max_model_len": 512, "max_num_seqs": 16}
    async with rest_stack(tmp_path_factory.mktemp("edge"), worker) as running:
        yield running


async def checked(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the report of a run."""
    rules = folder / "rules.toml"
    rules.write_text(RULES)
    command = (SCHEMATHESIS, "--config-file", rules, "run", "--generation-deterministic")
    process = await asyncio.create_subprocess_exec(
        *(*command, "--continue-on-failure", "--warnings", "off", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), RUN_LIMIT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, output.decode()


@pytest.mark.parametrize(
    ("phases", "count"),
    [
        pytest.param("examples,fuzzing", "8", id="a few bodies"),
        pytest.param("examples,coverage,fuzzing", "25", id="every corner", marks=pytest.mark.slow),
    ],
)
async def test_no_answer_is_undocumented_malformed_or_a_fault_of_the_server_s(
    stack: RestStack, tmp_path: Path, phases: str, count: str
):
    code, report = await checked(
        tmp_path,
        f"{stack.url}/openapi.json",
        *("--phases", phases, "--max-examples", count),
        *("--suppress-health-check", "all", "--request-timeout", "20"),
        *("--exclude-operation-id-regex", "Alias$"),
    )
    assert code == 0, report
    assert "No issues found" in report
    async with httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S) as client:
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
        assert stack.behind.app.registry.running_count == 0


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        pytest.param("/v1/tokenize", "TokenizeAnswer", id="an answer"),
        pytest.param("/v1/completions", "TextChoice", id="an event of a stream"),
    ],
)
async def test_an_answer_that_breaks_its_schema_would_be_found(
    stack: RestStack, tmp_path: Path, path: str, schema: str
):
    async with httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S) as client:
        document = (await client.get("/openapi.json")).json()
    document["components"]["schemas"][schema]["required"].append("no_such_field")
    (tmp_path / "document.json").write_text(json.dumps(document))
    code, report = await checked(
        tmp_path,
        "document.json",
        *("--url", stack.url, "--include-path", path, "--phases", "examples"),
    )
    assert code == 1, report
    assert "no_such_field" in report
