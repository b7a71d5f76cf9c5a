"""Where sessions are kept, as configured."""

from collections.abc import Callable

from services.gateway.sessions.memory_store import MemoryStore
from services.gateway.sessions.room import SessionRoom
from services.gateway.sessions.settings import SessionSettings
from services.gateway.sessions.store import SessionStore


def open_store(settings: SessionSettings, now: Callable[[], float]) -> SessionStore:
    """The configured store, not started yet.

    Args:
        now: Unix seconds.
    """
    room = SessionRoom(settings.max_sessions, settings.max_per_owner)
    return MemoryStore(now, room, settings.max_media_bytes)
