"""A model whose template has tools: the tiny default model's files with another template, in Hermes's style."""

from pathlib import Path

MODEL = Path(__file__).resolve().parents[1] / "deploy" / "models" / "autoglm-phone-tiny"
_TEMPLATE = """[gMASK]<sop>
{%- if tools %}
<|system|>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
<|observation|>
{{ message.content }} ({{ message.tool_call_id }})
{%- else %}
<|{{ message.role }}|>
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content -%}
{{ part.text if part.type == 'text' else '<|begin_of_image|><|image|><|end_of_image|>' }}
{%- endfor %}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
<|assistant|>
{% endif %}"""


def tool_model(folder: Path) -> Path:
    """The model's folder, made in `folder`."""
    made = folder / MODEL.name
    made.mkdir()
    for file in MODEL.iterdir():
        if file.name == "chat_template.jinja":
            (made / file.name).write_text(_TEMPLATE, "utf-8")
        elif file.suffix != ".md":
            (made / file.name).symlink_to(file)
    return made


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "What the weather will be.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
TAP = {
    "type": "function",
    "function": {
        "name": "tap",
        "parameters": {
            "type": "object",
            "properties": {"on": {"type": "boolean"}},
            "required": ["on"],
            "additionalProperties": False,
        },
    },
}
TWO_CALLS = (
    'Well. <tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln", "days": 3}}\n</tool_call>\n'
    '<tool_call>\n{"name": "tap", "arguments": {"on": true}}\n</tool_call>'
)
