"""The keys file on disk: what is written is read again, whole or not at all, and what is wrong is named."""

import fcntl
import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway import key_file
from services.gateway.caller import ANONYMOUS
from services.gateway.key_document import MAX_COUNT, KeyDocument, StoredKey, StoredLimits
from services.gateway.key_file import KeyFileError

NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._@:-]{0,63}\Z").filter(lambda n: n != ANONYMOUS)
MOMENTS = st.datetimes(
    min_value=datetime(2000, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)
)
COUNTS = st.none() | st.integers(1, MAX_COUNT)
GOOD = {
    "id": "0123456789ab",
    "name": "phone",
    "owner": "acme",
    "hash": "ab" * 32,
    "created": "2026-12-01T00:00:00Z",
}


def limited(counts: tuple[int | None, ...], priority: int | None, weight: float | None):
    concurrent, per_minute, burst, requests = counts
    return StoredLimits(
        max_concurrent=concurrent,
        tokens_per_minute=per_minute,
        burst_tokens=burst if per_minute else None,
        requests_per_minute=requests,
        first_priority=priority,
        weight=weight,
    )


LIMITS = st.builds(
    limited,
    st.tuples(COUNTS, COUNTS, COUNTS, COUNTS),
    st.none() | st.integers(-100, 100),
    st.none() | st.floats(0.001, 1000),
)
KEYS = st.builds(
    StoredKey,
    id=st.from_regex(r"\A[0-9a-f]{12}\Z"),
    name=NAMES,
    owner=NAMES,
    hash=st.from_regex(r"\A[0-9a-f]{64}\Z"),
    created=MOMENTS,
    expires=st.none() | MOMENTS,
    disabled=st.booleans(),
    limits=LIMITS,
    models=st.none()
    | st.lists(st.text(min_size=1, max_size=128), min_size=1, max_size=4).map(tuple),
)


def document(*entries: object, version: object = 1) -> str:
    return json.dumps({"version": version, "keys": entries})


def put(folder: Path, text: str | bytes, mode: int = 0o600) -> Path:
    file = folder / "keys.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    file.chmod(mode)
    return file


@given(st.lists(KEYS, max_size=6, unique_by=(lambda key: key.id, lambda key: key.name)))
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_again(tmp_path_factory, keys):
    ids = {key.id for key in keys}
    written = KeyDocument(keys=tuple(key for key in keys if key.name not in ids))
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    key_file.write(file, written)
    assert key_file.read(file) == (written, [])


def test_a_written_file_is_its_owners_alone_and_nothing_else_is_left(tmp_path):
    file = tmp_path / "keys.json"
    before = os.umask(0)
    try:
        key_file.write(file, KeyDocument())
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [*tmp_path.iterdir()] == [file]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    file = put(tmp_path, document(GOOD))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(key_file.os, "fsync", full)
    with pytest.raises(KeyFileError, match="No space left"):
        key_file.write(file, KeyDocument())
    assert [key.name for key in key_file.read(file)[0].keys] == ["phone"]
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused_with_what_mends_it(tmp_path, mode):
    file = put(tmp_path, document(GOOD), mode)
    with pytest.raises(KeyFileError, match=f"chmod 600 {file}"):
        key_file.read(file)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o444])
def test_a_file_that_others_may_read_is_taken_with_a_warning(tmp_path, mode):
    read, warnings = key_file.read(put(tmp_path, document(GOOD), mode))
    assert len(read.keys) == 1
    (warning,) = warnings
    assert f"mode {mode:04o}" in warning


def without(name: str) -> dict[str, object]:
    return {key: value for key, value in GOOD.items() if key != name}


SECOND = {**GOOD, "id": "ba9876543210"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("", "Invalid JSON", id="empty"),
        pytest.param(document(GOOD)[:-9], "Invalid JSON", id="half"),
        pytest.param(b"\xff\xfe{}", "Invalid JSON", id="no UTF-8"),
        pytest.param("[]", "Input should be an object", id="list"),
        pytest.param(
            document(GOOD).replace('"id"', '"disabled": true, "disabled": false, "id"', 1),
            "'disabled' stands twice in one object",
            id="a name twice",
        ),
        pytest.param(
            '{"version": 1, "keys": [], "keys": []}', "'keys' stands twice", id="all keys twice"
        ),
        pytest.param(document(version=2), "version: Input should be 1", id="version"),
        pytest.param('{"keys": [], "kyes": []}', "kyes: Extra inputs", id="unknown key"),
        pytest.param(document(without("hash")), "keys[0].hash: Field required", id="no hash"),
        pytest.param(
            document(GOOD, {**GOOD, "hash": "x" * 64}),
            "keys[1].hash: String should match",
            id="bad hash",
        ),
        pytest.param(
            document({**GOOD, "disabled": "yes"}), "keys[0].disabled: Input should be", id="strict"
        ),
        pytest.param(
            document({**GOOD, "created": "2026-12-01T00:00:00"}),
            "keys[0].created: Input should have timezone info",
            id="no time zone",
        ),
        pytest.param(
            document({**GOOD, "name": "a\nb"}), "keys[0].name: String should match", id="name"
        ),
        pytest.param(
            document({**GOOD, "owner": ANONYMOUS}), "'anonymous' is who comes", id="owner"
        ),
        pytest.param(
            document({**GOOD, "limits": {"max_concurrent": 0}}),
            "keys[0].limits.max_concurrent: Input should be greater",
            id="limit",
        ),
        pytest.param(
            document({**GOOD, "limits": {"weight": float("nan")}}),
            "keys[0].limits.weight: Input should be a finite number",
            id="NaN",
        ),
        pytest.param(
            document({**GOOD, "limits": {"max_concurent": 1}}),
            "keys[0].limits.max_concurent: Extra inputs",
            id="misspelt limit",
        ),
        pytest.param(
            document({**GOOD, "limits": {"burst_tokens": 5}}),
            "keys[0].limits: burst_tokens means nothing without tokens_per_minute",
            id="burst alone",
        ),
        pytest.param(document({**GOOD, "models": []}), "keys[0].models: Tuple", id="no models"),
        pytest.param(document(GOOD, GOOD), "id '0123456789ab' stands there twice", id="id twice"),
        pytest.param(document(GOOD, SECOND), "name 'phone' stands there twice", id="name twice"),
        pytest.param(
            document(GOOD, {**SECOND, "name": GOOD["id"]}),
            "name '0123456789ab' is the id of a key",
            id="name is an id",
        ),
    ],
)
def test_a_broken_file_is_refused_by_the_place_and_never_by_what_stands_there(tmp_path, text, told):
    file = put(tmp_path, text)
    with pytest.raises(KeyFileError) as refused:
        key_file.read(file)
    message = str(refused.value)
    assert all(line.startswith(f"{file}: ") for line in message.splitlines())
    assert told in message
    assert str(GOOD["hash"]) not in message


def test_a_revoked_keys_name_may_be_given_again(tmp_path):
    text = document({**GOOD, "disabled": True}, SECOND)
    assert len(key_file.read(put(tmp_path, text))[0].keys) == 2


def test_a_file_that_is_not_there_says_who_makes_it(tmp_path):
    with pytest.raises(KeyFileError, match=r"No such file.*hotline key add NAME --file"):
        key_file.read(tmp_path / "keys.json")


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    for path in (pipe, tmp_path):
        with pytest.raises(KeyFileError, match=r"no regular file|Is a directory"):
            key_file.read(path)


def test_a_file_above_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(key_file, "MAX_FILE_BYTES", 100)
    with pytest.raises(KeyFileError, match="larger than the limit of 100 bytes"):
        key_file.read(put(tmp_path, document(GOOD)))


def test_a_link_stays_a_link_and_what_it_names_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    real = put(tmp_path / "real", document(GOOD))
    (link := tmp_path / "keys.json").symlink_to(real)
    with key_file.changing(link) as path:
        key_file.write(path, KeyDocument())
    assert link.is_symlink()
    assert key_file.read(real)[0].keys == ()


def test_a_second_writer_waits_and_not_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(key_file, "LOCK_TIMEOUT_S", 0.1)
    file = tmp_path / "keys.json"
    with (
        key_file.changing(file),
        pytest.raises(KeyFileError, match="another command"),
        key_file.changing(file),
    ):
        pass


def test_the_lock_is_free_again_after_a_writer_that_failed(tmp_path):
    file = tmp_path / "keys.json"
    with pytest.raises(ValueError, match="mine"), key_file.changing(file):
        raise ValueError("mine")
    with (tmp_path / ".keys.json.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_folder_that_is_not_there_is_an_error_in_a_line(tmp_path):
    with pytest.raises(KeyFileError, match="No such file"), key_file.changing(tmp_path / "no/keys"):
        pass
