"""Requests that are turns of a session."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace

from hotline.v1 import conversation_pb2

from services.gateway.caller import Caller
from services.gateway.interfaces import GenerationRequest
from services.gateway.pool import Pool, ServedModel
from services.gateway.session_forms import SessionForms
from services.gateway.sessions.prompt import Limits, NewTurn
from services.gateway.sessions.record import Session
from services.gateway.sessions.sessions import Sessions
from services.gateway.sessions.turn import SessionTurn
from services.runtime.errors import InvalidArgumentError

LONGEST_WAIT_S = 3600.0
"""For a turn that runs already; no generation has a later deadline, which ends the wait."""
ANSWER_SHARE = 4
"""At most the context's 4th part is kept free for an answer, however many tokens it may have."""


class SessionTurns:
    """Finds a request's session, and makes the request its next turn."""

    def __init__(
        self,
        sessions: Sessions,
        pool: Pool,
        told: Callable[[bool], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._sessions, self._pool, self._now, self._told = sessions, pool, now, told
        self._forms = SessionForms(sessions.store.media)

    async def model(
        self, session_id: str, requested: str, caller: Caller
    ) -> tuple[ServedModel, Session | None]:
        """The model that a request means, and its session, if it names one.

        Raises SessionNotFoundError; ModelNotFoundError; InvalidArgumentError for another model than the session's.
        """
        if not session_id:
            return self._pool.model(requested, caller), None
        session = await self._sessions.get(caller.owner, session_id)
        if requested and self._pool.model(requested, caller).name != session.model:
            raise InvalidArgumentError(
                "model", requested, f"{session.model!r}, the model of the session, or left out"
            )
        return self._pool.model(session.model, caller), session

    def turn(
        self,
        request: GenerationRequest,
        session: Session | None,
        model: ServedModel,
        waits: bool,
    ) -> GenerationRequest:
        """The request as the session's next turn; as it is, where there is no session.

        Args:
            waits: for a turn that runs already, within the deadline.

        Raises InvalidArgumentError for what a turn cannot be.
        """
        if session is None:
            return request
        if request.prompt is not None:
            raise InvalidArgumentError(
                request.prompt.field, "a prompt", "left out: a session goes on by messages"
            )
        if request.choice_count != 1:
            raise InvalidArgumentError(
                "n", request.choice_count, "1: a session goes on from one answer"
            )
        turn = SessionTurn(
            self._sessions.store,
            session,
            _new(request),
            _limits(request, model),
            self._forms,
            LONGEST_WAIT_S if waits else 0.0,
            self._now,
            self._told,
        )
        return replace(request, turn=turn)


def _limits(request: GenerationRequest, model: ServedModel) -> Limits:
    most = max(model.context_tokens // ANSWER_SHARE, 1)
    return Limits(model.context_tokens, model.max_images, min(request.max_tokens or most, most))


def _new(request: GenerationRequest) -> NewTurn:
    options: conversation_pb2.RenderOptions = request.render_options
    thinking = options.enable_thinking if options.HasField("enable_thinking") else None
    switch = options.template_variables.fields.get("enable_thinking")
    if thinking is None and switch is not None and switch.HasField("bool_value"):
        thinking = switch.bool_value
    images = sum(
        part.HasField("image") for message in request.messages for part in message.parts.parts
    )
    return NewTurn(request.messages, options, thinking, _digest(options), images)


def _digest(options: conversation_pb2.RenderOptions) -> bytes:
    """Of what changes the rendering of earlier turns; empty where there is nothing of it."""
    shaping = conversation_pb2.RenderOptions(tools=options.tools)
    shaping.template_variables.CopyFrom(options.template_variables)
    shaping.template_variables.fields.pop("enable_thinking", None)
    if not (shaping.tools or shaping.template_variables.fields):
        return b""
    shaping.tool_choice.CopyFrom(options.tool_choice)
    return hashlib.sha256(shaping.SerializeToString(deterministic=True)).digest()
