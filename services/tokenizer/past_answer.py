"""What of an answer of the model's stays in the conversation that goes on after it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

from services.runtime.errors import InvalidArgumentError
from services.runtime.plain_text_limits import MAX_IDS
from services.runtime.sampling_ranges import MAX_STOP_BYTES
from services.tokenizer.conversation import Answer
from services.tokenizer.detokeniser import Detokeniser


@dataclass(frozen=True)
class KeptAnswer:
    """An answer as history."""

    id_count: int
    """So many of its ids stay as they were sampled."""
    rest: str
    """Text that stays behind them: of a token that was cut, or of what stood behind a control token."""
    text: str
    """The whole of it, `rest` included."""


@dataclass(frozen=True)
class _Token:
    """One id's share of an answer."""

    text: str
    stays: bool
    """Whether its id may stay."""
    is_whole: bool
    """Whether the text up to its end has no half character."""


class PastAnswers:
    """Reads answers of one model. Thread-safe.

    Ids of its end are left out, and from a stop string of the request on everything is. The model's end tag stays or
    goes. From the first control token on that is no tag (an end token in the midst of an answer, an image's
    placeholder), ids do not stay but their text does: what a model samples opens no turn and shows no image.

    Args:
        detokeniser: leaves out the control tokens that answers may not have.
        end_tags: texts by which the model ends its answer.
        keeps_end_tags: whether one stays where it ended the answer.
        end_ids: end a generation.
        hidden_ids: control tokens that answers may not have.
        unseen_ids: tags that may stay although the client's text lacks them.
        vocabulary_size: ids are below this.
    """

    def __init__(
        self,
        detokeniser: Detokeniser,
        end_tags: Sequence[str],
        keeps_end_tags: bool,
        end_ids: Collection[int],
        hidden_ids: Collection[int],
        unseen_ids: Collection[int],
        vocabulary_size: int,
    ) -> None:
        self._detokeniser, self._vocabulary_size = detokeniser, vocabulary_size
        self._end_tags, self._keeps_end_tags = tuple(end_tags), keeps_end_tags
        self._end_ids = frozenset(
            end_id for end_id in end_ids if detokeniser.spelling(end_id) not in self._end_tags
        )
        self._hidden_ids = frozenset(hidden_ids) | self._end_ids
        self._unseen_ids = frozenset(unseen_ids)

    def keep(self, answer: Answer) -> KeptAnswer:
        """What of it stays. Raises InvalidArgumentError naming its part."""
        ids = answer.token_ids
        self._check(answer)
        count = len(ids)
        while count and ids[count - 1] in self._end_ids:
            count -= 1
        tokens, flushed = self._tokens(ids[:count])
        text = "".join(token.text for token in tokens) + flushed
        end = self._end(text, ids, tokens, answer.stop_match)
        if end is None and all(token.stays for token in tokens):
            return KeptAnswer(count, "", text)
        text = text[:end]
        kept, length = 0, 0
        ends = accumulate(len(token.text) for token in tokens)
        for index, (token, at) in enumerate(zip(tokens, ends, strict=True)):
            if not token.stays or at > len(text):
                break
            if token.is_whole:
                kept, length = index + 1, at
        return KeptAnswer(kept, text[length:], text)

    def _check(self, answer: Answer) -> None:
        ids, field = answer.token_ids, answer.field
        if len(ids) > MAX_IDS:
            raise InvalidArgumentError(
                f"{field}.answer_token_ids", f"{len(ids)} ids", f"at most {MAX_IDS} ids"
            )
        if ids and max(ids) >= self._vocabulary_size:
            at = next(at for at, one in enumerate(ids) if one >= self._vocabulary_size)
            raise InvalidArgumentError(
                f"{field}.answer_token_ids[{at}]",
                ids[at],
                f"below {self._vocabulary_size}, the size of the vocabulary",
            )
        size_bytes = len(answer.stop_match.encode())
        if size_bytes > MAX_STOP_BYTES:
            raise InvalidArgumentError(
                f"{field}.stop_match", f"{size_bytes} bytes", f"at most {MAX_STOP_BYTES} bytes"
            )

    def _tokens(self, ids: Sequence[int]) -> tuple[list[_Token], str]:
        decoder = self._detokeniser.open()
        tokens = []
        for token_id in ids:
            if token_id in self._end_ids:  # shown by its spelling, where the request ignored ends
                text = decoder.push_text(self._detokeniser.spelling(token_id))
            else:
                text = decoder.push(token_id)
            stays = token_id not in self._hidden_ids
            tokens.append(_Token(text, stays, not decoder.is_inside_character))
        return tokens, decoder.flush()

    def _end(
        self, text: str, ids: Sequence[int], tokens: Sequence[_Token], stop: str
    ) -> int | None:
        """How much of the text stays; None: all of it."""
        if stop:
            return self._stopped(text, ids, tokens, stop)
        last = next((len(token.text) for token in reversed(tokens) if token.text), 0)
        for tag in self._end_tags:
            start = text.rfind(tag)
            if start >= 0 and start + len(tag) > len(text) - last:
                end = start + len(tag) if self._keeps_end_tags else start
                return end if end < len(text) else None
        return None

    def _stopped(
        self, text: str, ids: Sequence[int], tokens: Sequence[_Token], stop: str
    ) -> int | None:
        """Where a stop string began, in the text with all tags."""
        shown = [
            token.text if token_id not in self._unseen_ids else ""
            for token_id, token in zip(ids, tokens, strict=False)
        ]
        start = "".join(shown).find(stop)
        if start < 0:
            start = text.find(stop)
            return start if start >= 0 else None
        seen = total = 0
        for piece, token in zip(shown, tokens, strict=True):
            if seen + len(piece) > start:
                return total + start - seen
            seen, total = seen + len(piece), total + len(token.text)
        return total
