"""Who is told that a group changed, how soon, and how many at a time."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from aerobee.broker.consumers.clients import Client, ClientTable
from aerobee.broker.consumers.member_changes import SLICE_MEMBERS, MemberChanges, rest_s
from aerobee.remoting.wire.codes import RequestCode
from tests.broker.peers import Peer


class Group:
    """A group that peers join and leave, and the service that tells them."""

    def __init__(self, **settings: Any) -> None:
        self.clients = ClientTable()
        self.changes = MemberChanges(self.clients, **settings)
        self.peers: list[Any] = []

    def join(self, group: str = "g") -> Any:
        peer = Peer()
        self.clients.register_consumer(
            group,
            Client(peer, f"c{len(self.peers)}", "JAVA", 479, 0),
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscriptions=(),
        )
        self.peers.append(peer)
        self.changes.changed(group)
        return peer

    @property
    def told(self) -> list[int]:
        """How often each peer was told, in the order in which they came."""
        return [len(peer.told) for peer in self.peers]


def test_changes_that_come_before_a_group_is_told_are_told_together() -> None:
    group = Group()
    for _ in range(3):
        group.join()
    assert group.told == [0, 0, 0]
    group.changes.notify_due(0.0)
    assert group.told == [1, 1, 1]
    code, header = group.peers[0].told[0]
    assert (code, header.consumer_group) == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, "g")


def test_a_change_while_the_group_rests_is_told_after_the_rest_to_all_who_are_in_it_then() -> None:
    group = Group()
    group.join()
    rests_until = group.changes.notify_due(5.0)
    assert rests_until is not None
    assert rests_until == pytest.approx(5.0 + rest_s(1, 1))
    group.join()
    group.changes.notify_due(5.0)
    assert group.told == [1, 0]
    group.changes.notify_due(rests_until)
    assert group.told == [2, 1]


def test_a_large_group_is_told_a_slice_at_a_time_and_other_groups_come_in_between() -> None:
    group = Group()
    for _ in range(3 * SLICE_MEMBERS):
        group.join()
    group.changes.notify_due(0.0)
    assert sum(group.told) == SLICE_MEMBERS
    other = group.join("h")
    group.changes.notify_due(0.0)
    assert len(other.told) == 1, "one that has just changed does not wait for the rest of another"
    assert sum(group.told) == SLICE_MEMBERS + 1
    now = 0.0
    for _ in range(10):
        group.changes.notify_due(now := now + 1.0)
    assert group.told == [1] * len(group.peers)


def test_thousands_that_join_one_by_one_cost_far_less_than_one_round_each() -> None:
    group = Group()
    now, members, per_s = 0.0, 2_000, 1_000
    for _ in range(members):
        group.join()
        group.changes.notify_due(now := now + 1 / per_s)
    while group.changes.notify_due(now := now + 0.001) is not None:
        pass
    assert min(group.told) >= 1, "everybody has heard of the last change"
    assert sum(group.told) < 20 * members, "a round each would be a thousand times as much"


def test_ten_thousand_members_hear_of_a_change_within_ten_seconds() -> None:
    group = Group()
    members = 10_000
    group.peers = [Peer() for _ in range(members)]
    for number, peer in enumerate(group.peers):
        group.clients.register_consumer(
            "g",
            Client(peer, f"c{number}", "JAVA", 479, 0),
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscriptions=(),
        )
    group.changes.changed("g")
    now = ends = 0.0
    while (next_turn := group.changes.notify_due(now)) is not None:
        now, ends = max(now, next_turn), now
    assert min(group.told) == 1
    assert ends < 10.0


def test_everybody_hears_of_the_last_change_however_changes_and_rounds_meet() -> None:
    group = Group()
    for _ in range(SLICE_MEMBERS + 1):
        group.join()
    group.changes.notify_due(0.0)
    first_told = next(peer for peer in group.peers if peer.told)
    before = len(first_told.told)
    group.join()
    now = 0.0
    while group.changes.notify_due(now := now + 1.0) is not None:
        pass
    assert len(first_told.told) == before + 1, "its slice was over when the last one came"
    assert min(group.told) >= 1


def test_a_group_whose_last_member_left_is_forgotten() -> None:
    group = Group()
    peer = group.join()
    group.clients.leave_all(peer.id)
    assert group.changes.notify_due(0.0) is None
    assert group.told == [0]


def test_a_broker_that_tells_nobody_tells_nobody() -> None:
    group = Group(enabled=lambda: False)
    group.join()
    assert group.changes.notify_due(0.0) is None
    assert group.told == [0]


@pytest.mark.trio
async def test_the_service_tells_and_sends_as_soon_as_the_loop_turns(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sent: list[float] = []
    group = Group(flush=lambda: sent.append(trio.current_time()))
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(group.changes.run)
        group.join()
        await trio.testing.wait_all_tasks_blocked()
        assert (group.told, trio.current_time()) == ([1], began)
        group.join()
        await trio.sleep(0.01)
        assert group.told == [2, 1]
        assert sent
        nursery.cancel_scope.cancel()
