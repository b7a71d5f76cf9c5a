"""Structured logs: one event a line, with the request id of the call that caused it."""

import logging
import sys
import uuid
from string import ascii_letters, digits

import structlog

REQUEST_ID_KEY = "x-request-id"
"""gRPC metadata (and HTTP header) that carries the request id from the edge to the worker."""

REQUEST_ID_LENGTH = 128
_REQUEST_ID_CHARACTERS = frozenset(ascii_letters + digits + "._:-")


def configure(log_format: str, log_level: str, **process: str) -> None:
    """Set up logging once, in `main`; `process` (service, name) stands in every line."""
    renderer: structlog.types.Processor = structlog.processors.JSONRenderer(ensure_ascii=False)
    if log_format == "console":
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[log_level]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(**process)


def get_logger() -> structlog.typing.FilteringBoundLogger:
    """The logger of a module."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger


def bind_request_id(offered: str | None) -> str:
    """Bind a call's request id to its context: the peer's own if it is well-formed, else a new one."""
    valid = (
        offered is not None
        and 0 < len(offered) <= REQUEST_ID_LENGTH
        and _REQUEST_ID_CHARACTERS.issuperset(offered)
    )
    chosen = offered if valid and offered is not None else uuid.uuid4().hex
    structlog.contextvars.bind_contextvars(request_id=chosen)
    return chosen


def request_id() -> str:
    """The request id of the call being served; empty where there is none."""
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))


def request_metadata() -> tuple[tuple[str, str], ...]:
    """Metadata for an outgoing call: the request id of the call being served, if any."""
    bound = request_id()
    return ((REQUEST_ID_KEY, bound),) if bound else ()
