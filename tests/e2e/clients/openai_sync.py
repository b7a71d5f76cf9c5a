"""The conversation by openai-python's synchronous client."""

from functools import partial
from typing import Any

import openai
from conversation import (
    FORM,
    LONG,
    MODEL,
    QUESTION,
    TOOL,
    base_url,
    choice,
    failure,
    second_turn,
    stop_in,
    tell,
    tokens,
)


def refused(ask: Any, **fields: Any) -> dict[str, Any]:
    try:
        ask(**fields)
    except openai.APIError as error:
        return failure(error)
    raise AssertionError(f"{fields} was not refused")


def main() -> None:
    with openai.OpenAI(base_url=base_url(), api_key="EMPTY", timeout=60, max_retries=0) as client:
        create = client.chat.completions.create
        ask = partial(create, model=MODEL, messages=QUESTION, temperature=0)
        whole = ask()
        text = whole.choices[0].message.content
        chunks = list(ask(stream=True, stream_options={"include_usage": True}))
        counted = ask(logprobs=True, top_logprobs=2)
        results = {
            "models": [model.id for model in client.models.list()],
            "whole": choice(whole.choices[0]) | {"usage": whole.usage.to_dict()},
            "streamed": {
                "text": "".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
                "reason": [c.choices[0].finish_reason for c in chunks if c.choices][-1],
                "usage": chunks[-1].usage.to_dict(),
            },
            "second": choice(ask(messages=second_turn(text)).choices[0]),
            "schema": choice(ask(response_format=FORM, max_tokens=40).choices[0]),
            "logprobs": tokens(counted.choices[0].logprobs),
            "n": [choice(made) for made in ask(n=2).choices],
            "stop": choice(ask(stop=stop_in(text)).choices[0]),
            "length": choice(ask(max_tokens=3).choices[0]),
            "tools": refused(ask, tools=[TOOL]),
            "range": refused(ask, top_p=0),
            "missing": refused(ask, model="gpt-17"),
        }
        stream = ask(messages=LONG, stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
        results["aborted"] = next(iter(stream)).choices[0].delta.content
        stream.close()
        tell(results)


main()
