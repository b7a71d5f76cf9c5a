"""What first requests would pay for, paid before the service says SERVING."""

import io

from PIL import Image as Picture

from services.tokenizer.conversation import Conversation, Image, Message, Role, Text
from services.tokenizer.model import Model
from services.tokenizer.output_text import OutputOptions, OutputText

SCREEN = (1080, 2400)
"""Width and height of a large phone's screen."""


def warm_up(model: Model, with_image: bool) -> None:
    """Render a text and a screenshot, and detokenise. Raises what a request would."""
    text = model.renderer.render(Conversation([Message(Role.USER, "Hi")]))
    if with_image:
        screen = Image("warm-up", _screenshot())
        model.renderer.render(Conversation([Message(Role.USER, [screen, Text("Hi")])]))
    output = OutputText(model.output, OutputOptions(stop=("never",), split_reasoning=True))
    output.push(text.token_ids)
    output.end()


def _screenshot() -> bytes:
    file = io.BytesIO()
    Picture.new("RGB", SCREEN, (40, 80, 120)).save(file, "PNG", compress_level=1)
    return file.getvalue()
