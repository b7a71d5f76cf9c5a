"""The conversation by openai-python's asynchronous client; what can be asked at once is."""

import asyncio
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


async def refused(ask: Any, **fields: Any) -> dict[str, Any]:
    try:
        await ask(**fields)
    except openai.APIError as error:
        return failure(error)
    raise AssertionError(f"{fields} was not refused")


async def main() -> None:
    async with openai.AsyncOpenAI(
        base_url=base_url(), api_key="EMPTY", timeout=60, max_retries=0
    ) as client:
        create = client.chat.completions.create
        ask = partial(create, model=MODEL, messages=QUESTION, temperature=0)
        whole = await ask()
        text = whole.choices[0].message.content
        stream = await ask(stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        second, schema, counted, two, stopped, cut = await asyncio.gather(
            ask(messages=second_turn(text)),
            ask(response_format=FORM, max_tokens=40),
            ask(logprobs=True, top_logprobs=2),
            ask(n=2),
            ask(stop=stop_in(text)),
            ask(max_tokens=3),
        )
        tools, beyond, missing = await asyncio.gather(
            refused(ask, tools=[TOOL]), refused(ask, top_p=0), refused(ask, model="gpt-17")
        )
        results = {
            "models": [model.id async for model in client.models.list()],
            "whole": choice(whole.choices[0]) | {"usage": whole.usage.to_dict()},
            "streamed": {
                "text": "".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
                "reason": [c.choices[0].finish_reason for c in chunks if c.choices][-1],
                "usage": chunks[-1].usage.to_dict(),
            },
            "second": choice(second.choices[0]),
            "schema": choice(schema.choices[0]),
            "logprobs": tokens(counted.choices[0].logprobs),
            "n": [choice(made) for made in two.choices],
            "stop": choice(stopped.choices[0]),
            "length": choice(cut.choices[0]),
            "tools": tools,
            "range": beyond,
            "missing": missing,
        }
        long = await ask(
            messages=LONG, stream=True, max_tokens=4000, extra_body={"ignore_eos": True}
        )
        results["aborted"] = (await anext(long)).choices[0].delta.content
        await long.close()
        await asyncio.to_thread(tell, results)


asyncio.run(main())
