"""A session's prompt from kept ids and rendered pieces, against rendering the whole conversation."""

import hashlib
from array import array
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hotline.v1 import conversation_pb2, feature_pb2

from services.gateway.events import ChoiceEnd, Finish
from services.gateway.interfaces import Rendered
from services.gateway.session_forms import SessionForms
from services.gateway.sessions.prompt import Limits, NewTurn, PromptMaker
from services.gateway.sessions.record import HistoryPolicy, ImageRetention, Session
from services.gateway.sessions.turn import SessionTurn

ROLES = {1: 1001, 2: 1002, 3: 1003}
IMAGE, END, NO_THINK = 2000, 3000, [4000]
IMAGE_TOKENS = 5
LAST_ONE = HistoryPolicy()
ROOMY = Limits(100_000, 10, 10)


class Media:
    """A dictionary."""

    def __init__(self):
        self.kept = {}

    async def put(self, session_id, digest, data):
        self.kept[session_id, digest] = data

    async def get(self, session_id, digest):
        return self.kept.get((session_id, digest))


class Renderer:
    """A template that puts a role in front of each message; its answers end with END, which does not stay."""

    name = "renderer"

    def __init__(self, whole_needed=False):
        self.whole_needed, self.text_ids = whole_needed, 0

    async def render(self, piece, timeout_s):
        ids, features = [], []
        kept = 0
        if piece.after is not None:
            if self.whole_needed:
                return Rendered((), (), (), False, whole_needed=True)
            kept = len(answer_text(piece.after.token_ids))
        answers = dict(piece.answers)
        for index, message in enumerate(piece.messages):
            ids.append(ROLES[message.role])
            if index in answers:
                ids += NO_THINK if answers[index].prefix else []
                ids += answer_text(answers[index].token_ids)
            ids += map(ord, message.text)
            for part in message.parts.parts:
                if part.HasField("image"):
                    digest = hashlib.sha256(part.image.data).digest()
                    features.append(
                        feature_pb2.FeaturePlacement(
                            feature_digest=digest[::-1],
                            offset=len(ids),
                            length=IMAGE_TOKENS,
                            media_digest=digest,
                        )
                    )
                    ids += [IMAGE] * IMAGE_TOKENS
                else:
                    ids += map(ord, part.text)
        ids.append(ROLES[3])
        off = piece.render_options.HasField("enable_thinking")
        ids += NO_THINK if off else []
        self.text_ids += len(ids)
        return Rendered(
            ids,
            features,
            [placement.feature_digest for placement in features],
            off,
            len(features) * IMAGE_TOKENS,
            kept,
            False,
            "<no think>" if off else "",
        )


def answer_text(ids):
    return [token_id for token_id in ids if token_id != END]


def session(policy=LAST_ONE, **fields):
    return Session(b"s" * 16, "owner", "model", 0.0, 9e9, 9e9, 9e9, policy=policy, **fields)


def user(text, image=None):
    parts = [conversation_pb2.Part(text=text)]
    if image is not None:
        parts.insert(0, conversation_pb2.Part(image=conversation_pb2.ImagePart(data=image)))
    return conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=parts)
    )


def system(text):
    return conversation_pb2.Message(role=conversation_pb2.ROLE_SYSTEM, text=text)


def new_turn(*messages, thinking=None):
    options = conversation_pb2.RenderOptions(enable_thinking=thinking)
    images = sum(part.HasField("image") for m in messages for part in m.parts.parts)
    return NewTurn(messages, options, thinking, b"", images)


class Store:
    """Keeps the one session."""

    def __init__(self, kept):
        self.kept, self.media = kept, Media()

    async def load(self, owner, session_id):
        return self.kept

    async def replace(self, changed):
        self.kept = changed
        return True

    def turn(self, session_id, wait_s):
        return nullcontext()


class Chat:
    """Plays turns, and knows what the whole conversation is."""

    def __init__(self, policy=LAST_ONE, renderer=None, limits=ROOMY):
        self.store = Store(session(policy))
        self.forms = SessionForms(self.store.media)
        self.renderer, self.limits = renderer or Renderer(), limits
        self.past: list[tuple[list, list[int], bool | None]] = []

    async def prompt(self, new, with_features=False):
        turn = SessionTurn(
            self.store, self.store.kept, new, self.limits, self.forms, 0.0, lambda: 1.0
        )
        async with turn.hold():
            rendered = await turn.prompt(self.renderer, 1.0, with_features)
        return turn, rendered

    async def play(self, *messages, answer="ok", thinking=None, reason=Finish.STOP):
        new = new_turn(*messages, thinking=thinking)
        turn, rendered = await self.prompt(new)
        ids = [*map(ord, answer), END]
        await turn.commit(ChoiceEnd(0, reason), array("I", ids), "worker-0")
        assert turn.committed is (reason is Finish.STOP)
        self.past.append((list(messages), ids, thinking))
        return rendered

    def whole(self, keep_images):
        """Ids of everything, with the last `keep_images` images; the newest turn has no answer yet."""
        images = [
            part.image.data
            for messages, _, _ in self.past
            for message in messages
            for part in message.parts.parts
            if part.HasField("image")
        ]
        left_out = len(images) - keep_images
        ids, offsets = [], []
        for number, (messages, answer, thinking) in enumerate(self.past):
            for message in messages:
                ids.append(ROLES[message.role])
                ids += map(ord, message.text)
                for part in message.parts.parts:
                    if not part.HasField("image"):
                        ids += map(ord, part.text)
                    elif left_out > 0:
                        left_out -= 1
                    else:
                        offsets.append(len(ids))
                        ids += [IMAGE] * IMAGE_TOKENS
            ids.append(ROLES[3])
            ids += NO_THINK if thinking is not None else []
            if number < len(self.past) - 1:
                ids += answer_text(answer)
        return ids, offsets


@pytest.mark.parametrize("whole_needed", [False, True], ids=["by-pieces", "whole"])
@pytest.mark.parametrize(
    ("policy", "keep"),
    [
        pytest.param(HistoryPolicy(), 1, id="last-one"),
        pytest.param(HistoryPolicy(image_count=3), 3, id="last-three"),
        pytest.param(HistoryPolicy(images=ImageRetention.ALL), 10, id="all"),
        pytest.param(HistoryPolicy(images=ImageRetention.NONE), 1, id="none"),
    ],
)
async def test_random_chats_give_the_ids_of_rendering_the_whole(policy, keep, whole_needed):
    random = Random(7)
    for _ in range(40):
        chat = Chat(policy, Renderer(whole_needed))
        for number in range(random.randint(1, 8)):
            messages = [system("be short")] if not number and random.random() < 0.7 else []
            image = random.randbytes(8) if random.random() < 0.6 else None
            if policy.images is ImageRetention.NONE:
                image = None if number < 7 else image
            messages.append(user(f"turn {number} 你好", image))
            thinking = random.choice([None, False])
            answer = "".join(random.choices("abc😀", k=random.randint(0, 9)))
            rendered = await chat.play(*messages, answer=answer, thinking=thinking)
            ids, offsets = chat.whole(keep)
            assert list(rendered.token_ids) == ids
            assert [placement.offset for placement in rendered.features] == offsets
            assert rendered.image_tokens == len(offsets) * IMAGE_TOKENS


async def test_only_what_is_new_is_rendered_and_the_turn_whose_image_goes():
    chat = Chat()
    await chat.play(system("x" * 500), user("one", b"1"))
    await chat.play(user("two", b"2"))
    chat.renderer.text_ids = 0
    await chat.play(user("three", b"3"))
    two, three = 1 + 3 + 1, 1 + IMAGE_TOKENS + 5 + 1
    assert chat.renderer.text_ids == two + three


async def test_whole_turns_drop_from_the_front_to_half_of_what_the_history_may_have():
    chat = Chat(HistoryPolicy(max_history_tokens=200))
    lengths = []
    for number in range(40):
        rendered = await chat.play(*([system("S" * 20)] if not number else []), user("x" * 15))
        lengths.append(len(rendered.token_ids))
        assert list(rendered.token_ids[:21]) == [ROLES[1], *map(ord, "S" * 20)]
        assert chat.store.kept.history_tokens <= 200 + 40
    falls = [index for index in range(1, 40) if lengths[index] < lengths[index - 1]]
    assert len(falls) >= 3
    assert all(lengths[index] <= 21 + 100 + 17 for index in falls)
    assert min(b - a for a, b in pairwise(falls)) >= 4  # not at every turn


async def test_a_prompt_beyond_the_context_loses_its_oldest_turns():
    chat = Chat(limits=Limits(150, 10, 20))
    for _ in range(12):
        rendered = await chat.play(user("x" * 20))
        assert len(rendered.token_ids) <= 130


@pytest.mark.parametrize("reason", [Finish.CANCELLED, Finish.TIME_LIMIT])
async def test_a_turn_that_did_not_end_by_itself_leaves_the_session_as_it_was(reason):
    chat = Chat()
    await chat.play(user("one"))
    before = chat.store.kept
    await chat.play(user("two"), reason=reason)
    assert chat.store.kept is before


async def test_an_image_named_by_its_digest_is_the_one_that_came_before():
    chat = Chat()
    await chat.play(user("one", b"picture"))
    named = user("again", b"")
    digest = hashlib.sha256(b"picture").digest()
    named.parts.parts[0].image.CopyFrom(conversation_pb2.ImagePart(media_digest=digest))
    _, rendered = await chat.prompt(new_turn(named))
    assert [placement.media_digest for placement in rendered.features] == [digest]


async def test_features_that_a_renderer_lacks_are_rendered_again_from_the_kept_images():
    chat = Chat(HistoryPolicy(images=ImageRetention.ALL))
    await chat.play(system("x" * 100), user("one", b"1"))
    await chat.play(user("two"))
    new = new_turn(user("three"))
    _, without = await chat.prompt(new)
    chat.renderer.text_ids = 0
    _, again = await chat.prompt(new, with_features=True)
    assert chat.renderer.text_ids > 100
    assert list(again.token_ids) == list(without.token_ids)


async def test_images_whose_bytes_are_gone_are_missing_and_no_longer_known():
    chat = Chat(HistoryPolicy(images=ImageRetention.ALL))
    await chat.play(user("one", b"1"))
    chat.store.media.kept.clear()
    turn, rendered = await chat.prompt(new_turn(user("two")), with_features=True)
    assert not rendered.features
    await turn.commit(ChoiceEnd(0, Finish.STOP), array("I", [END]), "w")
    assert not chat.store.kept.media


async def test_other_tools_render_the_history_anew():
    chat = Chat()
    await chat.play(user("a" * 50))
    chat.renderer.text_ids = 0
    _, rendered = await chat.prompt(replace(new_turn(user("b")), options_digest=b"tools"))
    assert chat.renderer.text_ids > 50
    assert list(rendered.token_ids)[:51] == [ROLES[2], *map(ord, "a" * 50)]


async def test_a_stop_token_of_the_request_is_no_part_of_the_answer_that_is_kept():
    chat = Chat()
    turn, _ = await chat.prompt(new_turn(user("one")))
    end = ChoiceEnd(0, Finish.STOP_SEQUENCE, "77", by_token=True)
    await turn.commit(end, array("I", [65, 77]), "w")
    kept = chat.store.kept.turns[0]
    assert (array("I", [65]).tobytes(), "") == (kept.answer_ids, kept.stop_match)


async def test_a_maker_without_history_needs_no_renderer_but_for_what_is_new():
    forms = SessionForms(Media())
    maker = PromptMaker(session(), new_turn(user("hi")), ROOMY, forms)
    prompt = await maker.make(Renderer(), 1.0, with_features=False)
    assert len(prompt.rendered.token_ids) == 4
