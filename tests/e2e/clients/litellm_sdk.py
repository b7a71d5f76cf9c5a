"""The conversation by LiteLLM's SDK, by its `openai/` prefix for servers of this kind."""

import os
from functools import partial
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = (
    "True"  # else importing it asks the internet for prices
)

import litellm
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
    tokens,
)


def choice(made: Any) -> dict[str, Any]:
    """As it was sent: LiteLLM takes a whole answer's <think>...</think> out of its content, a stream's not."""
    message = made.message
    thought = getattr(message, "reasoning_content", None)
    before = f"<think>{thought}</think>" if thought else ""
    return {"text": before + message.content, "reason": made.finish_reason}


def refused(ask: Any, **fields: Any) -> dict[str, Any]:
    try:
        ask(**fields)
    except (litellm.BadRequestError, litellm.NotFoundError) as error:
        return failure(error)
    raise AssertionError(f"{fields} was not refused")


def main() -> None:
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    ask = partial(
        litellm.completion,
        model=f"openai/{MODEL}",
        messages=QUESTION,
        temperature=0,
        api_base=base_url(),
        api_key="EMPTY",
        timeout=60,
        max_retries=0,
    )
    whole = ask()
    text = choice(whole.choices[0])["text"]
    chunks = list(ask(stream=True, stream_options={"include_usage": True}))
    counted = ask(logprobs=True, top_logprobs=2)
    results = {
        "models": litellm.get_valid_models(
            check_provider_endpoint=True,
            custom_llm_provider="openai",
            api_key="EMPTY",
            api_base=base_url().removesuffix("/v1"),
        ),
        "whole": choice(whole.choices[0]) | {"usage": whole.usage.model_dump(exclude_none=True)},
        "streamed": {
            "text": "".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
            "reason": [
                c.choices[0].finish_reason
                for c in chunks
                if c.choices and c.choices[0].finish_reason
            ][-1],
            "usage": chunks[-1].usage.model_dump(exclude_none=True),
        },
        "second": choice(ask(messages=second_turn(text)).choices[0]),
        "schema": choice(ask(response_format=FORM, max_tokens=40).choices[0]),
        "logprobs": tokens(counted.choices[0].logprobs),
        "n": [choice(made) for made in ask(n=2).choices],
        "stop": choice(ask(stop=stop_in(text)).choices[0]),
        "length": choice(ask(max_tokens=3).choices[0]),
        "tools": refused(ask, tools=[TOOL]),
        "range": refused(ask, top_p=0),
        "missing": refused(ask, model="openai/gpt-17"),
    }
    stream = ask(messages=LONG, stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
    results["aborted"] = next(iter(stream)).choices[0].delta.content
    stream.completion_stream.close()
    tell(results)


main()
