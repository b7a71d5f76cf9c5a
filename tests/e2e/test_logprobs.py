"""Log-probabilities of the real engine, through every process, are those of transformers' own softmax."""

from pathlib import Path

import openai
import pytest

# transformers feeds torch tensors to numpy 2 in a way that numpy will drop.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

MODEL = Path(__file__).resolve().parents[2] / "deploy" / "models" / "autoglm-phone-tiny"
TEXT = "count to 50"
TOLERANCE = 1e-3


def test_they_are_transformers_log_softmax_of_the_sampled_tokens(stack):
    import torch
    from transformers import AutoProcessor, Glm4vForConditionalGeneration

    client = openai.OpenAI(base_url=stack.base_url, api_key="EMPTY", max_retries=0)
    answer = client.chat.completions.create(
        model="autoglm-phone-tiny",
        messages=[{"role": "user", "content": [{"type": "text", "text": TEXT}]}],
        temperature=0,
        max_tokens=32,
        logprobs=True,
        top_logprobs=3,
    )
    client.close()
    [choice] = answer.choices
    content = choice.logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in content) == choice.message.content.encode()

    processor = AutoProcessor.from_pretrained(MODEL)
    model = Glm4vForConditionalGeneration.from_pretrained(MODEL, dtype=torch.float32).eval()
    messages = [{"role": "user", "content": [{"type": "text", "text": TEXT}]}]
    prompt = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    inputs = processor(text=[prompt], return_tensors="pt")
    with torch.no_grad():
        output = model.generate(
            **inputs,
            max_new_tokens=len(content),
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
    ids = output.sequences[0, inputs["input_ids"].shape[1] :].tolist()
    shown = [processor.tokenizer.decode([token_id]) for token_id in ids]
    assert [entry.token for entry in content] == shown[: len(content)]
    for entry, token_id, logits in zip(content, ids, output.logits, strict=False):
        expected = torch.log_softmax(logits[0].float(), dim=-1)
        assert entry.logprob == pytest.approx(expected[token_id].item(), abs=TOLERANCE)
        best = expected.topk(3).values.tolist()
        assert [one.logprob for one in entry.top_logprobs] == pytest.approx(best, abs=TOLERANCE)
