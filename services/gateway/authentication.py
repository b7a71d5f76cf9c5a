"""Who a call is by what its `authorization` says; nothing else that a client sends counts."""

from collections.abc import Sequence

from services.gateway.caller import Caller
from services.gateway.key_ring import KeyRing
from services.runtime.errors import UnauthenticatedError

PLACEHOLDER = "EMPTY"
"""What clients of servers without keys send, because their SDK insists on a key."""
_NO_KEY = "No API key was sent: this service wants `Authorization: Bearer KEY`."
_NO_BEARER = "The authorization header is not `Bearer KEY`, once: this service wants `Authorization: Bearer KEY`."
_BAD_KEY = "The API key is not valid."
"""One message for all: whether a key exists, existed or has expired is nobody's business."""


class Authenticator:
    """Finds the caller.

    With keys, a key must be known. Where anonymous callers are allowed besides, no key and the placeholder are
    anonymous, and a key that is not known is refused all the same: who holds a revoked one must hear of it. Without
    keys everybody is anonymous, whatever was sent.
    """

    def __init__(self, keys: KeyRing | None, allow_anonymous: bool) -> None:
        self._keys, self._allow_anonymous = keys, allow_anonymous

    def caller(self, authorization: Sequence[str]) -> Caller:
        """The caller of a call.

        Args:
            authorization: every value of that header, as it came.

        Raises:
            UnauthenticatedError: not a known key.
        """
        if self._keys is None and self._allow_anonymous:
            return Caller()
        text = _bearer(authorization)
        if text in (None, PLACEHOLDER):
            if self._allow_anonymous:
                return Caller()
            raise UnauthenticatedError(_NO_KEY if text is None else _BAD_KEY)
        caller = self._keys.find(text) if self._keys is not None and text else None
        if caller is None:
            raise UnauthenticatedError(_BAD_KEY)
        return caller


def _bearer(authorization: Sequence[str]) -> str | None:
    """The token; None where nothing was sent. Raises UnauthenticatedError where it is anything else than one token."""
    if not authorization:
        return None
    scheme, _, text = authorization[0].strip().partition(" ")
    if len(authorization) > 1 or scheme.lower() != "bearer":
        raise UnauthenticatedError(_NO_BEARER)
    return (
        text.strip()
    )  # "" too is something that was sent: a client whose variable is empty must hear of it
