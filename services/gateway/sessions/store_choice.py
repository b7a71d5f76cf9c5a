"""Where sessions are kept, as configured."""

from collections.abc import Callable

from services.gateway.sessions.memory_store import MemoryStore
from services.gateway.sessions.room import SessionRoom
from services.gateway.sessions.settings import SessionSettings
from services.gateway.sessions.store import SessionStore
from services.runtime.start import StartRefusedError


def open_store(settings: SessionSettings, now: Callable[[], float]) -> SessionStore:
    """The configured store, not started yet. Raises StartRefusedError where its package is not installed.

    Args:
        now: Unix seconds.
    """
    room = SessionRoom(settings.max_sessions, settings.max_per_owner)
    if settings.sqlite_path is not None and settings.store == "sqlite":
        from services.gateway.sessions.sqlite_store import SqliteStore

        return SqliteStore(settings.sqlite_path, now, room, settings.max_media_bytes)
    if settings.redis_url is not None and settings.store == "redis":
        try:
            from services.gateway.sessions.redis_store import RedisStore
        except ImportError:
            line = "sessions.store: redis needs the package: pip install 'hotline-serving[redis]'"
            raise StartRefusedError([line]) from None
        url = settings.redis_url.get_secret_value()
        return RedisStore(url, settings.redis_prefix, now, room, settings.max_media_bytes)
    return MemoryStore(now, room, settings.max_media_bytes)
