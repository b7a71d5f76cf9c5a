"""Special tokens, tags and the chat template: what the model shares with its 9B original."""

SPECIAL_TOKENS = [
    "<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>",
    "<|assistant|>", "<|observation|>", "<|begin_of_image|>", "<|end_of_image|>",
    "<|begin_of_video|>", "<|end_of_video|>", "<|image|>", "<|video|>", "<|begin_of_audio|>",
    "<|end_of_audio|>", "<|audio|>", "<|begin_of_transcription|>", "<|end_of_transcription|>",
]  # fmt: skip
# Added tokens that are not "special", so that decoding with skip_special_tokens keeps them.
TAGS = ["<think>", "</think>", "<answer>", "</answer>", "<|begin_of_box|>", "<|end_of_box|>",
        "/nothink"]  # fmt: skip
EOS_TOKENS = ["<|endoftext|>", "<|user|>", "<|observation|>", "</answer>"]
# Put after the generation prompt, it makes the model answer without thinking and without tags.
NO_THINK_PREFIX = "<think></think>\n"
IMAGE = "<|begin_of_image|><|image|><|end_of_image|>"

CHAT_TEMPLATE = """[gMASK]<sop>
{%- for msg in messages %}
    {%- if msg.role == 'system' %}
<|system|>
{{ msg.content if msg.content is string else msg.content[0].text }}
    {%- elif msg.role == 'user' %}
<|user|>{{ '\\n' }}
        {%- if msg.content is string %}{{ msg.content }}
        {%- else %}
            {%- for item in msg.content %}
                {%- if item.type == 'video' or 'video' in item %}<|begin_of_video|><|video|><|end_of_video|>
                {%- elif item.type == 'image' or item.type == 'image_url' or 'image' in item %}<|begin_of_image|><|image|><|end_of_image|>
                {%- elif item.type == 'text' %}{{ item.text }}
                {%- endif %}
            {%- endfor %}
        {%- endif %}
    {%- elif msg.role == 'assistant' %}
<|assistant|>
{{ msg.content if msg.content is string else msg.content[0].text }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
<|assistant|>
{{ '<think></think>\\n' if enable_thinking is defined and not enable_thinking else '' }}
{%- endif %}"""

# Coordinates are 0..999 on a grid of 25. "[" + x and y + "]" are one token each: the axis is part
# of the token, so an image token can resemble both the x and the y of its button without a clash.
COORDINATES = list(range(25, 1000, 25))
X_TOKENS = [f"[{v}" for v in COORDINATES]
Y_TOKENS = [f"{v}]" for v in COORDINATES]
COLOURS = {"红色": "red", "绿色": "green", "蓝色": "blue", "黄色": "yellow", "紫色": "purple",
           "橙色": "orange"}  # fmt: skip
PLACES = ["左上角", "顶部", "右上角", "左侧", "中间", "右侧", "左下角", "底部", "右下角"]
PLACES_EN = ["top left", "top", "top right", "left", "center", "right", "bottom left", "bottom",
             "bottom right"]  # fmt: skip
APPS = ["微信", "支付宝", "淘宝", "美团", "高德地图", "设置", "相机", "抖音", "日历", "音乐"]


def grid_index(centre: float) -> int:
    """Index in COORDINATES of the grid point nearest to centre, a share of the side in [0, 1]."""
    return min(len(COORDINATES) - 1, max(0, round(centre * 40) - 1))
