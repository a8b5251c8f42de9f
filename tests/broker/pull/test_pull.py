"""Pulling: the order of checks, what is found, what is held and what ends the hold."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from aerobee.broker.consumers.clients import BROADCASTING, CLUSTERING, Client, subscription_of
from aerobee.broker.errors import MessageUnreadable
from aerobee.broker.holds.quota import HoldLimits
from aerobee.broker.pull import pull as module
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.bodies.client import SubscriptionData
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.pull import LitePullMessage, PullMessage
from aerobee.store.format.properties import decode
from tests.broker.desk import Caller, Desk, body_of, open_desk, pull_header, said, send_header
from tests.broker.pop.test_pop import no_more_files
from tests.kit.cold_disk import ColdDisk
from tests.kit.quick_disk import WornDisk
from tests.kit.raw_client import records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.remoting.wire.answer import Answer

pytestmark = pytest.mark.trio

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
HOLD = SUSPEND | SUBSCRIPTION


def bodies(answer: Answer) -> list[bytes]:
    return [record.body for record in records(body_of(answer))]


def place(answer: Answer) -> tuple[int, int, int]:
    """Where to go on, the first and the end of the queue."""
    found = said(answer)
    assert found["suggestWhichBrokerId"] == "0"
    return int(found["nextBeginOffset"]), int(found["minOffset"]), int(found["maxOffset"])


def subscribe(
    desk: Desk,
    *topics: str,
    expression: str = "*",
    kind: str = "TAG",
    model: str = CLUSTERING,
    version: int = 1,
) -> None:
    """The group `g` is connected and has said what it wants."""
    data = [
        SubscriptionData(
            topic=topic, sub_string=expression, expression_type=kind, sub_version=version
        )
        for topic in topics
    ]
    desk.clients.register_consumer(
        "g",
        Client(desk.peer, "c", "JAVA", 479, 0),
        consume_type="CONSUME_PASSIVELY",
        message_model=model,
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=[subscription_of(one) for one in data],
    )
    desk.filters.register("g", data, 0, finished(desk.filters.compiled("g", data)))


async def fill(desk: Desk, count: int, topic: str = "t", **fields: Any) -> None:
    for number in range(count):
        assert (await desk.send(topic, b"%d" % number, **fields)).code == 0


def tagged(tag: str) -> str:
    return f"TAGS\x01{tag}\x02"


def set_broker(desk: Desk, **changes: Any) -> None:
    config = desk.config
    broker = replace(config.broker, **changes)
    desk.pull_requests.config = replace(config, broker=broker)
    desk.access.options = broker


# ── the order of checks ──


class Check:
    """One reason to refuse: settings and fields that bring it about, and its answer."""

    def __init__(
        self,
        name: str,
        code: int,
        forbidden: int | None = None,
        broker: dict[str, Any] | None = None,
        group: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        self.name = name
        self.expected = (code, forbidden)
        self.broker = broker or {}
        self.group = group or {}
        self.fields = fields


CHECKS = [
    Check("broker not readable", Code.NO_PERMISSION, 1, {"broker_permission": 2}),
    Check("lite pull off", Code.NO_PERMISSION, 1, {"lite_pull_message_enable": False}),
    Check("unknown group", Code.SUBSCRIPTION_GROUP_NOT_EXIST, consumer_group="nobody"),
    Check("group off", Code.NO_PERMISSION, 2, group={"consume_enable": False}),
    Check("unknown topic", Code.TOPIC_NOT_EXIST, topic="who"),
    Check("topic not readable", Code.NO_PERMISSION, 3, topic="write-only"),
    Check("no such queue", Code.INVALID_PARAMETER, queue_id=16),
    Check("negative queue", Code.INVALID_PARAMETER, queue_id=-1),
    Check(
        "separators only",
        Code.SUBSCRIPTION_PARSE_FAILED,
        expression_type="TAG",
        subscription="||",
    ),
    Check(
        "other language, no text",
        Code.SUBSCRIPTION_PARSE_FAILED,
        expression_type="SQL92",
        subscription="",
    ),
    Check("other language", Code.SYSTEM_ERROR, expression_type="SQL92", subscription="a > 1"),
]


async def answer_to(desk: Desk, check: Check, fields: dict[str, Any]) -> tuple[int, int | None]:
    set_broker(desk, **check.broker)
    desk.groups.configs["g"] = SubscriptionGroupConfig(group_name="g", **check.group)
    answer = await desk.pull(cls=LitePullMessage, **fields)
    kind = said(answer).get("forbiddenType") if answer.header else None
    return answer.code, kind and int(kind)  # type: ignore[return-value]  # None stays None


def later_than(number: int) -> Iterator[dict[str, Any]]:
    return (check.fields for check in CHECKS[number:])


async def test_the_first_failing_check_answers(tmp_path: Path) -> None:
    async with open_desk(tmp_path, auto_create_subscription_group=False) as desk:
        desk.topic("t")
        desk.topic("write-only", perm=2)
        await fill(desk, 1)
        for number, check in enumerate(CHECKS):
            assert await answer_to(desk, check, check.fields) == check.expected, check.name
            everything: dict[str, Any] = {}
            for fields in later_than(number):
                everything = fields | everything
            assert await answer_to(desk, check, everything) == check.expected, check.name


async def test_an_expression_of_another_language_is_named(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        answer = await desk.pull(expression_type="SQL92", subscription="a > 1")
        assert answer.remark == "The broker does not support consumer to filter message by SQL92"


@pytest.mark.parametrize("kind", [None, "", "TAG"])
async def test_no_language_means_tags(tmp_path: Path, kind: str | None) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await fill(desk, 1, properties=tagged("A"))
        assert (await desk.pull(expression_type=kind, subscription="A")).code == Code.SUCCESS


async def test_a_group_is_made_by_its_first_pull_where_that_is_allowed(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        assert (await desk.pull(consumer_group="new")).code == Code.PULL_NOT_FOUND
        assert "new" in desk.groups.configs
        refused = await desk.pull(consumer_group="not a name")
        assert refused.code == Code.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_without_a_subscription_of_its_own_the_registered_one_counts(tmp_path: Path) -> None:
    """Each step clears one refusal and meets the next."""
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await fill(desk, 1)
        pull: dict[str, Any] = {"sys_flag": 0, "subscription": None, "sub_version": 5}

        async def refused() -> tuple[int, str | None]:
            answer = await desk.pull(**pull)
            kind = said(answer).get("forbiddenType") if answer.header else None
            return answer.code, kind

        assert await refused() == (Code.SUBSCRIPTION_NOT_EXIST, None)
        desk.groups.configs["g"] = SubscriptionGroupConfig(
            group_name="g", consume_broadcast_enable=False
        )
        desk.groups.forbid_read("g", "t", True, 0)
        subscribe(desk, "other", model=BROADCASTING)
        assert await refused() == (Code.NO_PERMISSION, "4")
        subscribe(desk, "other")
        assert await refused() == (Code.NO_PERMISSION, "5")
        desk.groups.forbid_read("g", "t", False, 0)
        assert await refused() == (Code.SUBSCRIPTION_NOT_EXIST, None)
        subscribe(desk, "t", version=4)
        assert await refused() == (Code.SUBSCRIPTION_NOT_LATEST, None)
        subscribe(desk, "t", version=5, expression="a >", kind="SQL92")
        assert await refused() == (Code.FILTER_DATA_NOT_EXIST, None)
        subscribe(desk, "t", version=6, expression="a > 1", kind="SQL92")
        subscribe(desk, "t", version=7, expression="a >", kind="SQL92")
        pull["sub_version"] = 7
        assert await refused() == (Code.FILTER_DATA_NOT_LATEST, None)
        subscribe(desk, "t", version=8, expression="a > 1", kind="SQL92")
        assert await refused() == (Code.SYSTEM_ERROR, None)
        subscribe(desk, "t", version=9)
        assert await refused() == (Code.SUCCESS, None)


async def test_a_registered_subscription_filters(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        for tag in ("A", "B", "A"):
            await fill(desk, 1, properties=tagged(tag))
        subscribe(desk, "t", expression="B")
        answer = await desk.pull(sys_flag=0, subscription=None)
        assert len(bodies(answer)) == 1
        assert place(answer) == (3, 0, 3)


# ── what is found ──


@pytest.mark.parametrize(
    ("count", "asked", "code", "remark", "next_offset"),
    [
        (0, 0, Code.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", 0),
        (0, 7, Code.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", 0),
        (3, 3, Code.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (3, 4, Code.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (3, -1, Code.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
        (3, 0, Code.SUCCESS, "FOUND", 3),
        (3, 2, Code.SUCCESS, "FOUND", 3),
    ],
)
async def test_every_answer_says_where_to_go_on(
    tmp_path: Path, count: int, asked: int, code: int, remark: str, next_offset: int
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await fill(desk, count)
        answer = await desk.pull(queue_offset=asked)
        assert (answer.code, answer.remark) == (code, remark)
        assert place(answer) == (next_offset, 0, count)
        assert bodies(answer) == [b"%d" % number for number in range(max(asked, 0), count)] or code


async def test_a_pull_that_no_message_matches_goes_on_behind_them(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await fill(desk, 3, properties=tagged("A"))
        answer = await desk.pull(subscription="B || C", sys_flag=HOLD)
        assert (answer.code, answer.remark) == (Code.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        assert place(answer) == (3, 0, 3)


async def test_what_is_pulled_is_counted_for_group_and_topic(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await fill(desk, 3)
        answer = await desk.pull(max_msg_nums=2)
        counted = desk.stats.group_out("g", "t")
        assert (counted.messages_out, counted.bytes_out) == (2, len(body_of(answer)))
        assert [decode(r.properties)["CLUSTER"] for r in records(body_of(answer))] == [
            "DefaultCluster"
        ] * 2


async def test_one_answer_has_the_limits_of_rocketmq_unless_bulk_lifts_them(tmp_path: Path) -> None:
    async with open_desk(
        tmp_path, max_transfer_count_on_message_in_memory=5, max_bulk_bytes=65_536
    ) as desk:
        desk.topic()
        for _ in range(40):
            await desk.send(body=b"x" * 4_000)

        async def count(**fields: Any) -> int:
            return len(bodies(await desk.pull(**fields)))

        assert await count(max_msg_nums=100) == 5
        assert await count(max_msg_nums=2) == 2
        assert await count(max_msg_nums=0) == 1
        assert await count(max_msg_nums=9, bulk_bytes=1 << 20) == 9
        assert await count(max_msg_nums=100, bulk_bytes=10_000) == 2
        assert await count(max_msg_nums=100, bulk_bytes=1) == 1, "at least one"
        # No client lifts the broker's own limit.
        assert await count(max_msg_nums=100, bulk_bytes=1 << 30) == 15


async def test_a_pull_from_the_disk_waits_outside_the_loop_and_finds_the_same(
    tmp_path: Path,
) -> None:
    disk = ColdDisk(cold=False)
    async with open_desk(tmp_path, disk) as desk:
        desk.topic()
        await fill(desk, 3)
        await desk.store.flush_queues()
        desk.store.commit_log.mapped_from = desk.store.commit_log.max_offset
        disk.cold = True
        outcome = desk.begin(pull_header())
        assert inspect.isawaitable(outcome), "what this run did not write is not read in the loop"
        answer: Answer = await outcome
        assert bodies(answer) == [b"0", b"1", b"2"]


async def test_a_message_that_the_disk_altered_reaches_no_client_and_holds_up_none(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await fill(desk, 4)
        sent = list(records(body_of(await desk.ask(pull_header()))))
        log = desk.store.commit_log
        for record in sent[1:3]:
            file = log.queue.find(record.physical_offset)
            assert file is not None
            file.pages[record.physical_offset + 88] ^= 1
        log.mapped_from = log.max_offset
        answer = await desk.ask(pull_header())
        assert (bodies(answer), place(answer)) == ([b"0", b"3"], (4, 0, 4))
        answer = await desk.ask(pull_header(queue_offset=1, max_msg_nums=2))
        assert answer.code == Code.PULL_RETRY_IMMEDIATELY
        assert place(answer) == (3, 0, 4)
        assert bodies(await desk.ask(pull_header(queue_offset=3))) == [b"3"]


# ── commit ──


@pytest.mark.parametrize("queue_offset", [0, 2, 9])
async def test_a_commit_rides_on_the_pull_whatever_that_finds(
    tmp_path: Path, queue_offset: int
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await fill(desk, 2)
        flags = COMMIT | SUBSCRIPTION
        await desk.pull(queue_offset=queue_offset, sys_flag=flags, commit_offset=1)
        assert desk.offsets.query("g", "t", 0) == 1


async def test_a_pull_without_the_flag_commits_nothing(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await fill(desk, 2)
        await desk.pull(commit_offset=1)
        assert desk.offsets.changes == 0


async def test_a_refused_pull_commits_nothing(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        flags = COMMIT | SUBSCRIPTION
        refused = await desk.pull(subscription="||", sys_flag=flags, commit_offset=1)
        assert refused.code == Code.SUBSCRIPTION_PARSE_FAILED
        assert desk.offsets.changes == 0


async def test_a_held_pull_commits_when_it_comes_and_not_again(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await fill(desk, 2)
        header = pull_header(queue_offset=2, sys_flag=COMMIT | HOLD, commit_offset=2)
        assert desk.begin(header) is None
        assert desk.offsets.query("g", "t", 0) == 2
        desk.offsets.commit("g", "t", 0, 1, 0)
        await fill(desk, 1)
        assert bodies(await desk.peer.next_answer()) == [b"0"]
        assert desk.offsets.query("g", "t", 0) == 1


# ── hold ──


async def test_a_held_pull_is_answered_in_the_round_of_its_message(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        assert desk.begin(pull_header(sys_flag=HOLD)) is None
        assert desk.hold.parked == 1
        await fill(desk, 1)
        (answer,) = desk.peer.answers
        assert (answer.code, bodies(answer), place(answer)) == (0, [b"0"], (1, 0, 1))
        assert desk.hold.parked == 0


async def test_a_pull_that_wakes_to_messages_on_disk_is_told_to_come_again(tmp_path: Path) -> None:
    disk = ColdDisk(cold=False)
    async with open_desk(tmp_path, disk) as desk:
        desk.topic()
        assert desk.begin(pull_header(sys_flag=HOLD)) is None
        disk.cold = True
        desk.store.reader.mapped_bytes = -1
        await fill(desk, 1)
        (answer,) = desk.peer.answers
        assert (answer.code, place(answer)) == (20, (0, 0, 1))
        again = desk.begin(pull_header(sys_flag=HOLD))
        assert inspect.isawaitable(again)
        found: Answer = await again
        assert bodies(found) == [b"0"]


@pytest.mark.parametrize("header", [PullMessage, LitePullMessage])
async def test_one_answer_has_all_that_the_round_brought(
    tmp_path: Path, header: type[PullMessage]
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        desk.begin(pull_header(cls=header, sys_flag=HOLD))
        for number in range(3):
            desk.begin(send_header(), b"%d" % number)
        assert desk.peer.answers == []
        desk.after_round()
        assert bodies(desk.peer.answers[0]) == [b"0", b"1", b"2"]


async def test_a_held_pull_of_a_group_that_was_paused_gets_no_message(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        assert desk.begin(pull_header(sys_flag=HOLD)) is None
        paused = msgspec.structs.replace(desk.groups.configs["g"], consume_enable=False)
        desk.groups.update(paused, 0)
        await fill(desk, 1)
        (answer,) = desk.peer.answers
        assert (answer.code, bodies(answer)) == (Code.NO_PERMISSION, [])
        assert desk.hold.parked == 0


async def test_only_the_end_of_a_queue_is_held(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await fill(desk, 2)
        for asked, code in ((0, 0), (9, Code.PULL_OFFSET_MOVED), (-1, Code.PULL_OFFSET_MOVED)):
            assert (await desk.pull(queue_offset=asked, sys_flag=HOLD)).code == code
        assert (await desk.pull(queue_offset=2)).code == Code.PULL_NOT_FOUND, "not asked to wait"
        assert desk.hold.parked == 0


async def test_nothing_is_held_beyond_the_limit(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        desk.hold.quota.limits = HoldLimits(total=1)
        assert desk.begin(pull_header(sys_flag=HOLD)) is None
        assert (await desk.pull(sys_flag=HOLD)).code == Code.PULL_NOT_FOUND


async def test_a_message_that_does_not_match_wakes_nobody_before_the_sweep(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        desk.begin(pull_header(sys_flag=HOLD, subscription="B", suspend_timeout_millis=60_000))
        began = trio.current_time()
        await fill(desk, 2, properties=tagged("A"))
        assert desk.peer.answers == []
        answer = await desk.peer.next_answer()
        assert trio.current_time() - began <= 5.1
        assert (answer.code, place(answer)[0]) == (Code.PULL_RETRY_IMMEDIATELY, 2)


@pytest.mark.parametrize(
    ("asked_ms", "settings", "waits_s"),
    [
        (15_000, {}, 15.0),
        (700, {}, 0.7),
        (0, {}, 0.0),
        (-5, {}, 0.0),
        (10_000_000, {}, module.HOLD_MAX_MS / 1000),
        (15_000, {"long_polling_enable": False, "short_polling_time_ms": 1_000}, 1.0),
    ],
)
async def test_a_held_pull_is_answered_at_its_deadline(
    tmp_path: Path,
    autojump_clock: MockClock,
    asked_ms: int,
    settings: dict[str, Any],
    waits_s: float,
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        set_broker(desk, **settings)
        began = trio.current_time()
        desk.begin(pull_header(sys_flag=HOLD, suspend_timeout_millis=asked_ms))
        answer = await desk.peer.next_answer()
        assert waits_s <= trio.current_time() - began <= waits_s + 0.1
        assert (answer.code, answer.remark) == (Code.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
        assert place(answer) == (0, 0, 0)


async def test_a_pull_that_wakes_is_checked_again(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        desk.begin(pull_header(sys_flag=HOLD))
        desk.topic("t", perm=2)
        await fill(desk, 1)
        (answer,) = desk.peer.answers
        assert (answer.code, said(answer)) == (Code.NO_PERMISSION, {"forbiddenType": "3"})


def switch_off(desk: Desk) -> None:
    off = msgspec.structs.replace(desk.groups.configs["g"], consume_enable=False)
    desk.groups.update(off, 0)


def shrink(desk: Desk) -> None:
    one_queue = msgspec.structs.replace(desk.topics.configs["t"], read_queue_nums=1)
    desk.topics.changed(one_queue, 0)


CHANGES: list[tuple[Callable[[Desk], object], int]] = [
    (lambda desk: desk.topics.delete("t", 0, 0), Code.TOPIC_NOT_EXIST),
    (shrink, Code.INVALID_PARAMETER),
    (lambda desk: desk.groups.delete("g", 0), Code.SUBSCRIPTION_GROUP_NOT_EXIST),
    (switch_off, Code.NO_PERMISSION),
]


@pytest.mark.parametrize(("change", "code"), CHANGES)
async def test_a_held_pull_hears_at_once_of_its_topic_and_group(
    tmp_path: Path, autojump_clock: MockClock, change: Callable[[Desk], object], code: int
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        desk.begin(pull_header(sys_flag=HOLD, queue_id=1, suspend_timeout_millis=15_000))
        began = trio.current_time()
        change(desk)
        answer = await desk.peer.next_answer()
        assert (answer.code, desk.hold.parked) == (code, 0)
        assert trio.current_time() - began <= 0.1
        assert ("g" in desk.groups.configs) == (code != Code.SUBSCRIPTION_GROUP_NOT_EXIST)


async def test_a_held_pull_waits_on_while_topics_and_groups_change(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        desk.begin(pull_header(sys_flag=HOLD, consumer_group="first"))
        desk.peer = Caller()
        # Its group is new.
        desk.begin(pull_header(sys_flag=HOLD, suspend_timeout_millis=3_000))
        began = trio.current_time()
        desk.groups.update(msgspec.structs.replace(desk.groups.configs["g"], retry_max_times=3), 0)
        desk.topic("other")
        desk.topics.changed(desk.topics.configs["other"], 0)
        desk.groups.find("other", 0)
        assert (await desk.peer.next_answer()).code == Code.PULL_NOT_FOUND
        assert trio.current_time() - began >= 3


async def test_a_pull_whose_peer_has_gone_is_dropped(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        desk.peer = gone = Caller()
        desk.begin(pull_header(sys_flag=HOLD))
        gone.closed = "closed by peer"
        desk.peer = Caller()
        await fill(desk, 1)
        assert gone.answers == []
        assert desk.hold.parked == 0


async def test_every_held_pull_is_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        for queue_id in (0, 0, 1):
            desk.begin(pull_header(sys_flag=HOLD, queue_id=queue_id))
        desk.hold.release_all()
        await wait_all_tasks_blocked()
        assert [answer.code for answer in desk.peer.answers] == [Code.PULL_NOT_FOUND] * 3


async def test_a_held_pull_that_cannot_read_is_asked_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        assert desk.begin(pull_header(sys_flag=HOLD, suspend_timeout_millis=15_000)) is None
        with monkeypatch.context() as fails:
            fails.setattr(desk.store, "get", no_more_files)
            await fill(desk, 1)
        answer = await desk.peer.next_answer()
        assert answer.code == Code.PULL_RETRY_IMMEDIATELY
        assert place(answer) == (0, 0, 1)
        assert bodies(await desk.ask(pull_header())) == [b"0"]


async def test_messages_in_front_of_one_that_the_disk_cannot_read_are_given(
    tmp_path: Path,
) -> None:
    disk = WornDisk()
    async with open_desk(tmp_path, disk) as desk:
        desk.topic()
        for body in (b"a", b"b", b"worn", b"c"):
            await desk.send(body=body)
        assert await desk.saver.save_all()
    async with open_desk(tmp_path, disk) as desk:
        disk.bad = b"worn"
        answer = await desk.pull()
        assert bodies(answer) == [b"a", b"b"]
        assert place(answer) == (2, 0, 4)
        for _ in range(2):
            with pytest.raises(MessageUnreadable, match=f"commitlog/{0:020}") as refused:
                await desk.pull(queue_offset=2)
            assert "group reset g t --queue desk:0 --to offset:3" in refused.value.remark
        assert desk.store.stats.unreadable == {"pull": 1}
        assert bodies(await desk.pull(queue_offset=3)) == [b"c"]


@pytest.mark.parametrize("sql", [False, True], ids=["tags", "sql"])
async def test_a_filter_gets_the_messages_in_front_of_one_that_the_disk_cannot_read(
    tmp_path: Path, sql: bool
) -> None:
    disk = WornDisk()
    wanted: dict[str, Any] = {"subscription": "a", "expression_type": "TAG"}
    if sql:
        wanted = {"subscription": "TAGS = 'a'", "expression_type": "SQL92"}
    changes: dict[str, Any] = {"enable_property_filter": True}
    async with open_desk(tmp_path, disk, **changes) as desk:
        desk.topic()
        for body, tag in ((b"1", "a"), (b"2", "b"), (b"worn", "a"), (b"3", "b"), (b"4", "a")):
            await desk.send(body=body, properties=f"TAGS\x01{tag}\x02")
        assert await desk.saver.save_all()
    async with open_desk(tmp_path, disk, **changes) as desk:
        disk.bad = b"worn"
        answer = await desk.pull(**wanted)
        assert bodies(answer) == [b"1"]
        if sql:
            # A filter in SQL has looked at the next one, too.
            answer = await desk.pull(queue_offset=place(answer)[0], **wanted)
        with pytest.raises(MessageUnreadable, match="message at offset 2 of queue 0 of t"):
            await desk.pull(queue_offset=place(answer)[0], **wanted)
        assert bodies(await desk.pull(queue_offset=3, **wanted)) == [b"4"]
