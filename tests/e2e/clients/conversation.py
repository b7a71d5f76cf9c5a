"""What every client's conversation reads and tells: script.json in, one line of JSON out, and the end when stdin ends."""

import json
import sys
from pathlib import Path
from typing import Any

SCRIPT: dict[str, Any] = json.loads(Path(__file__).with_name("script.json").read_text("utf-8"))
MODEL, QUESTION, LONG = SCRIPT["model"], SCRIPT["question"], SCRIPT["long"]
TOOL = SCRIPT["tool"]
FORM = {"type": "json_schema", "json_schema": SCRIPT["json_schema"]}


def base_url() -> str:
    """Where the stack is."""
    return sys.argv[1]


def stop_in(text: str) -> str:
    """A piece of an answer, to stop at when it is asked for again."""
    return text[SCRIPT["stop_from"] : SCRIPT["stop_to"]]


def second_turn(answer: str) -> list[dict[str, str]]:
    """The conversation goes on."""
    return [*QUESTION, {"role": "assistant", "content": answer}, SCRIPT["again"]]


def failure(error: Exception) -> dict[str, Any]:
    """What a client made of a refusal."""
    return {
        "class": type(error).__name__,
        "status": getattr(error, "status_code", None),
        "code": getattr(error, "code", None),
        "param": getattr(error, "param", None),
    }


def choice(made: Any) -> dict[str, Any]:
    """One choice of a whole answer, by OpenAI's types."""
    return {"text": made.message.content, "reason": made.finish_reason}


def tokens(logprobs: Any) -> list[dict[str, Any]]:
    """The tokens of a choice's log-probabilities, by OpenAI's types."""
    return [
        {"bytes": one.bytes, "logprob": one.logprob, "top": len(one.top_logprobs)}
        for one in logprobs.content
    ]


def tell(results: dict[str, Any]) -> None:
    """Say all of it, and stay connected until nobody asks any more."""
    print(json.dumps(results), flush=True)
    sys.stdin.read()
