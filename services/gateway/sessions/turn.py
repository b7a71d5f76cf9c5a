"""One turn of a session: its prompt, and its commit, once, at its end."""

import asyncio
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from services.gateway.events import ChoiceEnd, Finish
from services.gateway.interfaces import Rendered, Tokenizer
from services.gateway.renderers import Renderers
from services.gateway.sessions.forms import MessageForms
from services.gateway.sessions.prompt import Limits, NewTurn, PromptMaker, SessionPrompt
from services.gateway.sessions.record import Session, Turn
from services.gateway.sessions.store import SessionStore
from services.runtime.errors import (
    FeaturesMissingError,
    ServiceError,
    SessionNotFoundError,
    UnavailableError,
)
from services.runtime.logs import get_logger

_log = get_logger()

COMMITTED = frozenset({Finish.STOP, Finish.STOP_SEQUENCE, Finish.LENGTH, Finish.TOOL_CALLS})
"""Ends after which a turn is part of the history. An answer that the time limit or a cancel cut short is not one that the
client will go on from: it asks again."""


class SessionTurn:
    """See session_interfaces.TurnOfSession.

    Args:
        session: as the request found it; looked up again once the turn is held.
        wait_s: how long a turn that runs already is waited for; 0: not at all.
        now: Unix seconds.
        told: hears whether the turn was committed, where it ended so that it could be.
    """

    def __init__(
        self,
        store: SessionStore,
        session: Session,
        new: NewTurn,
        limits: Limits,
        forms: MessageForms,
        wait_s: float,
        now: Callable[[], float],
        told: Callable[[bool], None] = lambda committed: None,
    ) -> None:
        self._now = now
        self._store, self._session, self._new = store, session, new
        self._limits, self._forms, self._wait_s = limits, forms, wait_s
        self._told = told
        self._prompt: SessionPrompt | None = None
        self.committed = False
        """It is part of the history."""

    @property
    def session_name(self) -> str:
        """The session's id, as clients see it."""
        return self._session.session_id.hex()

    @property
    def worker(self) -> str:
        """Which worker had the turn before; empty: none."""
        return self._session.worker

    @property
    def cache_salt(self) -> str:
        """The session's own; empty: the owner's."""
        return self._session.salt

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None, None]:
        """Keep other turns of the session out. Raises SessionBusyError, SessionNotFoundError."""
        session = self._session
        async with self._store.turn(session.session_id, self._wait_s):
            found = await self._store.load(session.owner, session.session_id)
            if found is None:
                raise not_found()
            self._session = found
            messages = await self._forms.fill(found, self._new.messages)
            self._maker = PromptMaker(
                found,
                replace(self._new, messages=messages),
                self._limits,
                self._forms,
            )
            yield

    def rendering(
        self, renderers: Renderers, clock: Callable[[], float], timeout_s: float
    ) -> "TurnRendering":
        """How this turn's prompt is made."""
        return TurnRendering(self, renderers, clock, timeout_s)

    async def prompt(self, renderer: Tokenizer, limit_s: float, with_features: bool) -> Rendered:
        """See PromptMaker.make."""
        self._prompt = await self._maker.make(renderer, limit_s, with_features)
        return self._prompt.rendered

    async def commit(self, end: ChoiceEnd, answer_ids: Sequence[int], worker: str) -> None:
        """Make the turn part of the history, where it ended as COMMITTED says; `committed` tells whether it is.

        It is not where the session was cleared, changed or deleted meanwhile, or its store does not answer.

        Args:
            answer_ids: as they were sampled, as far as the text consumed them.
        """
        if end.reason not in COMMITTED or self._prompt is None:
            return
        work = self._commit(self._prompt, end, answer_ids, worker)
        task = asyncio.create_task(work, name=f"commit {self.session_name}")
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            # To its end even where the reader goes just now, and while the turn is held: the store has a deadline.
            await asyncio.wait((task,))
            raise

    async def _commit(
        self, prompt: SessionPrompt, end: ChoiceEnd, answer_ids: Sequence[int], worker: str
    ) -> None:
        try:
            self.committed = await self._replace(prompt, end, answer_ids, worker)
        except ServiceError as error:
            _log.warning(
                "turn not committed",
                session_id=self._session.session_id.hex(),
                reason=error.reason.value,
            )
        self._told(self.committed)

    async def _replace(
        self, prompt: SessionPrompt, end: ChoiceEnd, answer_ids: Sequence[int], worker: str
    ) -> bool:
        session, new = self._session, self._new
        stored = await self._forms.store(session, new.messages)
        preamble = session.preamble
        if not session.turn_count:
            opening = next((i for i, m in enumerate(stored) if not m.is_system), len(stored))
            preamble, stored = (*preamble, *stored[:opening]), stored[opening:]
        turn: Turn = replace(
            prompt.turn,
            messages=stored,
            answer_ids=array("I", answer_ids[:-1] if end.by_token else answer_ids).tobytes(),
            stop_match="" if end.by_token else end.stop_match,
        )
        came = {digest for message in (*preamble, *stored) for digest in message.media}
        changed = replace(
            session,
            preamble=preamble,
            turns=(*prompt.turns, turn),
            turn_count=session.turn_count + 1,
            options_digest=new.options_digest,
            renders_whole=prompt.renders_whole,
            worker=worker,
            version=session.version + 1,
            media=(session.media | came) - self._maker.lost,
        )
        if await self._store.replace(changed.touched(self._now())):
            return True
        await self._drop_images()
        return False

    async def _drop_images(self) -> None:
        """Of a session that was deleted or made to forget while this turn ran: the turn's own came after that."""
        session = self._session
        found = await self._store.load(session.owner, session.session_id)
        if found is None or not found.media:
            await self._store.media.drop(session.session_id)


class TurnRendering:
    """See session_interfaces.PromptRendering: the prompt of a turn, and its features on their way to a worker."""

    def __init__(
        self,
        turn: SessionTurn,
        renderers: Renderers,
        clock: Callable[[], float],
        timeout_s: float,
    ) -> None:
        self._turn, self._renderers, self._clock = turn, renderers, clock
        self._timeout_s = timeout_s
        self._with_features = False
        self._renderer: Tokenizer | None = None

    async def render(self) -> Rendered:
        """Make the prompt with the least loaded renderer, or another one where that goes or refuses."""
        return await self._renderers.ask(self._ask, self._timeout_s)

    async def push(self, rendered: Rendered, worker: str) -> Rendered:
        """Have a renderer send the prompt's features to a worker (by name).

        Where it no longer has them (those of earlier turns it may never have had), whatever shows images is rendered
        again; images whose bytes are gone are then missing from the prompt.
        """
        deadline_s = self._clock() + self._timeout_s
        try:
            await self._push(rendered.feature_digests, worker, deadline_s)
        except (FeaturesMissingError, UnavailableError):
            self._with_features = True
            remaining_s = self._renderers.remaining_s(deadline_s)
            rendered = await self._renderers.ask(self._ask, remaining_s)
            await self._push(rendered.feature_digests, worker, deadline_s)
        return rendered

    async def _push(self, digests: Sequence[bytes], worker: str, deadline_s: float) -> None:
        if not digests:
            return
        if self._renderer is None:
            raise UnavailableError("No renderer has made this prompt.", retry_delay_s=1.0)
        limit_s = self._renderers.remaining_s(deadline_s)
        await self._renderer.push_features(digests, worker, limit_s)

    async def _ask(self, renderer: Tokenizer, limit_s: float) -> Rendered:
        self._renderer = renderer
        return await self._turn.prompt(renderer, limit_s, self._with_features)


def not_found() -> SessionNotFoundError:
    """The same for an absent, an expired and a foreign one."""
    return SessionNotFoundError(
        "session_id: no session of yours has this id; it may have expired.",
        metadata={"field": "session_id"},
    )
