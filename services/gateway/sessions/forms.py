"""What the turns of a session need to do with messages and features, without protobuf."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from services.gateway.interfaces import Rendered
from services.gateway.sessions.record import Session, StoredMessage


class MessageForms(Protocol):
    """Messages as they are kept, and as a renderer reads them."""

    async def fill(self, session: Session, messages: Sequence[Any]) -> Sequence[Any]:
        """New messages with the bytes of the images that they name by digest.

        Raises InvalidMediaError, naming the part, for one that did not come in this session or is no longer kept.
        """

    async def store(self, session: Session, messages: Sequence[Any]) -> tuple[StoredMessage, ...]:
        """Messages as they are kept; their images go to the media store."""

    async def load(
        self, session: Session, messages: Sequence[StoredMessage], shown: Collection[bytes]
    ) -> tuple[Sequence[Any], Collection[bytes]]:
        """The messages with the images of these digests, without all others; and those whose bytes are gone."""

    def options(self, options: Any, enable_thinking: bool | None) -> Any:
        """The same hotline.v1.RenderOptions, but for whether the model thinks."""

    def assistant(self) -> Any:
        """A hotline.v1.Message of the assistant's without content."""

    def kept_features(self, rendered: Rendered) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """What is kept of a piece's features, and the media digest of each."""

    def placed(self, feature: bytes, shift: int) -> Any:
        """A kept FeaturePlacement, so many tokens further on."""
