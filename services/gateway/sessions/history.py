"""Which of a session's turns a prompt shows, and which of their images; nothing here waits or renders."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from services.gateway.sessions.record import HistoryPolicy, ImageRetention, Session, Turn

ID_BYTES = 4
"""Of a token id in Turn.prompt_ids and Turn.answer_ids."""


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """One turn of the history, as the next prompt shows it."""

    turn: Turn
    media: tuple[bytes, ...]
    """Digests of the images to show, in their order."""
    stale: bool
    """What is rendered of it does not fit: it shows other images, or became the first one."""


def media_of(turn: Turn) -> tuple[bytes, ...]:
    """Digests of all images of a turn's messages, in their order."""
    return tuple(digest for message in turn.messages for digest in message.media)


def shown_turns(
    session: Session,
    turns: Sequence[Turn],
    new_media_count: int,
    max_images: int,
    lost: Collection[bytes] = (),
    render_again: bool = False,
) -> list[ShownTurn]:
    """The turns with what each shows.

    Args:
        turns: the end of `session.turns`, perhaps all of them.
        new_media_count: images of the turn to come, all of which are shown.
        max_images: that a prompt of this model may have.
        lost: digests whose bytes are gone: no longer shown where something has to be rendered again.
        render_again: nothing that is rendered fits.
    """
    room = _images_left(session.policy, new_media_count, max_images)
    shown: list[ShownTurn] = []
    dropped = len(session.turns) - len(turns)
    for index in range(len(turns) - 1, -1, -1):
        turn = turns[index]
        media = [digest for digest in media_of(turn) if digest not in lost]
        first_shown = max(len(media) - room, 0)
        media = media[first_shown:]
        room -= len(media)
        became_first = index == 0 and dropped > 0
        stale = render_again or became_first or tuple(media) != turn.shown_media
        shown.append(ShownTurn(turn, tuple(media), stale))
    shown.reverse()
    return shown


def _images_left(policy: HistoryPolicy, new_media_count: int, max_images: int) -> int:
    most = max(max_images - new_media_count, 0)
    if policy.images is ImageRetention.NONE:
        return 0
    if policy.images is ImageRetention.ALL:
        return most
    return min(max(policy.image_count - new_media_count, 0), most)


def within(turns: Sequence[Turn], max_tokens: int) -> Sequence[Turn]:
    """The end of the turns that has at most so many tokens, in whole turns; maybe none of them."""
    total = 0
    for index in range(len(turns) - 1, -1, -1):
        total += _token_count(turns, index)
        if total > max_tokens:
            return turns[index + 1 :]
    return turns


def _token_count(turns: Sequence[Turn], index: int) -> int:
    turn = turns[index]
    after = turns[index + 1].kept_before if index + 1 < len(turns) else 0
    return len(turn.prompt_ids) // ID_BYTES + (after or len(turn.answer_ids) // ID_BYTES)
