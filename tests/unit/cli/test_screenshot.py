"""The image of `hotline chat` is checked before anything is sent."""

from pathlib import Path

import pytest

from services.cli import screenshot
from services.cli.screenshot import read_screenshot

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(PNG + b"rest", id="PNG"),
        pytest.param(b"\xff\xd8\xff\xe0rest", id="JPEG"),
        pytest.param(b"RIFF\x00\x00\x00\x00WEBPVP8 ", id="WebP"),
        pytest.param(b"GIF89arest", id="GIF"),
        pytest.param(b"BMrest", id="BMP"),
    ],
)
def test_an_image_is_read_as_it_is(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "named.anything"
    file.write_bytes(data)
    assert read_screenshot(file) == data


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"", "the file is empty", id="empty"),
        pytest.param(b"hello", "not an image in PNG, JPEG, WebP, GIF or BMP", id="text"),
        pytest.param(b"RIFF\x00\x00\x00\x00WAVEfmt ", "not an image", id="sound"),
        pytest.param(PNG[:-1], "not an image", id="cut"),
    ],
)
def test_what_is_no_image_is_named(tmp_path: Path, data: bytes, problem: str) -> None:
    file = tmp_path / "screen.png"
    file.write_bytes(data)
    with pytest.raises(ValueError, match=problem) as caught:
        read_screenshot(file)
    assert str(caught.value).startswith(f"{file}: ")


def test_the_limit_is_the_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screenshot, "LIMIT_BYTES", 2**20)
    file = tmp_path / "screen.png"
    file.write_bytes(PNG.ljust(2**20, b"x"))
    assert len(read_screenshot(file)) == 2**20
    file.write_bytes(PNG.ljust(2**20 + 1, b"x"))
    with pytest.raises(ValueError, match=r"screen.png: larger than 1 MiB"):
        read_screenshot(file)


def test_the_limit_is_the_tokenizers() -> None:
    from services.tokenizer.settings import TokenizerSettings

    limit = TokenizerSettings.model_fields["max_image_bytes"].default
    assert limit == screenshot.LIMIT_BYTES


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.png: No such file"):
        read_screenshot(tmp_path / "none.png")
    with pytest.raises(ValueError, match="Is a directory"):
        read_screenshot(tmp_path)


def test_a_device_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(ValueError, match="/dev/zero: larger than 20 MiB"):
        read_screenshot(Path("/dev/zero"))
