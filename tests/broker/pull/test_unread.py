"""Who lost what to the clean-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import structlog.testing

from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
from aerobee.broker.counters.broker_stats import BrokerStats
from aerobee.broker.pull.unread import LINES_MAX, UnreadReport
from aerobee.store.space.cleanup_queues import DeletedRange

if TYPE_CHECKING:
    import trio


class Desk:
    def __init__(self) -> None:
        self.offsets = ConsumerOffsetTable()
        self.stats = BrokerStats()
        self.report = UnreadReport(self.offsets, self.stats)

    def commit(self, group: str, topic: str, queue_id: int, at: int) -> None:
        self.offsets.commit(group, topic, queue_id, at, 0)

    def lost(self, group: str, topic: str) -> int:
        return self.stats.group_out(group, topic).unread_deleted


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.trio
async def test_a_group_lost_what_lies_behind_its_offset(desk: Desk) -> None:
    desk.commit("slow", "T", 0, 130)
    desk.commit("slow", "T", 1, 500)
    desk.commit("fast", "T", 0, 200)
    desk.commit("fast", "T", 1, 10)
    desk.commit("other", "U", 0, 0)
    with structlog.testing.capture_logs() as lines:
        await desk.report.deleted([DeletedRange("T", 0, 100, 200), DeletedRange("T", 1, 0, 10)])
    assert (desk.lost("slow", "T"), desk.lost("fast", "T"), desk.lost("other", "U")) == (70, 0, 0)
    assert [(line["event"], line["group"], line["messages"]) for line in lines] == [
        ("cleanup.unread_deleted", "slow", 70)
    ]


@pytest.mark.trio
async def test_a_group_that_is_deleted_meanwhile_loses_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in ("first", "gone"):
        desk.commit(group, "T", 0, 200)
    unread = desk.report.unread

    def unread_of(group: str, *of: Any) -> int:
        if group == "first":
            desk.offsets.delete_group("gone")
        return unread(group, *of)

    monkeypatch.setattr(desk.report, "unread", unread_of)
    await desk.report.deleted([DeletedRange("T", 0, 100, 200)])
    assert desk.lost("gone", "T") == 0


@pytest.mark.trio
async def test_an_offset_from_before_the_range_loses_the_range_only(desk: Desk) -> None:
    desk.commit("g", "T", 0, 20)
    await desk.report.deleted([DeletedRange("T", 0, 100, 200)])
    await desk.report.deleted([DeletedRange("T", 0, 200, 250)])
    assert desk.lost("g", "T") == 150


@pytest.mark.trio
async def test_a_queue_of_a_consumed_topic_without_an_offset_was_not_read(desk: Desk) -> None:
    desk.commit("g", "T", 0, 20)
    desk.commit("reset", "T", 1, -1)
    await desk.report.deleted([DeletedRange("T", 1, 0, 5)])
    assert (desk.lost("g", "T"), desk.lost("reset", "T")) == (5, 5)


@pytest.mark.trio
async def test_very_many_groups_are_counted_all_and_named_in_part(
    desk: Desk, autojump_clock: trio.testing.MockClock
) -> None:
    for number in range(1_200):
        desk.commit(f"g{number}", "T", 0, 0)
    with structlog.testing.capture_logs() as lines:
        await desk.report.deleted([DeletedRange("T", 0, 0, 1)])
    assert desk.lost("g1199", "T") == 1
    assert len(lines) == LINES_MAX + 1
    assert lines[-1]["groups"] == 1_200 - LINES_MAX


@pytest.mark.trio
async def test_the_mark_of_a_spark_sink_is_no_offset(desk: Desk) -> None:
    desk.commit("SPARK_SINK_s", "T", 0, 7 << 32)
    await desk.report.deleted([DeletedRange("T", 0, 0, 10), DeletedRange("T", 1, 0, 10)])
    assert not desk.lost("SPARK_SINK_s", "T")
