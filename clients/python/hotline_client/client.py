"""The client for code without asyncio: the asynchronous one on a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from hotline.v1 import inference_pb2, model_pb2

from hotline_client.answer import Answer
from hotline_client.async_client import AsyncClient, Options
from hotline_client.messages import Message, user
from hotline_client.session import Session
from hotline_client.stream import Event

Value = TypeVar("Value")
_END = object()


class Client:
    """See AsyncClient; threads may share it. Use it as a context, or `close` it."""

    def __init__(self, address: str, **arguments: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="hotline client", daemon=True
        )
        self._thread.start()
        try:
            self._client = self._wait(_made(address, arguments))
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> "Client":
        """Nothing is opened before the first call."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Let go of the connections and of the thread. Idempotent."""
        if not self._loop.is_closed():
            self._wait(self._client.close())
            self._end()

    def stream(
        self, messages: Sequence[Message], options: Options | None = None
    ) -> Iterator[Event]:
        """The events of a generation; closing the iterator cancels it. Raises HotlineError."""
        return self._iterate(self._client.generate(messages, options).__aiter__())

    def generate(self, messages: Sequence[Message], options: Options | None = None) -> Answer:
        """A whole answer. Raises HotlineError."""
        return self._wait(self._client.generate(messages, options).answer())

    def send(self, request: inference_pb2.GenerateRequest, deadline_s: float) -> Answer:
        """A request of the contract; the whole answer. Raises HotlineError."""
        return self._wait(self._client.send(request, deadline_s).answer())

    def models(self) -> Sequence[model_pb2.Model]:
        """What is served. Raises HotlineError."""
        return self._wait(self._client.models())

    def cancel(self, generation_id: str) -> bool:
        """End a generation of this owner; whether it was running. Raises HotlineError."""
        return self._wait(self._client.cancel(generation_id))

    @contextmanager
    def session(
        self, messages: Sequence[Message] = (), **arguments: Any
    ) -> Iterator["SyncSession"]:
        """A new session; see AsyncClient.session. Raises HotlineError."""
        context = self._client.session(messages, **arguments)
        session = self._wait(context.__aenter__())
        try:
            yield SyncSession(self, session)
        finally:
            self._wait(context.__aexit__())

    def _wait(self, work: Coroutine[Any, Any, Value]) -> Value:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # such as KeyboardInterrupt: the work must not go on unseen
            future.cancel()
            raise

    def _iterate(self, events: Any) -> Iterator[Event]:
        try:
            while (event := self._wait(_next(events))) is not _END:
                yield event
        finally:
            self._wait(events.aclose())

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncSession:
    """See Session."""

    def __init__(self, client: Client, session: Session) -> None:
        self._client, self._session = client, session

    @property
    def session_id(self) -> str:
        """32 hexadecimal digits, a secret of its owner's."""
        return self._session.session_id

    def turn(self, text: str, image: bytes | None = None, options: Options | None = None) -> Answer:
        """Say something, with a screenshot or without; the whole answer. Raises HotlineError."""
        return self._client._wait(self._session.turn(text, image, options))

    def stream(
        self, text: str, image: bytes | None = None, options: Options | None = None
    ) -> Iterator[Event]:
        """Say something; the events of what comes back. Raises HotlineError."""
        message = user(text, *([image] if image is not None else []))
        return self._client._iterate(self._session.stream([message], options).__aiter__())

    def touch(self) -> None:
        """Begin the idle TTL again. Raises HotlineError."""
        self._client._wait(self._session.touch())

    def clear(self, *, forget_history: bool = False) -> None:
        """Make its KV cache unreachable. Raises HotlineError."""
        self._client._wait(self._session.clear(forget_history=forget_history))


async def _made(address: str, arguments: dict[str, Any]) -> AsyncClient:
    return AsyncClient(address, **arguments)


async def _next(events: Any) -> Any:
    return await anext(events, _END)
