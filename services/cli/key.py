"""`hotline key`: makes API keys, lists them, revokes them. The keys file is the gateway's; docs/keys.md."""

import argparse
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from services.cli.key_options import KEYS_FILE, limits
from services.gateway import key_file
from services.gateway.api_key import key_hash, new_key
from services.gateway.key_document import KeyDocument, StoredKey, StoredLimits, problems
from services.gateway.key_file import KeyFileError

_DURATION = re.compile(r"(\d{1,5})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
_RELOAD = (
    "running gateways take it on SIGHUP: kill -HUP the pid of `hotline up`, which passes it on"
)


class _RefusedError(Exception):
    """What was asked for cannot be done; the message says why."""


def main(options: argparse.Namespace) -> int:
    """Run one of add, list, revoke; returns 0, or 1 with the reason on standard error."""
    try:
        path = _path(options)
        if options.action == "add":
            _add(path, options)
        elif options.action == "list":
            _list(path, options.json)
        else:
            _revoke(path, options.key)
    except (_RefusedError, KeyFileError) as error:
        for line in str(error).splitlines():
            _say(f"error: {line}")
        return 1
    return 0


def _path(options: argparse.Namespace) -> Path:
    if options.config is None:
        return options.file or KEYS_FILE
    # Only here: a gateway's machine has no YAML.
    from services.cli.configuration import ConfigurationError, find, load

    try:
        path = load(find(options.config)).gateway.keys_file
    except ConfigurationError as error:
        raise _RefusedError(str(error)) from None
    if path is None:
        raise _RefusedError(f"{options.config}: gateway.keys_file is not set there")
    return path


def _add(path: Path, options: argparse.Namespace) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    with key_file.changing(path) as real:
        old = _read(real) if real.exists() else KeyDocument()
        if any(key.name == options.name and not key.disabled for key in old.keys):
            raise _RefusedError(f"{options.name!r} is the name of a key already; revoke that first")
        key_id, text = new_key()
        try:
            key = StoredKey(
                id=key_id,
                name=options.name,
                owner=options.owner or key_id,
                hash=key_hash(text),
                created=now,
                expires=_moment(options.expires, now),
                limits=StoredLimits(**limits(options)),
                models=tuple(options.model) if options.model else None,
            )
            new = KeyDocument(keys=(*old.keys, key))
        except ValidationError as error:
            raise _RefusedError("\n".join(problems(error))) from None
        key_file.write(real, new)
    print(text)
    _say(f"{key.name} (id {key.id}, owner {key.owner}) is in {real}; the key is shown this once")
    _say(_RELOAD)


def _revoke(path: Path, wanted: str) -> None:
    with key_file.changing(path) as real:
        old = _read(real)
        found = [key for key in old.keys if key.id == wanted]
        found = found or [key for key in old.keys if key.name == wanted and not key.disabled]
        if not found:
            raise _RefusedError(f"{real}: no key in use has the id or name {wanted!r}")
        key = found[0]
        if key.disabled:
            _say(f"{key.name} (id {key.id}) is revoked already")
            return
        revoked = key.model_copy(update={"disabled": True})
        keys = tuple(revoked if one is key else one for one in old.keys)
        key_file.write(real, KeyDocument(keys=keys))
    _say(f"{key.name} (id {key.id}) is revoked in {real}")
    _say(_RELOAD)


def _list(path: Path, as_json: bool) -> None:
    keys, now = _read(path).keys, datetime.now(UTC)
    if as_json:
        shown = [
            {**key.model_dump(mode="json", exclude={"hash"}), "state": _state(key, now)}
            for key in keys
        ]
        print(json.dumps({"keys": shown}))
        return
    rows = [["id", "name", "owner", "state", "created", "expires", "limits", "models"]]
    rows += [_row(key, now) for key in keys]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())


def _row(key: StoredKey, now: datetime) -> list[str]:
    given = key.limits.model_dump(exclude_none=True)
    return [
        *(key.id, key.name, key.owner, _state(key, now), _shown(key.created)),
        "never" if key.expires is None else _shown(key.expires),
        " ".join(f"{name}={value}" for name, value in given.items()) or "none",
        "all" if key.models is None else " ".join(key.models),
    ]


def _shown(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")


def _state(key: StoredKey, now: datetime) -> str:
    if key.disabled:
        return "revoked"
    return "expired" if key.expired(now) else "active"


def _read(path: Path) -> KeyDocument:
    document, warnings = key_file.read(path)
    for warning in warnings:
        _say(f"warning: {warning}")
    return document


def _moment(text: str | None, now: datetime) -> datetime | None:
    """A date, a date and time (UTC unless it says otherwise), or a time from now."""
    if text is None:
        return None
    found = _DURATION.fullmatch(text)
    try:
        if found:
            moment = now + timedelta(**{_UNITS[found[2]]: int(found[1])})
        else:
            moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise _RefusedError(
            f"--expires {text!r} is no date, no date and time, and no 90d, 12h or 30m"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment <= now:
        raise _RefusedError(f"--expires {text}: that time has passed")
    return moment


def _say(line: str) -> None:
    print(line, file=sys.stderr)
