"""Processes that only render, or only detokenise."""

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import grpc
import pytest
from hotline.v1 import conversation_pb2, tokenizer_pb2, tokenizer_pb2_grpc
from tokenizer_kit import MODEL_PATH, Settings, Stub

from services.runtime.channel import open_channel
from services.runtime.lifecycle import Process
from services.tokenizer.app import TokenizerApp
from services.tokenizer.model import load_model
from services.tokenizer.model_folder import ModelFolder, load_vocabulary
from services.tokenizer.settings import Role

STATUS = tokenizer_pb2.GetTokenizerStatusRequest()


@pytest.fixture(scope="module", params=list(Role))
async def one_role(
    request: pytest.FixtureRequest, tokenizer_settings: Settings
) -> AsyncGenerator[tuple[Role, Stub], None]:
    settings = tokenizer_settings(name="tokenizer-7", roles={request.param})
    process = Process(TokenizerApp(settings), settings)
    await process.start()
    async with open_channel(f"127.0.0.1:{process.port}") as channel:
        yield request.param, tokenizer_pb2_grpc.TokenizerServiceStub(channel)
    await process.stop()


def render(stub: Stub) -> object:
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_USER, text="hi")
    return stub.Render(tokenizer_pb2.RenderRequest(messages=[message]))


def push(stub: Stub) -> object:
    return stub.PushFeatures(tokenizer_pb2.PushFeaturesRequest(feature_digests=[], worker="w"))


async def detokenise(stub: Stub) -> object:
    call = stub.Detokenise()
    opened = tokenizer_pb2.DetokeniseInput(handle=1, open=tokenizer_pb2.DetokeniseOpen())
    ended = tokenizer_pb2.DetokeniseInput(
        handle=1, tokens=tokenizer_pb2.DetokeniseTokens(token_ids=[400], last=True)
    )
    await call.write(tokenizer_pb2.DetokeniseRequest(inputs=[opened, ended]))
    response = await call.read()
    await call.done_writing()
    return response


CALLS = {
    "Render": (render, Role.RENDER),
    "PushFeatures": (push, Role.RENDER),
    "Detokenise": (detokenise, Role.DETOKENISE),
}


@pytest.mark.parametrize("method", CALLS)
async def test_a_call_of_another_role_is_unimplemented_and_says_whom_to_ask(
    one_role: tuple[Role, Stub], method: str
) -> None:
    role, stub = one_role
    call, wanted = CALLS[method]
    if wanted is role:
        try:
            await asyncio.wait_for(call(stub), 10)  # type: ignore[operator]
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT  # noqa: PT017  # no digest to push
        return
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(call(stub), 10)  # type: ignore[operator]
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert caught.value.details() == (
        f"{method}: this tokenizer process has the roles {role.value}; "
        f"ask one that has the role {wanted.value}."
    )


async def test_the_status_tells_roles_name_and_state(one_role: tuple[Role, Stub]) -> None:
    role, stub = one_role
    status = await stub.GetTokenizerStatus(STATUS)
    assert [tokenizer_pb2.TokenizerRole.Name(number) for number in status.roles] == [
        f"TOKENIZER_ROLE_{role.name}"
    ]
    assert (status.name, status.state, status.model) == ("tokenizer-7", "SERVING", "tiny")
    assert status.vocabulary_size > 1000


async def test_both_roles_are_the_default(stub: Stub) -> None:
    assert set((await stub.GetTokenizerStatus(STATUS)).roles) == {1, 2}


async def test_the_status_is_answered_before_it_serves(tokenizer_settings: Settings) -> None:
    settings = tokenizer_settings(roles={Role.DETOKENISE})
    app = TokenizerApp(settings)
    process = Process(app, settings)
    loaded = asyncio.Event()

    async def warm() -> None:
        await loaded.wait()

    app.warm = warm  # type: ignore[method-assign]
    starting = asyncio.create_task(process.start())
    async with asyncio.timeout(10):
        while not process.port or process.state != "WARMING":
            await asyncio.sleep(0.01)
        async with open_channel(f"127.0.0.1:{process.port}") as channel:
            stub = tokenizer_pb2_grpc.TokenizerServiceStub(channel)
            status = await stub.GetTokenizerStatus(STATUS)
        loaded.set()
        await starting
    await process.stop()
    assert (status.state, status.vocabulary_size) == ("WARMING", 0)


def test_no_role_at_all_is_refused(tokenizer_settings: Settings) -> None:
    with pytest.raises(ValueError, match="roles"):
        tokenizer_settings(roles=set())


def test_a_detokeniser_reads_the_vocabulary_exactly_as_transformers_does(
    folder: ModelFolder,
) -> None:
    vocabulary = load_vocabulary(MODEL_PATH)
    assert vocabulary.backend.to_str() == folder.backend.to_str()
    for name in ("vocabulary_size", "control", "special_ids", "end_ids"):
        assert getattr(vocabulary, name) == getattr(folder, name), name


def test_a_detokeniser_has_no_renderer(tokenizer_settings: Settings) -> None:
    assert load_model(tokenizer_settings(roles={Role.DETOKENISE})).renderer is None


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(MODEL_PATH / name, tmp_path)
    return tmp_path


def test_the_end_token_of_tokenizer_config_counts_where_no_other_is_named(
    copied: Path, folder: ModelFolder
) -> None:
    for spelling in ("<|endoftext|>", {"content": "<|endoftext|>"}):
        config = json.loads((copied / "config.json").read_text())
        config.get("text_config", config).pop("eos_token_id", None)
        (copied / "config.json").write_text(json.dumps(config))
        end = {"eos_token": spelling}
        (copied / "tokenizer_config.json").write_text(json.dumps(end))
        assert load_vocabulary(copied).end_ids == {folder.control["<|endoftext|>"]}


def test_tokens_that_only_transformers_would_add_are_refused_not_lost(copied: Path) -> None:
    added = {"added_tokens_decoder": {"999999": {"content": "<odd>"}}}
    (copied / "tokenizer_config.json").write_text(json.dumps(added))
    with pytest.raises(ValueError, match="999999"):
        load_vocabulary(copied)


def test_a_folder_without_tokenizer_json_is_refused(copied: Path) -> None:
    (copied / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"has no tokenizer\.json"):
        load_vocabulary(copied)
