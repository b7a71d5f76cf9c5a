import re

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.worker_id import worker_generation_id

IDS = st.text("abzAZ09._:-", min_size=1, max_size=128)
OWNERS = st.text(max_size=30)
FORM = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@given(OWNERS, IDS)
def test_every_name_is_one_that_workers_take(owner, generation_id):
    assert FORM.fullmatch(worker_generation_id(owner, generation_id))


@given(OWNERS, OWNERS, IDS, IDS)
def test_two_generations_never_have_one_name(owner, other, generation_id, another):
    same = worker_generation_id(owner, generation_id) == worker_generation_id(other, another)
    assert same is ((owner, generation_id) == (other, another))


def test_no_choice_of_ids_reaches_into_another_owner_s():
    victim = worker_generation_id("alice", "turn-1")
    assert worker_generation_id("bob", victim) != victim
    assert worker_generation_id("bob", victim[-100:]) != victim


def test_a_short_id_can_be_read_in_a_worker_s_log():
    assert worker_generation_id("alice", "turn-1").endswith(":turn-1")
    assert len(worker_generation_id("alice", "x" * 128)) <= 128
