"""What first requests would pay for, paid before the service says SERVING."""

import io
from collections.abc import Sequence

from PIL import Image as Picture

from services.tokenizer.conversation import Answer, Conversation, Image, Message, Role, Text
from services.tokenizer.model import Model
from services.tokenizer.output_text import OutputOptions, OutputText

SCREEN = (1080, 2400)
"""Width and height of a large phone's screen."""


def warm_up(model: Model, max_images: int) -> None:
    """Render a text and, where there may be images, a screenshot; detokenise. Raises what a request would."""
    token_ids: Sequence[int] = range(min(8, model.output.vocabulary_size))
    renderer = model.renderer
    if renderer is not None:
        token_ids = renderer.render(Conversation([Message(Role.USER, "Hi")])).token_ids
        after = Answer("warm-up", token_ids)
        if renderer.goes_on:
            renderer.render(Conversation([Message(Role.USER, "Hi")], after=after))
        if max_images and renderer.sees_images:
            screen = Image("warm-up", _screenshot())
            renderer.render(Conversation([Message(Role.USER, [screen, Text("Hi")])]))
    output = OutputText(model.output, OutputOptions(stop=("never",), split_reasoning=True))
    output.push(token_ids)
    output.end()


def _screenshot() -> bytes:
    file = io.BytesIO()
    Picture.new("RGB", SCREEN, (40, 80, 120)).save(file, "PNG", compress_level=1)
    return file.getvalue()
