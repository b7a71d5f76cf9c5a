"""Prompts of sessions, made by the gateway of what a real tokenizer renders, against rendering the whole conversation."""

import io
from array import array
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest
from hotline.v1 import conversation_pb2, tokenizer_pb2
from PIL import Image as Picture

from services.gateway.events import ChoiceEnd, Finish
from services.gateway.interfaces import Rendered
from services.gateway.render_wire import render_request
from services.gateway.session_forms import SessionForms
from services.gateway.sessions.prompt import Limits, NewTurn
from services.gateway.sessions.record import HistoryPolicy, ImageRetention, Session
from services.gateway.sessions.turn import SessionTurn
from services.tokenizer import wire
from services.tokenizer.model import load_model
from services.tokenizer.settings import TokenizerSettings

MODEL_PATH = Path(__file__).parents[2] / "deploy" / "models" / "autoglm-phone-tiny"
USER, ASSISTANT, PLACEHOLDER = 3051, 3052, 3058
TEXTS = ("打开设置", "tap <|user|> here", "😀 ok\n", "<|image|>", "", "</answer> ")
ANSWERS = (
    "<think>I look.</think>\n<answer>do(action='Tap')</answer>",
    "<answer>好",
    "😀 a STOP b",
    "",
)


class Tokenizer:
    """A loaded model behind the messages that the gateway and the tokenizer exchange."""

    name = "renderer"

    def __init__(self, model):
        self.model, self.whole_count = model, 0

    async def render(self, piece, timeout_s):
        request = tokenizer_pb2.RenderRequest.FromString(render_request(piece).SerializeToString())
        prompt = self.model.renderer.render(wire.conversation(request))
        self.whole_count += prompt.whole_needed
        response = wire.render_response(prompt)
        return Rendered(
            response.token_ids,
            response.features,
            [placement.feature_digest for placement in response.features],
            response.thinking_closed,
            sum(placement.length for placement in response.features),
            response.answer_token_count,
            response.whole_needed,
            response.answer_prefix,
        )


class Store:
    """Keeps one session and its images."""

    def __init__(self, session):
        self.kept, self.media, self._images = session, self, {}

    async def load(self, owner, session_id):
        return self.kept

    async def replace(self, changed):
        self.kept = changed
        return True

    def turn(self, session_id, wait_s):
        return nullcontext()

    async def put(self, session_id, digest, data):
        self._images[digest] = data

    async def get(self, session_id, digest):
        return self._images.get(digest)


@pytest.fixture(scope="module", params=["turns", "whole"])
def model(request, tmp_path_factory):
    """The default model; and one whose template cannot go on after an answer, since it numbers its questions."""
    path = MODEL_PATH
    if request.param == "whole":
        path = tmp_path_factory.mktemp("whole")
        for file in MODEL_PATH.iterdir():
            if file.suffix == ".json":
                (path / file.name).write_bytes(file.read_bytes())
        source = (MODEL_PATH / "chat_template.jinja").read_text(encoding="utf-8")
        assert "<|user|>{{ '\\n' }}" in source
        numbered = source.replace("<|user|>{{ '\\n' }}", "<|user|>{{ loop.index }}{{ '\\n' }}")
        (path / "chat_template.jinja").write_text(numbered, encoding="utf-8")
    return load_model(TokenizerSettings(model_path=path, model_name="tiny"))


def picture(size):
    file = io.BytesIO()
    Picture.new("RGB", (56 + 28 * size, 56), "red").save(file, "PNG")
    return file.getvalue()


def user(text, image=None):
    parts = [conversation_pb2.Part(text=text)]
    if image is not None:
        parts.append(conversation_pb2.Part(image=conversation_pb2.ImagePart(data=image)))
    return conversation_pb2.Message(
        role=conversation_pb2.ROLE_USER, parts=conversation_pb2.PartList(parts=parts)
    )


def assistant(text):
    return conversation_pb2.Message(role=conversation_pb2.ROLE_ASSISTANT, text=text)


def shown(past, keep):
    """All messages so far, with the last `keep` images."""
    messages = [message for turn in past for message in turn]
    left_out = sum(len(message.parts.parts) == 2 for message in messages) - keep
    for message in messages:
        text, *images = message.parts.parts or [None]
        if images and left_out > 0:
            left_out -= 1
            yield user(text.text)
        else:
            yield message


def by_turn(ids):
    """The prompt, cut before each message of the model's and each of the user's."""
    pieces = [[]]
    for token_id in ids:
        if token_id in (USER, ASSISTANT):
            pieces.append([])
        pieces[-1].append(token_id)
    return pieces


@pytest.mark.parametrize(
    ("policy", "keep"),
    [
        pytest.param(HistoryPolicy(), 1, id="last image"),
        pytest.param(HistoryPolicy(images=ImageRetention.ALL), 10, id="all images"),
    ],
)
async def test_random_sessions_have_the_prompts_of_whole_conversations(model, policy, keep):
    tokenizer = Tokenizer(model)
    limits = Limits(100_000, 10, 10)
    for seed in range(25):
        random = Random(seed)
        session = Session(b"s" * 16, "owner", "tiny", 0.0, 9e9, 9e9, 9e9, policy=policy)
        store = Store(session)
        past = []
        for number in range(5):
            image = picture(random.randrange(3)) if random.random() < 0.5 else None
            new = [user(f"{number} {random.choice(TEXTS)}", image)]
            thinks = random.choice([None, True, False])
            options = conversation_pb2.RenderOptions(enable_thinking=thinks)
            turn = SessionTurn(
                store,
                store.kept,
                NewTurn(new, options, thinks, b"", 1 if image else 0),
                limits,
                SessionForms(store),
                0.0,
                lambda: 1.0,
            )
            past.append(new)
            async with turn.hold():
                rendered = await turn.prompt(tokenizer, 1.0, False)
            request = tokenizer_pb2.RenderRequest(messages=shown(past, keep), options=options)
            whole = wire.render_response(model.renderer.render(wire.conversation(request)))
            decode = model.plain.decode
            made, expected = by_turn(rendered.token_ids), by_turn(whole.token_ids)
            assert len(made) == len(expected)
            for ours, theirs in zip(made, expected, strict=True):
                same = ours == theirs
                assert same or (
                    ours[0] == ASSISTANT and decode(ours, False) == decode(theirs, False)
                )
            assert rendered.feature_digests == [each.feature_digest for each in whole.features]
            for placement in rendered.features:
                end = placement.offset + placement.length
                assert set(rendered.token_ids[placement.offset : end]) == {PLACEHOLDER}
            assert rendered.thinking_closed == whole.thinking_closed
            text = random.choice(ANSWERS)
            ids = [one for character in text for one in model.plain.encode(character)]
            if random.random() < 0.5:
                ids = model.plain.encode(text, parse_special_tokens=True)
            stop = "STOP" if "STOP" in text else ""
            ids += [] if stop else [USER]
            end = ChoiceEnd(0, Finish.STOP_SEQUENCE if stop else Finish.STOP, stop_match=stop)
            await turn.commit(end, array("I", ids), "worker-0")
            assert turn.committed
            prefix = whole.answer_prefix
            past.append([assistant(prefix + (text.partition("STOP")[0] if stop else text))])
    assert (tokenizer.whole_count > 0) == (not model.renderer.goes_on)
