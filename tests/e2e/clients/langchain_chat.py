"""The conversation by langchain-openai, as phone agents set it up."""

from typing import Any

import httpx
import openai
from conversation import (
    FORM,
    LONG,
    MODEL,
    QUESTION,
    TOOL,
    base_url,
    failure,
    second_turn,
    stop_in,
    tell,
)
from langchain_core.messages import convert_to_messages
from langchain_openai import ChatOpenAI


def chat(**fields: Any) -> ChatOpenAI:
    given = {"model": MODEL, "temperature": 0, "timeout": 60, "max_retries": 0}
    return ChatOpenAI(base_url=base_url(), api_key="EMPTY", **given | fields)


def message(made: Any) -> dict[str, Any]:
    return {"text": made.content, "reason": made.response_metadata["finish_reason"]}


def usage(made: Any) -> dict[str, int]:
    """By OpenAI's names."""
    told = made.usage_metadata
    return {
        "prompt_tokens": told["input_tokens"],
        "completion_tokens": told["output_tokens"],
        "total_tokens": told["total_tokens"],
    }


def refused(llm: Any) -> dict[str, Any]:
    try:
        llm.invoke(QUESTION)
    except openai.APIError as error:
        # langchain-openai raises a class of its own below openai's for some.
        [name] = {c.__name__ for c in type(error).__mro__ if c.__module__ == "openai"} & {
            "BadRequestError",
            "NotFoundError",
        }
        return failure(error) | {"class": name}
    raise AssertionError("it was not refused")


def main() -> None:
    llm = chat()
    whole = llm.invoke(QUESTION)
    streamed = None
    for chunk in chat(stream_usage=True).stream(QUESTION):
        streamed = chunk if streamed is None else streamed + chunk
    counted = chat(logprobs=True, top_logprobs=2).invoke(QUESTION)
    two = chat(n=2).generate([convert_to_messages(QUESTION)]).generations[0]
    results = {
        "models": [entry["id"] for entry in httpx.get(f"{base_url()}/models").json()["data"]],
        "whole": message(whole) | {"usage": usage(whole)},
        "streamed": message(streamed) | {"usage": usage(streamed)},
        "second": message(llm.invoke(second_turn(whole.content))),
        "schema": message(llm.bind(response_format=FORM, max_tokens=40).invoke(QUESTION)),
        "logprobs": [
            {
                "bytes": one["bytes"],
                "logprob": one["logprob"],
                "top": len(one["top_logprobs"]),
            }
            for one in counted.response_metadata["logprobs"]["content"]
        ],
        "n": [{"text": made.text, "reason": made.generation_info["finish_reason"]} for made in two],
        "stop": message(llm.invoke(QUESTION, stop=[stop_in(whole.content)])),
        "length": message(chat(max_tokens=3).invoke(QUESTION)),
        "tools": refused(llm.bind_tools([TOOL])),
        "range": refused(chat(top_p=0)),
        "missing": refused(chat(model="gpt-17")),
    }
    stream = chat(max_tokens=4000, extra_body={"ignore_eos": True}).stream(LONG)
    results["aborted"] = next(chunk.content for chunk in stream if chunk.content)
    stream.close()
    tell(results)


main()
