"""Cases 7 and 11: images as URLs."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_kit import examples

from services.runtime.errors import InvalidMediaError, RequestTooLargeError
from services.tokenizer.data_url import read_data_url

FIELD = "messages[1].content[0]"
HEAD = "data:image/png;base64,"


@given(st.binary(min_size=1, max_size=500))
@examples(100)
def test_a_data_url_gives_its_bytes(data: bytes) -> None:
    assert read_data_url(HEAD + base64.b64encode(data).decode(), FIELD, 1000) == data


@pytest.mark.parametrize("size_bytes", [196_607, 196_608, 196_609, 600_000])
def test_long_urls_are_read_in_slices(size_bytes: int) -> None:
    data = bytes(index * 7 % 256 for index in range(size_bytes))
    assert read_data_url(HEAD + base64.b64encode(data).decode(), FIELD, 10**6) == data


@pytest.mark.parametrize(
    "head",
    [
        pytest.param("DATA:IMAGE/PNG;BASE64,", id="upper-case"),
        pytest.param("data:image/svg+xml;base64,", id="plus"),
        pytest.param("data:image/png;charset=utf-8;base64,", id="parameter"),
    ],
)
def test_the_head_may_be_written_in_other_ways(head: str) -> None:
    assert read_data_url(head + "AAAA", FIELD, 10) == b"\0\0\0"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        pytest.param("data:image/png;base64", "no comma", id="no-comma"),
        pytest.param("data:image/png,AAAA", "must begin with", id="no-base64"),
        pytest.param("data:text/html;base64,AAAA", "must begin with", id="no-image"),
        pytest.param("data:,AAAA", "must begin with", id="bare"),
        pytest.param(HEAD + "AAA", "base64", id="bad-padding"),
        pytest.param(HEAD + "AA=A", "base64", id="padding-in-the-middle"),
        pytest.param(HEAD + "AAAA====", "base64", id="too-much-padding"),
        pytest.param(HEAD + "A A A A ", "base64", id="spaces"),
        pytest.param(HEAD + "AAAA\n", "base64", id="line-break"),
        pytest.param(HEAD + "%41AAA", "base64", id="percent"),
        pytest.param(HEAD + "-_-_", "base64", id="url-safe-alphabet"),
        pytest.param(HEAD + "图图图图", "base64", id="not-ascii"),
        pytest.param(HEAD + "A" * 262_142 + "==" + "AAAA", "base64", id="end-at-a-slice"),
    ],
)
def test_case_7_a_url_that_cannot_be_read_is_refused_by_the_part_s_name(
    url: str, problem: str
) -> None:
    with pytest.raises(InvalidMediaError, match=problem) as caught:
        read_data_url(url, FIELD, 10**6)
    assert caught.value.metadata["field"] == FIELD


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/a.png",
        "https://example.com/a.png",
        "HTTPS://example.com/a.png",
        "http://127.0.0.1/a.png",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "ftp://example.com/a.png",
        "//example.com/a.png",
        "/etc/passwd",
        " data:image/png;base64,AAAA",
        "",
    ],
)
def test_case_11_the_server_fetches_nothing_and_says_so(url: str) -> None:
    with pytest.raises(InvalidMediaError, match="the server fetches nothing"):
        read_data_url(url, FIELD, 1000)


def test_more_bytes_than_the_limit_are_refused_before_they_are_decoded() -> None:
    with pytest.raises(RequestTooLargeError, match="limit of 100 bytes"):
        read_data_url(HEAD + "?" * 1000, FIELD, 100)
