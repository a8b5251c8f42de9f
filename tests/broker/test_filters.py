"""Pulling through filters in SQL: from the header or by heartbeat, at once, held and from disk."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.client import Heartbeat
from aerobee.store.format.properties import encode
from tests.broker.desk import Desk, body_of, open_desk, pull_header, said
from tests.kit.cold_disk import ColdDisk
from tests.kit.raw_client import records

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.remoting.wire.answer import Answer

pytestmark = pytest.mark.trio

SUSPEND, SUBSCRIPTION = 2, 4
SQL: dict[str, Any] = {"expression_type": "SQL92", "sys_flag": SUBSCRIPTION}


def bodies(answer: Answer) -> list[bytes]:
    return [record.body for record in records(body_of(answer))]


def following(answer: Answer) -> int:
    return int(said(answer)["nextBeginOffset"])


async def fill(desk: Desk, *prices: object, topic: str = "t") -> None:
    for price in prices:
        properties = encode({"price": str(price), "KEYS": "k"})
        assert (await desk.send(topic, str(price).encode(), properties=properties)).code == 0


async def heartbeat(desk: Desk, *subscriptions: tuple[str, str, str], version: int = 1) -> None:
    """The group `g` says what it wants of topics: (topic, type, text)."""
    data = {
        "clientID": "c",
        "consumerDataSet": [
            {
                "groupName": "g",
                "subscriptionDataSet": [
                    {"topic": topic, "expressionType": kind, "subString": text}
                    | {"subVersion": version}
                    for topic, kind, text in subscriptions
                ],
            }
        ],
    }
    assert (await desk.ask(Heartbeat(), json.dumps(data).encode())).code == 0


async def test_a_filter_in_the_pull_decides_by_the_properties(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path, enable_property_filter=True) as desk:
        desk.topic()
        await fill(desk, 5, 50, "x", 7, 70)
        answer = await desk.pull(subscription="price > 10 AND KEYS = 'k'", **SQL)
        assert (answer.code, answer.remark) == (Code.SUCCESS, "FOUND")
        assert bodies(answer) == [b"50", b"70"]
        assert following(answer) == 5
        counters = desk.stats.group_out("g", "t")
        assert counters.messages_out == 2
        assert desk.store.stats.messages_got == 2


async def test_a_filter_that_wants_nothing_of_it_sends_the_client_on(tmp_path: Path) -> None:
    async with open_desk(tmp_path, enable_property_filter=True) as desk:
        desk.topic()
        await fill(desk, 1, 2, 3)
        answer = await desk.pull(subscription="price > 10", **SQL)
        assert (answer.code, answer.remark) == (Code.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        assert following(answer) == 3
        again = await desk.pull(queue_offset=3, subscription="price > 10", **SQL)
        assert (again.code, again.remark) == (Code.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")


@pytest.mark.parametrize(
    ("kind", "text"), [("SQL92", "price >"), ("SQL92", ""), ("XPATH", "//price")]
)
@pytest.mark.parametrize("enabled", [True, False])
async def test_what_does_not_parse_is_refused_whether_filters_are_on_or_off(
    tmp_path: Path, kind: str, text: str, enabled: bool
) -> None:
    async with open_desk(tmp_path, enable_property_filter=enabled) as desk:
        desk.topic()
        await fill(desk, 1)
        pull = SQL | {"expression_type": kind, "subscription": text}
        answer = await desk.pull(**pull)
        assert answer.code == Code.SUBSCRIPTION_PARSE_FAILED
        assert answer.remark


async def test_the_filter_of_the_heartbeat_counts_whatever_the_pull_calls_it(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path, enable_property_filter=True) as desk:
        desk.topic()
        await fill(desk, 5, 50)
        await heartbeat(desk, ("t", "SQL92", "price > 10"))
        # Go clients name tags in every pull.
        for kind in ("TAG", "SQL92", None):
            answer = await desk.pull(sys_flag=0, subscription=None, expression_type=kind)
            assert bodies(answer) == [b"50"]
        await heartbeat(desk, ("t", "SQL92", "price < 10"), version=2)
        answer = await desk.pull(sys_flag=0, subscription=None, sub_version=2)
        assert bodies(answer) == [b"5"]


async def test_the_retry_topic_has_a_subscription_of_its_own(tmp_path: Path) -> None:
    async with open_desk(tmp_path, enable_property_filter=True) as desk:
        desk.topic("%RETRY%g")
        await fill(desk, 5, 50, topic="%RETRY%g")
        await heartbeat(desk, ("t", "SQL92", "price > 10"), ("%RETRY%g", "TAG", "*"))
        answer = await desk.pull("%RETRY%g", sys_flag=0, subscription=None)
        assert bodies(answer) == [b"5", b"50"]


async def test_a_held_pull_wakes_for_what_it_wants(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_desk(tmp_path, enable_property_filter=True) as desk:
        desk.topic()
        outcome = desk.begin(
            pull_header(
                subscription="price > 10", expression_type="SQL92", sys_flag=SUSPEND | SUBSCRIPTION
            )
        )
        assert outcome is None
        await fill(desk, 1, 2)
        assert not desk.peer.answers
        await fill(desk, 50)
        [answer] = desk.peer.answers
        assert (bodies(answer), following(answer)) == ([b"50"], 3)


async def test_the_sweep_moves_a_held_pull_whose_queue_brings_nothing_for_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_desk(tmp_path, enable_property_filter=True) as desk:
        desk.topic()
        begin = trio.current_time()
        desk.begin(
            pull_header(
                subscription="price > 10", expression_type="SQL92", sys_flag=SUSPEND | SUBSCRIPTION
            )
        )
        await fill(desk, 1, 2)
        answer = await desk.peer.next_answer()
        assert trio.current_time() - begin < 6
        assert (answer.code, following(answer)) == (Code.PULL_RETRY_IMMEDIATELY, 2)


async def test_messages_on_disk_are_filtered_outside_the_loop(tmp_path: Path) -> None:
    disk = ColdDisk(cold=False)
    async with open_desk(tmp_path, disk, enable_property_filter=True) as desk:
        desk.topic()
        await fill(desk, 5, 50, 7, 70)
        await desk.store.flush_queues()
        desk.store.commit_log.mapped_from = desk.store.commit_log.max_offset
        disk.cold = True
        outcome = desk.begin(pull_header(subscription="price > 10", **SQL))
        assert inspect.isawaitable(outcome)
        answer: Answer = await outcome
        assert bodies(answer) == [b"50", b"70"]


async def test_a_pull_that_brings_its_subscription_leaves_it_for_who_asks(tmp_path: Path) -> None:
    async with open_desk(tmp_path, enable_property_filter=True) as desk:
        desk.topic()
        await fill(desk, 5)
        await desk.pull(subscription="price > 10", **SQL)
        known = desk.compensation
        assert set(known.topics("g")) == {"t"}
        list(known.expire(1 << 60, 0))
        await heartbeat(desk, ("t", "TAG", "*"))
        await desk.pull(sys_flag=0, subscription=None, consumer_group="g")
        assert not known.topics("g"), "heartbeats speak for themselves"


async def test_filters_of_groups_outlive_the_broker(tmp_path: Path) -> None:
    async with open_desk(tmp_path, enable_property_filter=True) as desk:
        await heartbeat(desk, ("t", "SQL92", "price > 10"))
        assert await desk.saver.save_all()
        saved = json.loads((tmp_path / "config" / "consumerFilter.json").read_bytes())
        assert saved["filterDataByTopic"]["t"]["groupFilterData"]["g"]["expression"] == "price > 10"
    async with open_desk(tmp_path, enable_property_filter=True) as desk:
        known = desk.filters.get("t", "g")
        assert known is not None
        assert known.dead_ms
        desk.topic()
        refused = await desk.pull(sys_flag=0, subscription=None)
        assert refused.code == Code.SUBSCRIPTION_NOT_EXIST, "nobody of the group is there"
