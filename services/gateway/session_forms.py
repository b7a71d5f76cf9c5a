"""A session's messages and features between hotline.v1 and what is kept; see sessions/forms.py."""

from collections.abc import Collection, Sequence
from typing import Any

from hotline.v1 import conversation_pb2, feature_pb2

from services.gateway.interfaces import Rendered
from services.gateway.session_messages import restored, stored, with_bytes
from services.gateway.sessions.record import Session, StoredMessage
from services.gateway.sessions.store import MediaStore


class SessionForms:
    """See sessions.forms.MessageForms."""

    def __init__(self, media: MediaStore) -> None:
        self._media = media

    async def fill(self, session: Session, messages: Sequence[Any]) -> Sequence[Any]:
        """See MessageForms."""
        return await with_bytes(messages, session.media, session.session_id, self._media)

    async def store(self, session: Session, messages: Sequence[Any]) -> tuple[StoredMessage, ...]:
        """See MessageForms."""
        return await stored(messages, session.session_id, self._media)

    async def load(
        self, session: Session, messages: Sequence[StoredMessage], shown: Collection[bytes]
    ) -> tuple[Sequence[Any], Collection[bytes]]:
        """See MessageForms."""
        return await restored(messages, shown, session.session_id, self._media)

    def options(self, options: Any, enable_thinking: bool | None) -> Any:
        """See MessageForms."""
        changed = conversation_pb2.RenderOptions()
        changed.CopyFrom(options)
        changed.template_variables.fields.pop("enable_thinking", None)
        if enable_thinking is None:
            changed.ClearField("enable_thinking")
        else:
            changed.enable_thinking = enable_thinking
        return changed

    def assistant(self) -> Any:
        """See MessageForms."""
        return conversation_pb2.Message(role=conversation_pb2.ROLE_ASSISTANT, text="")

    def kept_features(self, rendered: Rendered) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """See MessageForms."""
        placements: Sequence[feature_pb2.FeaturePlacement] = rendered.features
        features = tuple(placement.SerializeToString() for placement in placements)
        return features, tuple(placement.media_digest for placement in placements)

    def placed(self, feature: bytes, shift: int) -> Any:
        """See MessageForms."""
        placement = feature_pb2.FeaturePlacement.FromString(feature)
        placement.offset += shift
        return placement
