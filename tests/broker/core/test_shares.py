from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.core.shares import share


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 100))
def test_a_share_is_at_most_what_one_may_have_and_never_all_that_is_left(
    most: int, left: int, least: int
) -> None:
    given_ = share(most, left, least)
    assert given_ <= most
    assert given_ <= max(least, left // 8)


@given(st.lists(st.sampled_from("abcdefgh"), max_size=300))
def test_whoever_takes_leaves_some_to_the_next(takers: list[str]) -> None:
    places, held = 1_000, dict.fromkeys("abcdefgh", 0)
    for taker in takers:
        while held[taker] < share(500, places - sum(held.values()), 4):
            held[taker] += 1
    assert sum(held.values()) < places * 7 // 10
