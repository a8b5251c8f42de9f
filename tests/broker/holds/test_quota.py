"""The quota of held requests: its bounds, and that the sums stay true whatever comes and goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.holds.held_request import HeldRequest
from aerobee.broker.holds.quota import HoldLimits, HoldQuota, weight_of


class Peer:
    def __init__(self, name: int, lane: Peer | None = None) -> None:
        self.name = name
        self.held = 0
        self.closed = False
        self.lane = lane or self


def request(connection: Peer, group: str, weight: int) -> HeldRequest:
    return HeldRequest(
        connection=connection, group=group, matches=None, deadline=0.0, weight=weight
    )


LIMITS = HoldLimits(total=12, of_connection=8, of_group=10)


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
    quota: HoldQuota[HeldRequest] = HoldQuota(LIMITS)
    waiting: list[HeldRequest] = []
    for who, group, size, closes in steps:
        if closes:
            for gone in quota.of(peers[who]):
                quota.release(gone)
                waiting.remove(gone)
            continue
        wanted = request(peers[who], group, size)

        def evict(other: HeldRequest, wanted: HeldRequest = wanted) -> None:
            mine = sum(one.weight for one in waiting if one.connection is wanted.connection)
            theirs = sum(one.weight for one in waiting if one.connection is other.connection)
            assert other.connection is not wanted.connection
            assert theirs > mine + wanted.weight, "only who holds more is evicted"
            assert other is next(one for one in waiting if one.connection is other.connection)
            quota.release(other)
            waiting.remove(other)

        if quota.admit(wanted, evict):
            waiting.append(wanted)
        assert quota.weight == sum(one.weight for one in waiting) <= LIMITS.total
        assert quota.count == len(waiting)
        for peer in peers:
            own = [one for one in waiting if one.connection is peer]
            assert peer.held == len(own)
            assert sum(one.weight for one in own) <= LIMITS.of_connection
        for name in "gh":
            of_group = sum(one.weight for one in waiting if one.group == name)
            assert quota.by_group.get(name, 0) == of_group <= LIMITS.of_group
    for one in waiting:
        quota.release(one)
    assert (quota.by_connection, quota.by_group, quota.weight, quota.count) == ({}, {}, 0, 0)


def test_calls_of_one_connection_share_what_it_may_hold() -> None:
    quota: HoldQuota[HeldRequest] = HoldQuota(HoldLimits(total=6, of_connection=5, of_group=9))
    connection, other = Peer(0), Peer(1)
    calls = [Peer(number, connection) for number in range(6)]
    held = [request(call, "g", 1) for call in calls]
    evicted: list[HeldRequest] = []

    def evict(one: HeldRequest) -> None:
        quota.release(one)
        evicted.append(one)

    assert [quota.admit(one, evict) for one in held] == [True] * 5 + [False]
    assert quota.of(calls[3]) == [held[3]]
    assert quota.of(calls[5]) == quota.of(other) == []
    theirs = [request(other, "g", 1) for _ in range(2)]
    assert all(quota.admit(one, evict) for one in theirs)
    assert evicted == held[:1], "of the connection that holds more"
    for call in calls:
        for one in quota.of(call):
            quota.release(one)
    assert [one.connection for one in theirs] == [other] * quota.count


def test_a_short_text_weighs_one_and_a_long_one_as_much_as_its_filter() -> None:
    assert weight_of(0) == weight_of(1_024) == 1
    assert weight_of(16_384) == 1 + 512
    assert weight_of(64, shared=False) == 3


def test_a_limit_that_was_lowered_evicts_nothing_and_admits_nothing_until_there_is_room() -> None:
    quota: HoldQuota[HeldRequest] = HoldQuota(LIMITS)
    greedy, modest = Peer(0), Peer(1)
    waiting = [request(greedy, "g", 1) for _ in range(8)]
    evicted: list[HeldRequest] = []
    assert all(quota.admit(held, evicted.append) for held in waiting)
    quota.limits = LIMITS._replace(total=3)
    assert not quota.admit(request(modest, "h", 1), evicted.append)
    assert not evicted
    for held in waiting[:5]:
        quota.release(held)

    def evict(held: HeldRequest) -> None:
        evicted.append(held)
        quota.release(held)

    assert quota.admit(request(modest, "h", 1), evict), "as ever, the greedy one makes room"
    assert evicted == waiting[5:6]
