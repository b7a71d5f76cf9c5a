"""Chat templates of other kinds than the default model's, on its tokenizer."""

import json
from pathlib import Path

from tokenizer_kit import MODEL_PATH

_CONTENT = """\
{%- macro shown(content) %}{% if content is string %}{{ content }}{% else %}{% for item in content %}\
{% if item.type == 'image' %}<|begin_of_image|><|image|><|end_of_image|>{% else %}{{ item.text }}{% endif %}\
{% endfor %}{% endif %}{% endmacro -%}
"""

CHATML = (
    _CONTENT
    + """\
{%- if messages[0].role != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}
{%- if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ shown(message.content) }}<|im_end|>\n{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant\n\
{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"""
)

STRIPPING = CHATML.replace(
    "{{ shown(message.content) }}",
    "{% if message.role == 'assistant' %}{{ shown(message.content).split('</think>')[-1].lstrip('\\n') }}"
    "{% else %}{{ shown(message.content) }}{% endif %}",
)
"""As Qwen3's: thoughts of earlier turns are left out."""


def folder_with(path: Path, template: str) -> Path:
    """The default model's folder without weights, with this template, ChatML's control tokens in place of two others."""
    for file in MODEL_PATH.iterdir():
        if file.suffix == ".json":
            text = file.read_text(encoding="utf-8")
            if file.name.startswith("tokenizer"):
                text = text.replace("<sop>", "<|im_start|>").replace("<eop>", "<|im_end|>")
            (path / file.name).write_text(text, encoding="utf-8")
    generation = json.loads((path / "generation_config.json").read_text(encoding="utf-8"))
    generation["eos_token_id"] = [3044, 3049, 3068]
    (path / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    (path / "chat_template.jinja").write_text(template, encoding="utf-8")
    return path
