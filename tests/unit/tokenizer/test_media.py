"""Cases 4 to 8: what images are accepted, and what the model is shown of them."""

import contextlib
import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from tokenizer_kit import Encoded, examples

from services.runtime.errors import InvalidMediaError, RequestTooLargeError
from services.tokenizer.media import MediaLimits, decode_image

FIELD = "messages[1].content[0]"
LIMITS = MediaLimits(max_bytes=1024 * 1024, max_pixels=30_000_000)
RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


def decode(data: bytes, limits: MediaLimits = LIMITS) -> NDArray[np.uint8]:
    return decode_image(data, FIELD, limits)


def two_halves() -> Image.Image:
    """40 x 20, the left half red, the right half blue."""
    image = Image.new("RGB", (40, 20), RED)
    image.paste(BLUE, (20, 0, 40, 20))
    return image


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *others: bytes) -> bytes:
    """A PNG by hand, for what Pillow does not write."""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    data = chunk(b"IHDR", head) + b"".join(others) + chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + data + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("kind", "options", "tolerance"),
    [
        pytest.param("PNG", {}, 0, id="png"),
        pytest.param("BMP", {}, 0, id="bmp"),
        pytest.param("WEBP", {"lossless": True}, 0, id="webp"),
        pytest.param("GIF", {}, 0, id="gif"),
        pytest.param("JPEG", {"quality": 95}, 12, id="jpeg"),
        pytest.param("JPEG", {"progressive": True, "quality": 95}, 12, id="progressive-jpeg"),
    ],
)
def test_each_accepted_format_gives_its_pixels(
    encoded: Encoded, kind: str, options: dict[str, object], tolerance: int
) -> None:
    pixels = decode(encoded(two_halves(), kind, **options))
    assert pixels.shape == (20, 40, 3)
    assert pixels.dtype == np.uint8
    expected = np.asarray(two_halves()).astype(int)
    assert np.abs(pixels.astype(int) - expected)[:, :16].max() <= tolerance


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_case_8_the_exif_orientation_is_applied(encoded: Encoded, kind: str) -> None:
    exif = Image.Exif()
    exif[274] = 6  # the camera was held upright: the stored picture is turned clockwise to be shown
    pixels = decode(encoded(two_halves(), kind, exif=exif, quality=95, lossless=True))
    assert pixels.shape == (40, 20, 3)
    assert pixels[5, 10, 0] > 200
    assert pixels[35, 10, 2] > 200


@pytest.mark.parametrize("orientation", range(2, 9))
def test_case_8_every_orientation_is_as_pillow_has_it(encoded: Encoded, orientation: int) -> None:
    from PIL import ImageOps

    corner = Image.new("RGB", (8, 4), "white")
    corner.paste(RED, (0, 0, 2, 1))
    exif = Image.Exif()
    exif[274] = orientation
    data = encoded(corner, "PNG", exif=exif)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert np.array_equal(decode(data), np.asarray(expected))


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_case_8_transparency_is_composited_on_white(encoded: Encoded, kind: str) -> None:
    image = Image.new("RGBA", (10, 10), (255, 0, 0, 0))
    image.paste((0, 0, 255, 255), (0, 0, 5, 10))
    pixels = decode(encoded(image, kind, lossless=True))
    assert tuple(pixels[0, 0]) == BLUE
    assert tuple(pixels[0, 9]) == WHITE


def test_case_8_half_transparent_pixels_are_mixed_with_white(encoded: Encoded) -> None:
    pixels = decode(encoded(Image.new("RGBA", (4, 4), (0, 0, 0, 128))))
    assert 120 <= int(pixels[0, 0, 0]) <= 135


def test_case_8_a_palette_with_transparent_entries_is_composited_on_white(
    encoded: Encoded,
) -> None:
    image = Image.new("P", (10, 10), 0)
    image.putpalette([*RED, *BLUE])
    image.paste(1, (5, 0, 10, 10))
    pixels = decode(encoded(image, "PNG", transparency=bytes([0, 255])))
    assert tuple(pixels[0, 0]) == WHITE
    assert tuple(pixels[0, 9]) == BLUE


def test_case_8_grey_with_alpha_is_composited_on_white(encoded: Encoded) -> None:
    assert tuple(decode(encoded(Image.new("LA", (6, 6), (0, 0))))[0, 0]) == WHITE


@pytest.mark.parametrize(
    ("colour", "row", "transparency"),
    [
        pytest.param(0, b"\x07\x09", b"\x00\x07", id="grey"),
        pytest.param(2, b"\x07\x07\x07\x09\x09\x09", b"\x00\x07" * 3, id="colour"),
    ],
)
def test_case_8_a_colour_declared_transparent_is_white(
    colour: int, row: bytes, transparency: bytes
) -> None:
    data = png(2, 1, 8, colour, b"\x00" + row, chunk(b"tRNS", transparency))
    assert decode(data).tolist() == [[[255] * 3, [9] * 3]]


@pytest.mark.parametrize(
    ("colour", "channels"), [pytest.param(0, 1, id="grey"), pytest.param(2, 3, id="colour")]
)
def test_case_8_of_16_bit_samples_the_upper_8_bits_count(colour: int, channels: int) -> None:
    row = b"\x00" + b"\x12\xff" * channels + b"\xfe\x01" * channels
    assert decode(png(2, 1, 16, colour, row)).tolist() == [[[0x12] * 3, [0xFE] * 3]]


def test_case_8_a_transparent_16_bit_grey_is_white() -> None:
    data = png(2, 1, 16, 0, b"\x00\x12\x34\x12\x35", chunk(b"tRNS", b"\x12\x34"))
    assert decode(data).tolist() == [[[255] * 3, [0x12] * 3]]


def test_case_8_one_bit_images_are_black_and_white(encoded: Encoded) -> None:
    assert decode(encoded(Image.new("1", (4, 4), 1))).min() == 255


def test_case_8_cmyk_becomes_rgb(encoded: Encoded) -> None:
    pixels = decode(encoded(two_halves().convert("CMYK"), "JPEG", quality=95))
    assert pixels[10, 5, 0] > 200
    assert pixels[10, 5, 2] < 60


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_case_8_the_first_frame_of_an_animation_is_taken(encoded: Encoded, kind: str) -> None:
    frames = [Image.new("RGB", (12, 12), colour) for colour in (RED, BLUE)]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)
    assert tuple(decode(data)[6, 6]) == RED


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"<!doctype html><html></html>", id="html"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"%PDF-1.4", id="pdf"),
        pytest.param(b"\x00\x00\x00\x18ftypavif", id="avif"),
        pytest.param(b"II*\x00", id="tiff"),
        pytest.param(b"P6 1 1 255 abc", id="ppm"),
        pytest.param(b"%!PS-Adobe-3.0 EPSF-3.0", id="eps"),
        pytest.param(b"\x89PNG\r\n\x1a\n", id="png-without-header"),
        pytest.param(b"\xff\xd8\xff\xe0 no jpeg", id="jpeg-magic-only"),
        pytest.param(b"RIFF\x00\x00\x00\x00WEBPVP8 ", id="webp-magic-only"),
        pytest.param(b"GIF89a", id="gif-magic-only"),
        pytest.param(b"BM" + bytes(60), id="bmp-magic-only"),
    ],
)
def test_case_7_what_is_no_image_is_refused_by_the_part_s_name(data: bytes) -> None:
    with pytest.raises(InvalidMediaError) as caught:
        decode(data)
    assert caught.value.message.startswith("messages[1].content[0]: ")


@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=["baseline", "progressive"])
def test_case_7_a_jpeg_cut_128_bytes_short_is_refused(
    encoded: Encoded, options: dict[str, bool]
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), "JPEG", **options)
    with pytest.raises(InvalidMediaError, match=r"messages\[1\]\.content\[0\].*cut short"):
        decode(data[:-128])


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "BMP"])
def test_case_7_other_images_cut_short_are_refused(encoded: Encoded, kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), kind)
    with pytest.raises(InvalidMediaError):
        decode(data[: len(data) // 2])


@pytest.mark.parametrize(
    ("width", "height", "problem"),
    [
        pytest.param(60_000, 60_000, "more than the limit of 30000000", id="bomb"),
        pytest.param(2**31 - 1, 2**31 - 1, "more than the limit", id="largest-header"),
        pytest.param(5477, 5478, "more than the limit", id="just-above"),
        pytest.param(201, 1, "at most 200 times", id="case-5-wide"),
        pytest.param(1, 201, "at most 200 times", id="case-5-tall"),
    ],
)
def test_case_6_size_and_shape_are_refused_from_the_header_alone(
    width: int, height: int, problem: str
) -> None:
    header_only = png(width, height, 8, 2, b"")
    with pytest.raises(InvalidMediaError, match=problem):
        decode(header_only)


@pytest.mark.parametrize("side", [4000, 5121])
def test_case_6_large_images_below_the_limit_are_decoded(encoded: Encoded, side: int) -> None:
    data = encoded(Image.new("L", (side, side), 7), "PNG", compress_level=1)
    assert decode(data).shape == (side, side, 3)


def test_more_bytes_than_the_limit_are_refused(encoded: Encoded) -> None:
    with pytest.raises(RequestTooLargeError, match="limit of 10 bytes"):
        decode(encoded(), MediaLimits(10, 1_000_000))


def test_metadata_that_cannot_be_read_does_not_matter(encoded: Encoded) -> None:
    data = encoded(two_halves(), "PNG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff")
    assert decode(data).shape == (20, 40, 3)


@given(st.sampled_from(["PNG", "JPEG", "WEBP", "GIF", "BMP"]), st.data())
@examples(400)
def test_no_broken_image_makes_the_decoder_fail_otherwise_than_by_name(
    encoded: Encoded, kind: str, data: st.DataObject
) -> None:
    file = bytearray(encoded(two_halves(), kind))
    edits = st.tuples(st.integers(2, len(file) - 1), st.integers(0, 255))
    for position, value in data.draw(st.lists(edits, min_size=1, max_size=8)):
        file[position] = value
    with contextlib.suppress(InvalidMediaError):
        decode(bytes(file), MediaLimits(1024 * 1024, 1_000_000))
