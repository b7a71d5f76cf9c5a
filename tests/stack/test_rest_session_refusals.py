"""What sessions over REST refuse, through the edge: by field, value and limit."""

import pytest
from rest_sessions import CHAT, CLEAR, MAX_PER_OWNER, SESSIONS, chat, opened, owned_stack, refused

OWNERS = ("anna", "full")


@pytest.fixture(scope="module")
async def stack(tmp_path_factory):
    async with owned_stack(tmp_path_factory.mktemp("edge"), OWNERS) as running:
        yield running


@pytest.fixture
async def anna(stack):
    async with stack.owner("anna") as http:
        yield http


async def test_an_owner_has_so_many_and_is_told_the_limit(stack):
    async with stack.owner("full") as http:
        for _ in range(MAX_PER_OWNER):
            last = await opened(http)
        error = await refused(await http.post(SESSIONS, json={}))
        assert (error["status"], error["code"]) == (429, "overloaded")
        assert str(MAX_PER_OWNER) in error["message"]
        await http.delete(f"{SESSIONS}/{last['id']}")
        await opened(http)
        for each in (await http.get(SESSIONS, params={"limit": 1000})).json()["data"]:
            await http.delete(f"{SESSIONS}/{each['id']}")


WRONG = [
    pytest.param({"ttl_seconds": 9.9}, "ttl_seconds", "10 to 86400", id="short"),
    pytest.param({"ttl_seconds": 86401}, "ttl_seconds", "86401", id="long"),
    pytest.param({"ttl_seconds": "60"}, "ttl_seconds", "str", id="text"),
    pytest.param({"ttl_seconds": True}, "ttl_seconds", "true or false", id="truth"),
    pytest.param({"absolute_ttl_seconds": -1}, "absolute_ttl_seconds", "604800", id="negative"),
    pytest.param({"absolute_ttl_seconds": 1e308}, "absolute_ttl_seconds", "604800", id="endless"),
    pytest.param({"cache_scope": "everybody"}, "cache_scope", "everybody", id="scope"),
    pytest.param({"history": []}, "history", "object", id="history"),
    pytest.param({"history": {"images": "some"}}, "history.images", "some", id="images"),
    pytest.param({"history": {"image_count": 11}}, "history.image_count", "0 to 10", id="count"),
    pytest.param(
        {"history": {"max_history_tokens": -1}}, "history.max_history_tokens", "-1", id="tokens"
    ),
    pytest.param(
        {"messages": [{"role": "boss", "content": "hi"}]}, "messages[0].role", "boss", id="role"
    ),
    pytest.param({"messages": "hi"}, "messages", "a list", id="no messages"),
    pytest.param(
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}],
                }
            ]
        },
        "messages[0].content[0]",
        "",
        id="url",
    ),
]


@pytest.mark.parametrize(("fields", "param", "word"), WRONG)
async def test_what_no_session_can_be_is_400_by_field_value_and_limit(anna, fields, param, word):
    error = await refused(await anna.post(SESSIONS, json=fields))
    assert error["status"] == 400, error
    assert (error["param"] or "").startswith(param), error
    assert word in error["message"], error


@pytest.mark.parametrize("name", ["0" * 31, "0" * 33, "A" * 32, "g" * 32, "0" * 31 + "%0a"])
async def test_what_cannot_be_an_id_is_400_by_its_name(anna, name):
    path = f"{SESSIONS}/{name}"
    for call in (anna.get(path), anna.post(f"{path}/touch"), anna.delete(path)):
        error = await refused(await call)
        assert (error["status"], error["param"]) == (400, "session_id")
        assert "32 hexadecimal digits" in error["message"]


@pytest.mark.parametrize("part", [slice(31), slice(1, None), slice(0)])
async def test_case_34_only_the_whole_id_names_a_session(anna, part):
    whole = (await opened(anna))["id"]
    for name in (whole[part], whole + "0", whole.upper().replace("0", "A"), f" {whole}"):
        answer = await anna.post(CLEAR, json={"session_id": name})
        assert (await refused(answer))["param"] == "session_id"
        if name:
            answer = await anna.post(CHAT, json=chat("hi", session_id=name))
            assert (await refused(answer))["status"] == 400
    changed = whole[:-1] + ("0" if whole[-1] != "0" else "1")
    error = await refused(await anna.get(f"{SESSIONS}/{changed}"))
    assert (error["status"], error["code"]) == (404, "session_not_found")
    assert (await anna.get(f"{SESSIONS}/{whole}")).json()["turn_count"] == 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        pytest.param({}, "session_id", id="absent"),
        pytest.param({"session_id": None}, "session_id", id="null"),
        pytest.param({"session_id": 7}, "session_id", id="number"),
        pytest.param({"session_id": "0" * 32, "forget_history": 1}, "forget_history", id="flag"),
    ],
)
async def test_a_clear_that_names_no_session_is_400(anna, body, param):
    error = await refused(await anna.post(CLEAR, json=body))
    assert (error["status"], error["param"]) == (400, param)
