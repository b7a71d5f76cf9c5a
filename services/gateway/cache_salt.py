"""What a prompt's cache entries are shared under, on a worker where all owners meet."""

import hashlib


def owner_salt(owner: str) -> str:
    """The salt of all that one owner does without a session: `owner.` and 40 hex digits of SHA-256.

    Text, images and output are found again under the same salt only. Its first word says what kind of salt it is, and a
    hash holds no dots, so that no choice of an owner's name makes the salt of anything else; the contract's bound of 64
    bytes holds for every name.
    """
    return f"owner.{hashlib.sha256(owner.encode()).hexdigest()[:40]}"


def session_salt(session_id: bytes, epoch: int) -> str:
    """The salt of one session alone: `session.` and 40 hex digits. With each epoch another one: what was cached is not found again."""
    return f"session.{hashlib.sha256(session_id + epoch.to_bytes(8, 'big')).hexdigest()[:40]}"
