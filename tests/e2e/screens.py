"""Screenshots for the tests: one coloured button on a plain phone screen."""

import base64
import io

from PIL import Image, ImageDraw

COLOURS = {"红色": (220, 40, 40), "蓝色": (40, 80, 220), "绿色": (40, 170, 70)}


def screen(
    colour: str = "红色",
    centre: tuple[float, float] = (0.5, 0.75),
    size: tuple[int, int] = (540, 1200),
) -> Image.Image:
    """A screen of `size` pixels with one button whose centre is given as shares of width and height."""
    width, height = size
    image = Image.new("RGB", size, (245, 245, 245))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, width, round(height * 0.035)), fill=(30, 30, 30))
    x, y = centre[0] * width, centre[1] * height
    half_w, half_h = width * 0.22, height * 0.05
    box = (x - half_w, y - half_h, x + half_w, y + half_h)
    draw.rounded_rectangle(box, radius=half_h / 3, fill=COLOURS[colour])
    return image


def png(image: Image.Image) -> bytes:
    """The image as a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def data_url(data: bytes, kind: str = "image/png") -> str:
    """File bytes as a data URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def question(text: str, *urls: str) -> list[dict[str, object]]:
    """One user message: the images, then the text."""
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return [{"role": "user", "content": [*images, {"type": "text", "text": text}]}]
