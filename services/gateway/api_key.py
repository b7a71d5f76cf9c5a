"""The text of an API key, `hl-<id>-<secret>`, and the hash that is kept of it.

The secret is 256 random bits, so one SHA-256 of the whole text is enough: nobody can try out so many. A slow hash
(scrypt, argon2) protects what people think up, and here it would only burn a core for each call, which anybody could
order without a key.
"""

import hashlib
import re
import secrets

ID_BYTES = 6
"""Of the public id, in hexadecimal: it finds the key in the file, and may be shown and logged."""
SECRET_BYTES = 32
MAX_KEY_LENGTH = 128
"""Characters of what is looked at at all."""
_KEY = re.compile(r"hl-([0-9a-f]{12})-[A-Za-z0-9_-]{43}", re.ASCII)


def new_key() -> tuple[str, str]:
    """A new key from the system's random source: its public id, and its text, which nothing keeps."""
    key_id = secrets.token_hex(ID_BYTES)
    return key_id, f"hl-{key_id}-{secrets.token_urlsafe(SECRET_BYTES)}"


def public_id(text: str) -> str | None:
    """The public id in a key's text; None where the text has not the form of a key."""
    if len(text) > MAX_KEY_LENGTH:
        return None
    found = _KEY.fullmatch(text)
    return found[1] if found else None


def key_hash(text: str) -> str:
    """What the file keeps: 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
