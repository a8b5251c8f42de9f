"""Which handle a message has now."""

from __future__ import annotations

import pytest

from aerobee.broker.grpc.translation.handles import Handle
from aerobee.broker.grpc.translation.kept_handles import (
    FAILURES_MAX,
    RENEWALS_MS,
    RENEWED_FOR_MS,
    KeptHandles,
)
from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.broker.pop.pop_records import Receipt

POPPED_MS = 1_000_000
FIRST = Handle(Receipt(10, POPPED_MS, 60_000, 3, "0", "broker-a", 2, 12), 4_711)
SECOND = FIRST.hidden_again(POPPED_MS + 50_000, 60_000, 3)


def handles() -> KeptHandles:
    kept = KeptHandles()
    kept.keep("client", "g", "t", FIRST, renewed=True)
    return kept


def test_a_handle_that_is_not_kept_is_the_one_that_came() -> None:
    assert KeptHandles().current("g", FIRST.text(), POPPED_MS) == FIRST


def test_after_a_change_the_first_handle_stands_for_the_newest() -> None:
    kept = handles()
    one = kept.find("g", FIRST.text())
    assert one is not None
    one.became(SECOND)
    assert kept.current("g", FIRST.text(), SECOND.visible_ms) == SECOND
    assert kept.current("other", FIRST.text(), POPPED_MS) == FIRST
    with pytest.raises(RpcRefused, match="expired"):
        kept.current("g", FIRST.text(), SECOND.visible_ms + 1)
    kept.drop("g", FIRST.text())
    assert len(kept) == 0


def test_a_message_is_hidden_again_shortly_before_it_would_be_visible() -> None:
    kept = handles()
    kept.keep("client", "g", "t", FIRST._replace(physical_offset=1), renewed=False)
    assert not list(kept.due(POPPED_MS + 49_999))
    (due,) = kept.due(POPPED_MS + 50_000)
    assert due.first == FIRST
    assert due.next_ms(POPPED_MS) == RENEWALS_MS[0]
    for _ in range(20):
        due.became(SECOND)
    assert due.next_ms(POPPED_MS) == RENEWALS_MS[-1]


def test_what_is_over_is_dropped() -> None:
    kept = handles()
    assert not list(kept.due(FIRST.visible_ms + 1))
    assert len(kept) == 0


def test_renewals_end_after_hours_and_after_failures() -> None:
    kept = handles()
    (due,) = kept.due(POPPED_MS + 50_000)
    assert due.next_ms(POPPED_MS + RENEWED_FOR_MS + 1) is None
    due.failures = FAILURES_MAX
    assert due.next_ms(POPPED_MS) is None
    due.became(SECOND)
    assert due.next_ms(POPPED_MS) is not None


def test_there_is_a_limit_and_everything_kept_can_be_forgotten() -> None:
    kept = KeptHandles(most=1)
    assert kept.keep("client", "g", "t", FIRST, renewed=True) is not None
    assert kept.keep("client", "g", "t", SECOND, renewed=True) is None
    assert [one.first for one in kept.of_client("client")] == [FIRST]
    kept.delete_topic("other")
    kept.delete_group("other")
    assert len(kept) == 1
    kept.delete_topic("t")
    assert len(kept) == 0
    kept.keep("client", "g", "t", FIRST, renewed=True)
    kept.delete_group("g")
    assert len(kept) == 0
