"""One loaded model and one real server for all tokenizer tests."""

import io
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from hotline.v1 import tokenizer_pb2_grpc
from PIL import Image
from tokenizer_kit import MODEL_PATH, Encoded, RenderIds, Settings, Stub

from services.runtime.channel import open_channel
from services.runtime.lifecycle import Process
from services.tokenizer.app import TokenizerApp
from services.tokenizer.conversation import Conversation, Message, Role
from services.tokenizer.model import Model, load_model
from services.tokenizer.model_folder import ModelFolder, load
from services.tokenizer.output_text import OutputFormat
from services.tokenizer.settings import TokenizerSettings


@pytest.fixture(scope="session")
def tokenizer_settings() -> Settings:
    """Makes settings for the default model."""

    def make(**values: Any) -> TokenizerSettings:
        given: dict[str, Any] = {
            "model_path": MODEL_PATH,
            "model_name": "tiny",
            "drain_notice_s": 0,
        } | values
        return TokenizerSettings(**given)

    return make


@pytest.fixture(scope="session")
def processor() -> Any:
    """The reference: transformers' own processor of the same folder."""
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(str(MODEL_PATH), local_files_only=True)


@pytest.fixture(scope="session")
def folder() -> ModelFolder:
    return load(MODEL_PATH)


@pytest.fixture(scope="session")
def model(tokenizer_settings: Settings) -> Model:
    return load_model(tokenizer_settings())


@pytest.fixture(scope="session")
def output_format(model: Model) -> OutputFormat:
    return model.output


@pytest.fixture(scope="session")
def render_ids(model: Model) -> RenderIds:
    """Ids of a conversation given as (role, content) pairs."""

    def render(*messages: tuple[Role, Any], **options: Any) -> list[int]:
        conversation = Conversation([Message(role, content) for role, content in messages])
        return list(model.renderer.render(replace(conversation, **options)).token_ids)

    return render


@pytest.fixture(scope="session")
async def tokenizer_process(tokenizer_settings: Settings) -> AsyncGenerator[Process, None]:
    settings = tokenizer_settings(max_text_bytes=100_000)
    process = Process(TokenizerApp(settings), settings)
    await process.start()
    yield process
    await process.stop()


@pytest.fixture(scope="session")
async def stub(tokenizer_process: Process) -> AsyncGenerator[Stub, None]:
    async with open_channel(f"127.0.0.1:{tokenizer_process.port}") as channel:
        yield tokenizer_pb2_grpc.TokenizerServiceStub(channel)


@pytest.fixture(scope="session")
def encoded() -> Encoded:
    """An image file's bytes."""

    def encode(image: Image.Image | None = None, kind: str = "PNG", **options: Any) -> bytes:
        file = io.BytesIO()
        (image or Image.new("RGB", (60, 40), "red")).save(file, kind, **options)
        return file.getvalue()

    return encode
