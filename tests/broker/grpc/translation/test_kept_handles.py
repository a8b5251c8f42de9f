"""Which handle a message has now."""

from __future__ import annotations

import pytest

from aerobee.broker.grpc.translation.handles import Handle
from aerobee.broker.grpc.translation.kept_handles import (
    FAILURES_MAX,
    LOOK_STEP,
    RENEWALS_MS,
    RENEWED_FOR_MS,
    Holder,
    KeptHandle,
    KeptHandles,
)
from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.broker.pop.pop_records import Receipt

POPPED_MS = 1_000_000
FIRST = Handle(Receipt(10, POPPED_MS, 60_000, 3, "0", "broker-a", 2, 12), 4_711)
SECOND = FIRST.hidden_again(POPPED_MS + 50_000, 60_000, 3)
OTHER = FIRST._replace(physical_offset=1)
"""Of another message."""


class Open:
    """A connection that nobody closes."""

    closed = False


SHOP = Holder("client", "shop", frozenset({"shop"}), b"", Open())
PLACE = (SHOP.client, "g", "t")


def handles() -> KeptHandles:
    kept = KeptHandles()
    kept.keep(SHOP, "g", "t", FIRST)
    return kept


def due(kept: KeptHandles, now_ms: int) -> list[KeptHandle]:
    return [one for one in kept.due(now_ms) if one is not None]


def left(kept: KeptHandles) -> list[KeptHandle]:
    return [one for one in kept.left() if one is not None]


def test_a_handle_that_is_not_kept_is_the_one_that_came() -> None:
    assert KeptHandles().current(*PLACE, FIRST, POPPED_MS) == FIRST


def test_after_a_change_the_first_handle_stands_for_the_newest() -> None:
    kept = handles()
    one = kept.find(*PLACE, FIRST)
    assert one is not None
    one.became(SECOND)
    assert kept.current(*PLACE, FIRST, SECOND.visible_ms) == SECOND
    with pytest.raises(RpcRefused, match="expired"):
        kept.current(*PLACE, FIRST, SECOND.visible_ms + 1)
    kept.drop(*PLACE, FIRST)
    assert len(kept) == 0


def test_each_handle_that_a_client_has_got_stands_for_the_newest() -> None:
    """Two changes at once are answered in any order, and the client keeps the last answer."""
    kept = KeptHandles()
    third = SECOND.hidden_again(POPPED_MS + 50_001, 30_000, 3)
    kept.change(SHOP, "g", "t", FIRST, SECOND)
    kept.change(SHOP, "g", "t", SECOND, third)
    for handle in (FIRST, SECOND, third):
        assert kept.current(*PLACE, handle, POPPED_MS + 60_000) == third
    kept.drop(*PLACE, SECOND)
    assert len(kept) == 0


def test_a_handle_that_looks_good_for_longer_than_the_message_is_hidden_is_over_with_it() -> None:
    """A change of it would bring the message twice."""
    kept = KeptHandles()
    shorter = FIRST.hidden_again(POPPED_MS + 5_000, 1_000, 3)
    kept.change(SHOP, "g", "t", FIRST, shorter)
    later_ms = POPPED_MS + 20_000
    assert not due(kept, later_ms)
    with pytest.raises(RpcRefused, match="expired"):
        kept.current(*PLACE, FIRST, later_ms)
    assert not due(kept, FIRST.visible_ms + 1)
    assert len(kept) == 0


def test_a_handle_of_a_delivery_before_ends_nothing_of_the_one_since() -> None:
    """In order, a message is delivered again where it lies."""
    kept = handles()
    again = FIRST._replace(receipt=FIRST.receipt._replace(pop_time=POPPED_MS + 70_000))
    newer = kept.keep(SHOP, "g", "t", again)
    assert len(kept) == 1
    assert kept.current(*PLACE, FIRST, POPPED_MS) == FIRST
    kept.change(SHOP, "g", "t", FIRST, FIRST)
    kept.drop(*PLACE, FIRST)
    assert kept.of_client(SHOP.client) == [newer]


def test_what_clients_have_changed_takes_no_room_from_what_is_hidden_again() -> None:
    """Else, where many messages fail and wait for their retry, those in work would come twice."""
    kept = KeptHandles(most=2, most_of_client=2)
    failed = [FIRST._replace(physical_offset=number) for number in range(10, 14)]
    for handle in failed:
        assert kept.keep(SHOP, "g", "t", handle) is not None
        kept.change(SHOP, "g", "t", handle, handle.hidden_again(POPPED_MS + 1, 7_200_000, 3))
    assert len(kept) == 2
    assert [kept.find(*PLACE, handle) is None for handle in failed] == [True, True, False, False]
    assert kept.keep(SHOP, "g", "t", FIRST) is not None
    kept.change(SHOP._replace(client_id="2"), "g", "t", OTHER, OTHER)
    assert len(kept) == 3, "there is a limit for all of them as well"


@pytest.mark.parametrize(
    "place",
    [
        (("other", "shop"), "g", "t"),
        (("client", "thief"), "g", "t"),
        (SHOP.client, "other", "t"),
        (SHOP.client, "g", "other"),
    ],
)
def test_it_stands_for_it_with_its_client_account_group_and_topic_alone(
    place: tuple[tuple[str, str], str, str],
) -> None:
    kept = handles()
    one = kept.find(*PLACE, FIRST)
    assert one is not None
    one.became(SECOND)
    assert kept.current(*place, FIRST, POPPED_MS) == FIRST
    kept.drop(*place, FIRST)
    assert kept.find(*PLACE, FIRST) is one


def test_a_message_is_hidden_again_shortly_before_it_would_be_visible() -> None:
    kept = handles()
    kept.change(SHOP, "g", "t", OTHER, OTHER.hidden_again(POPPED_MS + 1, 60_000, 3))
    assert not due(kept, POPPED_MS + 49_999)
    (one,) = due(kept, POPPED_MS + 50_000)
    assert one.first == FIRST
    assert one.next_ms(POPPED_MS) == RENEWALS_MS[0]
    for _ in range(20):
        one.became(SECOND)
    assert one.next_ms(POPPED_MS) == RENEWALS_MS[-1]


def test_a_message_is_due_again_and_again_until_it_is_hidden() -> None:
    kept = handles()
    (one,) = due(kept, POPPED_MS + 50_000)
    assert due(kept, POPPED_MS + 55_000) == [one]
    one.became(SECOND)
    assert not due(kept, POPPED_MS + 60_000)
    assert due(kept, SECOND.visible_ms - 1) == [one]


def test_a_message_that_is_acknowledged_between_two_steps_is_not_hidden_again() -> None:
    kept = handles()
    kept.keep(SHOP, "g", "t", FIRST._replace(physical_offset=1))
    steps = kept.due(POPPED_MS + 50_000)
    one = next(steps)
    assert one is not None
    other = FIRST._replace(physical_offset=1) if one.first == FIRST else FIRST
    kept.drop(*PLACE, other)
    assert not any(steps)


def test_what_is_over_is_dropped() -> None:
    kept = handles()
    assert not due(kept, FIRST.visible_ms + 1)
    assert len(kept) == 0


def test_renewals_end_after_hours_and_after_failures() -> None:
    kept = handles()
    (one,) = due(kept, POPPED_MS + 50_000)
    assert one.next_ms(POPPED_MS + RENEWED_FOR_MS + 1) is None
    one.failures = FAILURES_MAX
    assert one.next_ms(POPPED_MS) is None
    one.became(SECOND)
    assert one.next_ms(POPPED_MS) is not None


def test_there_is_a_limit_for_all_and_for_a_client() -> None:
    kept = KeptHandles(most=2, most_of_client=1)
    assert kept.keep(SHOP, "g", "t", FIRST) is not None
    assert kept.keep(SHOP, "g", "t", OTHER) is None
    assert [one.first for one in kept.of_client(SHOP.client)] == [FIRST]
    assert kept.keep(SHOP, "g", "u", OTHER) is not None
    assert kept.keep(SHOP._replace(client_id="2"), "g", "t", FIRST) is None
    assert len(kept) == 2


def test_the_messages_of_a_client_that_is_gone_are_to_be_visible_again() -> None:
    kept = handles()
    kept.change(SHOP, "g", "t", OTHER, OTHER)
    other = SHOP._replace(access_key="thief")
    kept.keep(other, "g", "t", FIRST)
    kept.client_gone(SHOP.client)
    assert kept.find(*PLACE, FIRST) is None
    assert [one.holder for one in left(kept)] == [SHOP]
    assert not left(kept)
    assert [one.holder for one in kept.of_client(other.client)] == [other]
    assert len(kept) == 1


@pytest.mark.parametrize("deleted", ["group", "topic"])
def test_of_a_deleted_group_or_topic_nothing_is_kept_and_nothing_hidden(deleted: str) -> None:
    def forget(kept: KeptHandles) -> None:
        if deleted == "group":
            kept.delete_group("g")
        else:
            kept.delete_topic("t")

    kept = handles()
    kept.delete_topic("other")
    kept.delete_group("other")
    steps = kept.due(POPPED_MS + 50_000)
    assert kept.find(*PLACE, FIRST) is not None
    forget(kept)
    assert kept.find(*PLACE, FIRST) is None
    assert not any(steps)
    assert (left(kept), len(kept)) == ([], 0)
    kept = handles()
    kept.client_gone(SHOP.client)
    forget(kept)
    assert (left(kept), len(kept)) == ([], 0)


def test_what_could_not_be_visible_again_is_left_once_more() -> None:
    kept = handles()
    kept.client_gone(SHOP.client)
    (one,) = left(kept)
    assert len(kept) == 0
    kept.leave(one)
    assert len(kept) == 1
    assert left(kept) == [one]
    assert len(kept) == 0


def test_a_broker_that_is_no_master_any_more_forgets_all_and_makes_nothing_visible() -> None:
    kept = handles()
    kept.keep(SHOP, "other", "t", FIRST)
    kept.client_gone(SHOP.client)
    kept.keep(SHOP, "g", "t", FIRST)
    kept.forget_all()
    assert kept.find(*PLACE, FIRST) is None
    assert (due(kept, POPPED_MS + 50_000), left(kept), len(kept)) == ([], [], 0)


def test_no_step_looks_at_many_of_100_000_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptHandles()
    for number in range(100_000):
        holder = SHOP._replace(client_id=f"c{number % 50}")
        handle = FIRST._replace(physical_offset=number)
        if number >= 50:
            later = handle.receipt._replace(pop_time=POPPED_MS + 60_000)
            handle = handle._replace(receipt=later)
        assert kept.keep(holder, "g", "t", handle)
    looks = 0

    def visible_ms(handle: Handle) -> int:
        nonlocal looks
        looks += 1
        return handle.receipt.pop_time + handle.receipt.invisible_time

    monkeypatch.setattr(Handle, "visible_ms", property(visible_ms))
    most = found = 0
    steps = kept.due(POPPED_MS + 50_000)
    for one in steps:
        most, looks = max(most, looks), 0
        found += one is not None
    assert found == 50
    assert most <= 2 * LOOK_STEP
    assert not due(kept, POPPED_MS)
    assert looks == 0, "nothing is due, and nothing is looked at"
    kept.client_gone(("c7", "shop"))
    steps = kept.left()
    assert next(steps) is not None
    assert len(kept) == 99_999
    kept.delete_topic("t")
    before = len(kept)
    for _ in steps:
        assert before - len(kept) <= LOOK_STEP
        before = len(kept)
    assert len(kept) == 0
