"""What is confirmed, who joins the sync set, who leaves it, and when each of it counts."""

import pytest

from aerobee.broker.failover.record import Record, with_set
from aerobee.broker.failover.sync_set import SyncSet

LATE_S = 15.0


def record(*members: int) -> Record:
    return Record(epoch=2, master=1, sync_set=members, set_epoch=2, lease="a")


def led(*members: int, end: int = 0, least: int = 2) -> SyncSet:
    return SyncSet(record(*members), end, 0, least, 0.0)


def test_a_message_is_confirmed_once_every_member_has_it() -> None:
    sync = led(1, 2, 3)
    sync.appended(10, 0)
    sync.reported(2, 10, 0)
    assert not sync.may_acknowledge(10)
    sync.reported(3, 7, 0)
    assert (sync.may_acknowledge(7), sync.may_acknowledge(8)) == (True, False)


def test_members_of_whom_nothing_is_known_are_waited_for() -> None:
    sync = led(1, 2)
    sync.appended(10, 0)
    assert sync.confirmed == 0


def test_the_latest_member_is_told_first_and_the_master_is_never_late() -> None:
    sync = led(1, 2, 3)
    sync.reported(2, 0, 5)
    assert sync.late(LATE_S, LATE_S) == []
    assert sync.late(LATE_S + 1, LATE_S) == [3]
    assert sync.late(LATE_S + 6, LATE_S) == [3, 2]


def test_too_few_members_acknowledge_nothing() -> None:
    sync = led(1)
    sync.appended(10, 0)
    assert sync.confirmed == 10
    assert not sync.may_acknowledge(10)
    assert led(1, least=1).may_acknowledge(0)


def test_what_was_confirmed_stays_when_a_member_comes_again_with_less() -> None:
    sync = led(1, 2)
    sync.appended(10, 0)
    sync.reported(2, 10, 0)
    sync.reported(2, 4, 1)
    assert sync.confirmed == 10
    sync.appended(12, 1)
    assert sync.confirmed == 10


def test_a_member_joins_once_it_has_what_is_confirmed_and_what_the_epoch_began_with() -> None:
    sync = led(1, 2, end=8)
    sync.appended(10, 0)
    sync.reported(2, 9, 0)
    sync.reported(3, 8, 0)
    assert sync.change(1, LATE_S, ready=[3]) is None
    sync.reported(3, 9, 0)
    assert sync.change(1, LATE_S, ready=[]) is None
    assert sync.change(1, LATE_S, ready=[3]) == frozenset({1, 2, 3})


def test_a_member_does_not_join_with_less_than_the_epoch_began_with() -> None:
    sync = led(1, 2, end=8)
    sync.reported(3, 5, 0)
    assert sync.change(1, LATE_S, ready=[3]) is None


def test_a_member_that_is_silent_leaves_in_time() -> None:
    sync = led(1, 2, 3)
    sync.reported(2, 0, 10)
    assert sync.change(LATE_S, LATE_S, ready=[]) is None
    assert sync.change(LATE_S + 1, LATE_S, ready=[]) == frozenset({1, 2})


def test_a_member_that_reports_and_does_not_catch_up_leaves() -> None:
    sync = led(1, 2, 3)
    sync.appended(10, 0)
    for now in range(1, 17):
        sync.reported(2, 10, now)
        sync.reported(3, 9, now)
    assert sync.change(16, LATE_S, ready=[]) == frozenset({1, 2})


def test_the_latest_leave_first_and_enough_stay() -> None:
    sync = led(1, 2, 3, 4)
    sync.reported(3, 0, 5)
    assert sync.change(100, LATE_S, ready=[]) == frozenset({1, 3})
    assert led(1, 2).change(100, LATE_S, ready=[]) is None


def test_one_that_joins_makes_room_for_one_that_leaves() -> None:
    sync = led(1, 2)
    sync.reported(3, 0, 100)
    assert sync.change(100, LATE_S, ready=[3]) == frozenset({1, 3})


def test_one_that_leaves_is_waited_for_until_the_record_is_without_it() -> None:
    sync = led(1, 2, 3)
    sync.appended(10, 0)
    sync.reported(2, 10, 0)
    sync.propose(frozenset({1, 2}))
    assert not sync.may_acknowledge(10)
    assert sync.change(100, LATE_S, ready=[]) is None
    sync.decided(with_set(record(1, 2, 3), [1, 2]))
    assert sync.may_acknowledge(10)


def test_one_that_joins_is_waited_for_from_the_request_on() -> None:
    sync = led(1, 2)
    sync.reported(3, 0, 0)
    sync.propose(frozenset({1, 2, 3}))
    sync.appended(10, 0)
    sync.reported(2, 10, 0)
    assert not sync.may_acknowledge(10)
    sync.reported(3, 10, 0)
    assert sync.may_acknowledge(10)


def test_a_change_to_too_few_acknowledges_nothing_while_it_is_under_way() -> None:
    sync = led(1, 2)
    sync.reported(2, 0, 0)
    assert sync.may_acknowledge(0)
    sync.propose(frozenset({1}))
    assert not sync.may_acknowledge(0)


def test_a_set_without_its_master_is_no_proposal() -> None:
    with pytest.raises(AssertionError):
        led(1, 2).propose(frozenset({2}))


def test_a_member_keeps_up_with_a_log_that_always_grows() -> None:
    sync = led(1, 2, 3)
    for now in range(1, 60):
        sync.appended(10 * now, now)
        for member in (2, 3):
            # Always one message behind.
            sync.reported(member, 10 * (now - 1), now)
    assert sync.change(60, LATE_S, ready=[]) is None
    for now in range(60, 80):
        sync.appended(10 * now, now)
        sync.reported(2, 10 * (now - 1), now)
        sync.reported(3, 590, now)
    assert sync.change(80, LATE_S, ready=[]) == frozenset({1, 2})
