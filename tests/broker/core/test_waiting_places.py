"""Places for waiting requests: the bounds, and that the sums stay true whatever comes and goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.core.waiting_places import PlaceLimits, WaitingPlaces, places_for


class Peer:
    def __init__(self, name: int) -> None:
        self.name = name
        self.held = 0
        self.closed = False


class Request:
    def __init__(self, connection: Peer, group: str, places: int) -> None:
        self.connection = connection
        self.group = group
        self.places = places


LIMITS = PlaceLimits(total=12, of_connection=8, of_group=10)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from("gh"), st.integers(1, 4), st.booleans()),
        max_size=60,
    )
)
def test_the_bounds_hold_and_the_sums_are_true(
    steps: list[tuple[int, str, int, bool]],
) -> None:
    peers = [Peer(name) for name in range(4)]
    places: WaitingPlaces[Request] = WaitingPlaces(LIMITS)
    waiting: list[Request] = []
    for who, group, size, closes in steps:
        if closes:
            for gone in places.of(peers[who]):
                places.leave(gone)
                waiting.remove(gone)
            continue
        wanted = Request(peers[who], group, size)
        while not places.take(wanted):
            other = places.gives_way(wanted)
            if other is None:
                break
            mine = sum(one.places for one in waiting if one.connection is wanted.connection)
            theirs = sum(one.places for one in waiting if one.connection is other.connection)
            assert other.connection is not wanted.connection
            assert theirs > mine + size, "only who has more gives way"
            assert other is next(one for one in waiting if one.connection is other.connection)
            places.leave(other)
            waiting.remove(other)
        else:
            waiting.append(wanted)
        assert places.taken == sum(one.places for one in waiting) <= LIMITS.total
        assert places.count == len(waiting)
        for peer in peers:
            own = [one for one in waiting if one.connection is peer]
            assert peer.held == len(own)
            assert sum(one.places for one in own) <= LIMITS.of_connection
        for name in "gh":
            of_group = sum(one.places for one in waiting if one.group == name)
            assert places.by_group.get(name, 0) == of_group <= LIMITS.of_group
    for one in waiting:
        places.leave(one)
    assert (places.holders, places.by_group, places.taken, places.count) == ({}, {}, 0, 0)


def test_a_short_text_takes_one_place_and_a_long_one_as_many_as_its_filter() -> None:
    assert places_for(0) == places_for(1_024) == 1
    assert places_for(16_384) == 1 + 512
    assert places_for(64, shared=False) == 3
