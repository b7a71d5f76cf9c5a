"""Sessions over REST, through the edge: opened, read, touched, listed, cleared, deleted, and used by chat requests."""

import base64
import time
from typing import Any

import httpx
import openai
import pytest
from rest_sessions import CHAT, CLEAR, SESSIONS, chat, opened, owned_stack, refused, usage
from rest_stack import MODEL_NAME
from sim_stack import LIMIT_S

OWNERS = ("anna", "bert", "carl")
SYSTEM = {"role": "system", "content": "You are a phone agent. " * 40}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="module")
async def stack(tmp_path_factory):
    async with owned_stack(tmp_path_factory.mktemp("edge"), OWNERS) as running:
        yield running


@pytest.fixture
async def anna(stack):
    async with stack.owner("anna") as http:
        yield http


@pytest.fixture
async def bert(stack):
    async with stack.owner("bert") as http:
        yield http


async def test_a_session_says_what_it_was_opened_with_and_what_is_the_default(anna):
    before_s = int(time.time())
    plain = await opened(anna)
    assert plain["object"] == "session"
    assert plain["model"] == MODEL_NAME
    assert before_s <= plain["created"] <= time.time() + 1
    assert (plain["ttl_seconds"], plain["absolute_ttl_seconds"]) == (1800, 86400)
    assert plain["expires_at"] - plain["created"] in (1799, 1800, 1801)
    assert plain["history"] == {"max_history_tokens": 0, "images": "last", "image_count": 1}
    said = {
        "model": "autoglm-phone-9b",
        "ttl_seconds": 60.5,
        "absolute_ttl_seconds": 600,
        "cache_scope": "session",
        "history": {"max_history_tokens": 500, "images": "all", "image_count": 3},
        "messages": [SYSTEM],
        "unknown": "is accepted",
    }
    session = await opened(anna, **said)
    for name in ("ttl_seconds", "absolute_ttl_seconds", "cache_scope", "history"):
        assert session[name] == said[name]
    assert session["model"] == MODEL_NAME
    assert (await anna.get(f"{SESSIONS}/{session['id']}")).json() == session


async def test_a_touch_moves_the_end_on_and_a_deletion_twice_is_one(anna):
    session = await opened(anna, ttl_seconds=600)
    path = f"{SESSIONS}/{session['id']}"
    async with openai.AsyncOpenAI(
        base_url=f"{anna.base_url}/v1", api_key=anna.headers["authorization"][7:], max_retries=0
    ) as unmodified:
        touched = await unmodified.post(f"/sessions/{session['id']}/touch", cast_to=object)
    assert touched["id"] == session["id"]
    assert touched["expires_at"] >= session["expires_at"]
    for _ in range(2):
        answer = await anna.delete(path)
        assert answer.json() == {"id": session["id"], "object": "session", "deleted": True}
    for call in (anna.get(path), anna.post(f"{path}/touch")):
        error = await refused(await call)
        assert (error["status"], error["code"]) == (404, "session_not_found")


async def test_pages_go_from_the_newest_on_by_the_last_id(bert):
    ids = []
    for number in range(5):
        ids.append((await opened(bert, ttl_seconds=100 + number))["id"])
    newest_first, found, after = ids[::-1], [], ""
    while True:
        query = {"limit": 2} | ({"after": after} if after else {})
        page = (await bert.get(SESSIONS, params=query)).json()
        assert page["object"] == "list"
        assert (page["first_id"], page["last_id"]) == (
            page["data"][0]["id"],
            page["data"][-1]["id"],
        )
        found += [each["id"] for each in page["data"]]
        after = page["last_id"]
        if not page["has_more"]:
            break
    created = {each["id"]: each["created"] for each in (await bert.get(SESSIONS)).json()["data"]}
    assert sorted(found) == sorted(newest_first)
    assert [created[each] for each in found] == sorted(created.values(), reverse=True)


async def test_nobody_has_an_empty_page_and_no_more(stack):
    async with stack.owner("carl") as http:
        page = (await http.get(SESSIONS)).json()
    assert page == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


@pytest.mark.parametrize("way", ["body", "header"])
async def test_a_chat_request_in_a_session_sends_what_is_new_and_counts_the_whole_prompt(anna, way):
    session_id = (await opened(anna, messages=[SYSTEM]))["id"]
    headers = {"x-session-id": session_id} if way == "header" else {}
    fields = {"session_id": session_id} if way == "body" else {}
    first = await usage(anna, chat("one", **fields), **headers)
    second = await usage(anna, chat("two", **fields), **headers)
    assert second["prompt_tokens"] > first["prompt_tokens"] > 100
    assert second["prompt_tokens_details"]["cached_tokens"] > first["prompt_tokens"] * 0.8
    session = (await anna.get(f"{SESSIONS}/{session_id}")).json()
    assert session["turn_count"] == 2
    assert session["history_tokens"] == second["total_tokens"]


async def test_clear_leaves_the_history_and_nothing_in_the_cache(anna):
    session_id = (await opened(anna, messages=[SYSTEM]))["id"]
    first = await usage(anna, chat("one", session_id=session_id))
    cleared = (await anna.post(CLEAR, json={"session_id": session_id})).json()
    assert (cleared["id"], cleared["turn_count"]) == (session_id, 1)
    second = await usage(anna, chat("two", session_id=session_id))
    assert second["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens"] > first["prompt_tokens"]
    third = await usage(anna, chat("three", session_id=session_id))
    assert third["prompt_tokens_details"]["cached_tokens"] > 0


async def test_clear_with_forget_history_leaves_an_empty_session(anna):
    session_id = (await opened(anna, messages=[SYSTEM]))["id"]
    await usage(anna, chat("one", session_id=session_id))
    body = {"session_id": session_id, "forget_history": True}
    cleared = (await anna.post(CLEAR, json=body)).json()
    assert (cleared["turn_count"], cleared["history_tokens"]) == (0, 0)
    again = await usage(anna, chat("two", session_id=session_id))
    assert again["prompt_tokens"] < 30


async def test_case_33_a_session_of_another_owner_answers_as_one_that_never_was(anna, bert):
    session_id = (await opened(anna))["id"]
    answers: dict[str, list[Any]] = {}
    for name in (session_id, "0" * 32):
        path = f"{SESSIONS}/{name}"
        answers[name] = [
            await refused(await call)
            for call in (
                bert.get(path),
                bert.post(f"{path}/touch"),
                bert.post(CLEAR, json={"session_id": name}),
                bert.post(CLEAR, json={"session_id": name, "forget_history": True}),
                bert.post(CHAT, json=chat("hi", session_id=name)),
                bert.get(SESSIONS, params={"after": name}),
            )
        ]
        deleted = (await bert.delete(path)).json()
        answers[name].append(deleted | {"id": ""})
    assert answers[session_id] == answers["0" * 32]
    assert {each["status"] for each in answers[session_id][:-1]} == {404}
    assert session_id not in (await bert.get(SESSIONS)).text
    assert (await anna.get(f"{SESSIONS}/{session_id}")).status_code == 200


async def test_case_33_no_prefix_of_one_owners_session_shows_in_anothers(anna, bert):
    system = {"role": "system", "content": "Only for this test. " * 60}
    found = []
    for http in (anna, bert, anna):
        session_id = (await opened(http, messages=[system]))["id"]
        counted = await usage(http, chat("hi", session_id=session_id))
        found.append(counted["prompt_tokens_details"]["cached_tokens"])
    assert found[:2] == [0, 0]
    assert found[2] > 0


IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


async def test_a_session_opened_with_an_image_shows_it_and_keeps_it_by_its_bytes(stack, anna):
    message = {"role": "user", "content": [{"type": "text", "text": "Look"}, IMAGE]}
    with_image = await opened(anna, messages=[message], history={"images": "all"})
    without = await opened(
        anna, messages=[{"role": "user", "content": "Look"}], history={"images": "all"}
    )
    media = stack.behind.app.sessions.store.media
    assert media.held_bytes == len(base64.b64decode(PIXEL))
    seen, unseen = [
        (await usage(anna, chat("And?", session_id=each["id"])))["prompt_tokens"]
        for each in (with_image, without)
    ]
    assert seen > unseen
    await anna.delete(f"{SESSIONS}/{with_image['id']}")
    assert media.held_bytes == 0


async def test_browsers_may_delete_a_session(stack):
    headers = {
        "origin": "http://localhost:3000",
        "access-control-request-method": "DELETE",
        "access-control-request-headers": "authorization,x-session-id",
    }
    async with httpx.AsyncClient(base_url=stack.url, timeout=LIMIT_S) as http:
        answer = await http.options(f"{SESSIONS}/{'0' * 32}", headers=headers)
    assert answer.status_code in (200, 204)
    assert "DELETE" in answer.headers["access-control-allow-methods"]
