"""The simulated KV cache and encoder cache."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.worker.sim_blocks import BlockPool, EncoderCache, block_name, root_name

A, B, C, D = (bytes([number]) * 16 for number in range(4))


def named(pool: BlockPool, *names: bytes) -> None:
    """Hold blocks with these names."""
    assert pool.take((), len(names))
    for name in names:
        assert pool.give_name(name)


def test_used_counts_what_is_held_and_nothing_that_could_be_given_out():
    pool = BlockPool(4)
    named(pool, A, B)
    assert pool.used == 2
    pool.release([A, B], 0)
    assert pool.used == 0


def test_more_blocks_than_are_free_are_refused_and_nothing_is_held():
    pool = BlockPool(3)
    named(pool, A)
    assert not pool.take((), 3)
    assert pool.used == 1
    assert pool.take((), 2)


def test_a_free_block_is_found_again_by_its_name():
    pool = BlockPool(4)
    named(pool, A, B)
    pool.release([A, B], 0)
    assert pool.hit([A, B, C]) == 2
    assert pool.take([A, B], 1)
    assert pool.used == 3


def test_only_an_unbroken_beginning_is_found():
    pool = BlockPool(4)
    named(pool, A, C)
    assert pool.hit([A, B, C]) == 1


def test_a_block_that_two_hold_is_one_block():
    pool = BlockPool(2)
    named(pool, A)
    assert pool.take([A], 0)
    assert pool.used == 1
    pool.release([A], 0)
    assert pool.used == 1
    pool.release([A], 0)
    assert pool.used == 0


def test_the_block_that_was_free_for_longest_is_forgotten_first():
    pool = BlockPool(3)
    named(pool, A, B, C)
    pool.release([B], 0)
    pool.release([A], 0)
    assert pool.take((), 1)
    assert (pool.hit([A]), pool.hit([B])) == (1, 0)


def test_the_end_of_a_prefix_is_forgotten_before_its_beginning():
    pool = BlockPool(3)
    named(pool, A, B, C)
    pool.release([A, B, C], 0)
    assert pool.take((), 2)
    assert pool.hit([A, B, C]) == 1


def test_nameless_blocks_are_given_out_before_anything_is_forgotten():
    pool = BlockPool(2)
    named(pool, A)
    pool.release([A], 0)
    assert pool.take((), 1)
    assert pool.hit([A]) == 1


def test_blocks_about_to_be_taken_do_not_count_as_free():
    pool = BlockPool(2)
    named(pool, A, B)
    pool.release([A, B], 0)
    assert not pool.take([A, B], 1)
    assert not pool.take([A], 2)
    assert pool.take([A], 1)


def test_a_content_that_is_here_already_gives_no_second_name():
    pool = BlockPool(2)
    named(pool, A)
    assert pool.take((), 1)
    assert not pool.give_name(A)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.booleans()), max_size=60),
)
def test_blocks_are_never_lost_nor_made(acts: list[tuple[int, int, bool]]):
    pool, held = BlockPool(8), list[tuple[list[bytes], int]]()
    for number, count, release in acts:
        if release and held:
            pool.release(*held.pop())
            continue
        chain = [bytes([number, index]) for index in range(count)]
        found = pool.hit(chain)
        if pool.take(chain[:found], count - found):
            own = chain[:found] + [name for name in chain[found:] if pool.give_name(name)]
            held.append((own, count - len(own)))
    distinct = {name for names, _ in held for name in names}
    assert pool.used == len(distinct) + sum(nameless for _, nameless in held)
    while held:
        pool.release(*held.pop())
    assert pool.used == 0
    assert pool.take((), 8)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(block_name(root_name("s"), [1, 2, 4]), id="other token"),
        pytest.param(block_name(root_name("t"), [1, 2, 3]), id="other salt"),
        pytest.param(block_name(root_name(""), [1, 2, 3]), id="no salt"),
        pytest.param(block_name(A, [1, 2, 3]), id="other beginning"),
        pytest.param(block_name(root_name("s"), [1, 2, 3], [B]), id="with an image"),
    ],
)
def test_a_name_follows_from_everything_before_it(other: bytes):
    assert other != block_name(root_name("s"), [1, 2, 3])
    assert block_name(root_name("s"), [1, 2, 3]) == block_name(root_name("s"), [1, 2, 3])


def test_two_images_in_the_same_place_give_two_names():
    assert block_name(A, [7, 7], [B]) != block_name(A, [7, 7], [C])


def test_the_encoder_forgets_the_image_that_was_used_least_recently():
    cache = EncoderCache(10)
    assert not cache.see("", A, 5)
    assert not cache.see("", B, 5)
    assert cache.see("", A, 5)
    assert not cache.see("", C, 5)
    assert cache.see("", A, 5)
    assert not cache.see("", B, 5)


def test_an_image_larger_than_the_encoders_cache_is_held_alone():
    cache = EncoderCache(10)
    assert not cache.see("", A, 5)
    assert not cache.see("", B, 50)
    assert cache.see("", B, 50)
    assert not cache.see("", A, 5)


def test_the_encoder_shares_nothing_between_salts():
    cache = EncoderCache(100)
    assert not cache.see("one", A, 5)
    assert not cache.see("two", A, 5)
    assert cache.see("one", A, 5)
