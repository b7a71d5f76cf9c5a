"""A session's prompt, put together from what is kept of it and what has to be rendered."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from services.gateway.interfaces import Rendered, Tokenizer
from services.gateway.renderable import Answer, Piece
from services.gateway.sessions.forms import MessageForms
from services.gateway.sessions.history import ID_BYTES, ShownTurn, shown_turns, within
from services.gateway.sessions.record import Session, Turn


@dataclass(frozen=True, slots=True)
class NewTurn:
    """What a client says in a session."""

    messages: Sequence[Any]
    """hotline.v1.Message; images that are named by digest have their bytes."""
    options: Any
    """hotline.v1.RenderOptions."""
    enable_thinking: bool | None
    options_digest: bytes
    """See Session.options_digest."""
    media_count: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the model."""

    context_tokens: int
    max_images: int
    answer_tokens: int
    """What is left for the answer, at least 1."""


@dataclass(frozen=True, slots=True)
class SessionPrompt:
    """A prompt, and what the session keeps of it when its answer has come."""

    rendered: Rendered
    turns: tuple[Turn, ...]
    """The history as it is shown."""
    turn: Turn
    """The new one, without its messages as they are kept, and without an answer."""
    renders_whole: bool


class PromptMaker:
    """Makes the prompt of one turn; may be asked again, by another renderer or because features are gone.

    Args:
        session: as it was when the turn began.
    """

    def __init__(
        self,
        session: Session,
        new: NewTurn,
        limits: Limits,
        forms: MessageForms,
    ) -> None:
        self._session, self._new, self._limits = session, new, limits
        self._forms = forms
        self.lost: set[bytes] = set()
        """Digests of images that could not be shown again, since their bytes are gone."""

    async def make(self, renderer: Tokenizer, limit_s: float, with_features: bool) -> SessionPrompt:
        """Render what is new or does not fit any more, and put it behind what is kept.

        Args:
            with_features: render again whatever shows images: a renderer must have their features.

        Raises ServiceError, naming the new message at fault.
        """
        session, limits = self._session, self._limits
        turns: Sequence[Turn] = session.turns
        room = limits.context_tokens - limits.answer_tokens
        most = min(session.policy.max_history_tokens or room, room)
        if session.history_tokens > most:
            turns = within(turns, most // 2)
        prompt = await self._made(turns, renderer, limit_s, with_features)
        while turns and len(prompt.rendered.token_ids) > room:
            # Half of it, so that the prefix is not lost again with each turn.
            shorter = within(turns, most // 2)
            turns = shorter if len(shorter) < len(turns) else turns[(len(turns) + 1) // 2 :]
            prompt = await self._made(turns, renderer, limit_s, with_features)
        return prompt

    async def _made(
        self, turns: Sequence[Turn], renderer: Tokenizer, limit_s: float, with_features: bool
    ) -> SessionPrompt:
        session, new = self._session, self._new
        changed = session.options_digest != new.options_digest
        shown = shown_turns(
            session, turns, new.media_count, self._limits.max_images, self.lost, changed
        )
        if session.renders_whole:
            return await self._whole(shown, renderer, limit_s)
        kept: list[Turn] = []
        for each in shown:
            turn = each.turn
            if each.stale or (with_features and each.media):
                rendered = await self._again(each, kept, renderer, limit_s)
                if rendered.whole_needed:
                    return await self._whole(shown, renderer, limit_s)
                turn = self._with(turn, rendered)
            kept.append(turn)
        piece = Piece(new.messages, new.options, _answer(kept[-1]) if kept else None)
        if not kept:
            preamble, _ = await self._forms.load(session, session.preamble, self._preamble_media())
            piece = replace(piece, messages=[*preamble, *new.messages])
        rendered = await renderer.render(piece, limit_s)
        if rendered.whole_needed:
            return await self._whole(shown, renderer, limit_s)
        return self._joined(kept, rendered)

    async def _again(
        self, shown: ShownTurn, before: Sequence[Turn], renderer: Tokenizer, limit_s: float
    ) -> Rendered:
        """One turn of the history, with the images that it is to show."""
        session, turn = self._session, shown.turn
        stored = turn.messages if before else (*session.preamble, *turn.messages)
        media = {*shown.media, *(() if before else self._preamble_media())}
        messages, lost = await self._forms.load(session, stored, media)
        self.lost.update(lost)
        options = self._forms.options(self._new.options, turn.enable_thinking)
        after = _answer(before[-1]) if before else None
        return await renderer.render(Piece(messages, options, after, may_be_empty=True), limit_s)

    def _preamble_media(self) -> set[bytes]:
        return {digest for message in self._session.preamble for digest in message.media}

    def _with(self, turn: Turn, rendered: Rendered) -> Turn:
        features, media = self._forms.kept_features(rendered)
        return replace(
            turn,
            prompt_ids=array("I", rendered.token_ids).tobytes(),
            features=features,
            shown_media=media,
            kept_before=rendered.answer_token_count,
            answer_prefix=rendered.answer_prefix,
        )

    def _joined(self, kept: Sequence[Turn], last: Rendered) -> SessionPrompt:
        ids = array("I")
        features: list[Any] = []
        new = self._with(self._blank(), last)
        answer = b""
        for turn in (*kept, new):
            ids.frombytes(answer[: turn.kept_before * ID_BYTES])
            features += [self._forms.placed(feature, len(ids)) for feature in turn.features]
            ids.frombytes(turn.prompt_ids)
            answer = turn.answer_ids
        rendered = Rendered(
            ids,
            features,
            [placement.feature_digest for placement in features],
            last.thinking_closed,
            sum(placement.length for placement in features),
        )
        return SessionPrompt(rendered, tuple(kept), new, False)

    def _blank(self) -> Turn:
        return Turn((), b"", (), (), 0, b"", "", "", self._new.enable_thinking)

    async def _whole(
        self, shown: Sequence[ShownTurn], renderer: Tokenizer, limit_s: float
    ) -> SessionPrompt:
        """Render every message that is shown, with the texts of the answers between them."""
        session = self._session
        preamble, _ = await self._forms.load(session, session.preamble, self._preamble_media())
        messages: list[Any] = list(preamble)
        answers: list[tuple[int, Answer]] = []
        for each in shown:
            loaded, lost = await self._forms.load(session, each.turn.messages, each.media)
            self.lost.update(lost)
            messages += loaded
            answers.append((len(messages), _answer(each.turn)))
            messages.append(self._forms.assistant())
        messages += self._new.messages
        piece = Piece(messages, self._new.options, answers=answers)
        rendered = await renderer.render(piece, limit_s)
        turns = tuple(
            replace(each.turn, prompt_ids=b"", features=(), shown_media=each.media)
            for each in shown
        )
        _, media = self._forms.kept_features(rendered)
        count = self._new.media_count
        new = replace(
            self._blank(),
            shown_media=media[len(media) - count :],
            answer_prefix=rendered.answer_prefix,
        )
        return SessionPrompt(rendered, turns, new, True)


def _answer(turn: Turn) -> Answer:
    ids = array("I")
    ids.frombytes(turn.answer_ids)
    return Answer(ids, turn.stop_match, turn.answer_prefix)
