"""What outlives the deletion of a topic or of a consumer group: the rows of `docs/deletion.md`.

Each row brings something about, before topic `t` or group `g` is deleted and made anew; then it
says what is left of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
import trio

from aerobee.broker.metrics.samples import MINUTE
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.bodies.client import SubscriptionData
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.bodies.pop import RequestModeRequest
from aerobee.remoting.wire.bodies.queue import MessageQueue
from aerobee.remoting.wire.headers import group as groups
from aerobee.remoting.wire.headers import topic as topics
from aerobee.remoting.wire.headers.pop import SetMessageRequestMode
from aerobee.remoting.wire.headers.query import QueryMessage, ViewMessageById
from tests.broker.desk import body_of, said
from tests.broker.pops import open_pops
from tests.kit.records import bodies_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock

    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from tests.broker.pops import Pops

    After = Callable[[Pops, Any], Awaitable[None]]

PAGE: Final = Path(__file__).parents[3] / "docs" / "deletion.md"


class Row(NamedTuple):
    """One row of the table. Without a check a deletion of that kind is not about it."""

    before: Callable[[Pops], Awaitable[Any]]
    topic: After | None
    group: After | None


# ── What is kept ──


async def configured(pops: Pops) -> None:
    desk = pops.desk
    desk.topic("t", read_queue_nums=1, write_queue_nums=1, attributes={"message.type": "FIFO"})
    desk.groups.update(SubscriptionGroupConfig(group_name="g", retry_max_times=3), 0)


async def topic_is_new(pops: Pops, _: Any) -> None:
    topic: TopicConfig | None = pops.desk.topics.get("t")
    assert topic is not None
    assert not topic.attributes


async def group_is_new(pops: Pops, _: Any) -> None:
    group = pops.desk.groups.get("g")
    assert group is not None
    assert group.retry_max_times != 3


async def sent(pops: Pops) -> str:
    answer = await pops.desk.send("t", b"before", properties="KEYS\x01k\x02UNIQ_KEY\x01U\x02")
    return str(said(answer)["msgId"])


async def queue_is_empty(pops: Pops, _: Any) -> None:
    assert (await pops.desk.pull("t")).code != 0
    assert said(await pops.desk.send("t", b"after"))["queueOffset"] == "0"


async def not_found(pops: Pops, name: str) -> None:
    place = int(name[16:], 16)
    record = pops.desk.store.read(place)
    assert record is not None, "it is in the log"
    assert (await pops.desk.ask(ViewMessageById(offset=place))).code != 0


async def found_by_key(pops: Pops, _: Any) -> None:
    header = QueryMessage(
        topic="t", key="k", max_num=32, begin_timestamp=0, end_timestamp=(1 << 63) - 1
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(pops.desk.broker.query.services[0].run)
        found = body_of(await pops.desk.ask(header))
        nursery.cancel_scope.cancel()
    assert bodies_of([memoryview(found)]) == [b"before"]


async def consumed(pops: Pops) -> None:
    await sent(pops)
    pops.desk.offsets.commit("g", "t", 0, 1, 0)


async def no_offset(pops: Pops, _: Any) -> None:
    assert pops.desk.offsets.query("g", "t", 0) == -1


async def offset_stays(pops: Pops, _: Any) -> None:
    assert pops.desk.offsets.query("g", "t", 0) == 1


async def noted(pops: Pops) -> None:
    pops.desk.compensation.note("g", "t", 0)
    pops.desk.compensation.note("h", "u", 0)


async def not_noted(pops: Pops, _: Any) -> None:
    table = pops.desk.compensation
    assert "t" not in table.topics("g")
    assert table.count == sum(map(len, table.groups.values())) == 1


async def filtered(pops: Pops) -> None:
    filters = pops.desk.filters
    for group in ("g", "running"):
        topic = "t" if group == "g" else "u"
        data = SubscriptionData(topic=topic, sub_string="a = 1", expression_type="SQL92")
        compiled = finished(filters.compiled(group, [data]))
        filters.register_one(group, data, 1_000, compiled)
    filters.group_gone("g", 1_000)


async def not_filtered(pops: Pops, _: Any) -> None:
    assert pops.desk.filters.get("t", "g") is None
    assert pops.desk.filters.get("u", "running") is not None


async def locked(pops: Pops) -> None:
    queue = MessageQueue(topic="t", broker_name="desk", queue_id=0)
    assert pops.desk.locks.lock("g", "client", [queue], 0)


async def still_locked(pops: Pops, _: Any) -> None:
    assert pops.desk.locks.is_locked("g", 60_000)
    assert not pops.desk.locks.is_locked("g", 60_001)


async def popped_in_order(pops: Pops) -> None:
    await sent(pops)
    assert len(await pops.pop(order=True, invisible_time=600_000)) == 1


async def free_again(pops: Pops, _: Any) -> None:
    pops.desk.offsets.delete_group("g")
    await pops.send(b"after")
    assert (await pops.bodies(order=True))[0] == b"after"


async def not_blocked(pops: Pops, _: Any) -> None:
    assert await pops.bodies(order=True, attempt_id="other") == [b"before"]


async def popped(pops: Pops) -> None:
    await sent(pops)
    assert len(await pops.pop(invisible_time=3_000)) == 1


async def only_what_is_new_comes(pops: Pops, _: Any) -> None:
    await pops.send(b"after")
    await pops.desk.pass_s(10)
    assert await pops.bodies(invisible_time=600_000) == [b"after"]
    await pops.desk.pass_s(10)
    assert await pops.bodies() == []


async def comes_again(pops: Pops, _: Any) -> None:
    await pops.desk.pass_s(10)
    assert await pops.bodies() == [b"before"]


async def put_back(pops: Pops) -> None:
    await popped(pops)
    await pops.desk.pass_s(8)
    assert pops.desk.topics.get("%RETRY%g_t") is not None


async def no_retry_topic(pops: Pops, _: Any) -> None:
    assert pops.desk.topics.get("%RETRY%g_t") is None


async def retry_topic_stays(pops: Pops, _: Any) -> None:
    assert pops.desk.topics.get("%RETRY%g_t") is not None


async def mode_set(pops: Pops) -> None:
    mode = RequestModeRequest(topic="t", consumer_group="g", mode="POP")
    assert (await pops.desk.ask(SetMessageRequestMode(), mode.to_bytes())).code == 0


async def no_mode(pops: Pops, _: Any) -> None:
    assert pops.desk.request_modes.modes == {}


async def forbidden(pops: Pops) -> None:
    pops.desk.groups.forbid_read("g", "t", True, 0)


async def still_forbidden(pops: Pops, _: Any) -> None:
    assert not pops.desk.groups.may_read("g", "t")


async def allowed(pops: Pops, _: Any) -> None:
    assert pops.desk.groups.may_read("g", "t")


async def counted(pops: Pops) -> None:
    await sent(pops)
    await pops.desk.pull("t")
    await pops.desk.sampling.sample(MINUTE)
    assert {"t", "t@g"} <= {key for _, key in pops.desk.sampling.samples.series}


async def topic_not_counted(pops: Pops, _: Any) -> None:
    assert not {key for _, key in pops.desk.sampling.samples.series} & {"t", "t@g"}
    assert "t" not in {topic for topic, _ in pops.desk.stats.topics_in}
    await group_not_counted(pops, _)


async def group_not_counted(pops: Pops, _: Any) -> None:
    assert "t@g" not in {key for _, key in pops.desk.sampling.samples.series}
    assert ("g", "t") not in pops.desk.stats.groups_out


async def waiting(pops: Pops) -> None:
    answer = await pops.desk.send("t", b"late", properties="TIMER_DELAY_SEC\x013\x02")
    assert answer.code == 0


async def not_delivered_but_to_one_made_anew(pops: Pops, _: Any) -> None:
    # `anew` has made it: as in Java's broker, what waits comes to that.
    await pops.desk.pass_s(6)
    assert await pops.bodies() == [b"late"]
    await waiting(pops)
    assert (await pops.desk.ask(topics.DeleteTopicInBroker(topic="t"))).code == 0
    await pops.desk.pass_s(6)
    assert pops.desk.store.max_offset("t", 0) == 0


async def retried(pops: Pops) -> None:
    pops.desk.topic("%RETRY%g")
    answer = await pops.desk.send("%RETRY%g", b"late", properties="TIMER_DELAY_SEC\x013\x02")
    assert answer.code == 0


async def comes_to_the_retry_topic(pops: Pops, _: Any) -> None:
    await retried(pops)
    await pops.desk.pass_s(6)
    assert pops.desk.store.max_offset("%RETRY%g", 0) == 1


async def sent_as_new(pops: Pops, _: Any) -> None:
    answer = await pops.desk.send("t", b"after", properties="KEYS\x01k\x02")
    assert said(answer)["queueOffset"] == "0"
    assert await pops.bodies() == [b"after"]


async def used_up(pops: Pops) -> None:
    pops.desk.topic("t", attributes={"aerobee.max.rate": "1"})
    assert (await pops.desk.send("t")).code == 0
    assert (await pops.desk.send("t")).code == 2
    limited = SubscriptionGroupConfig(group_name="g", attributes={"aerobee.max.rate": "1"})
    pops.desk.groups.update(limited, 0)
    assert [(await pops.desk.pull("t")).code for _ in range(2)] == [0, 215]


async def may_receive(pops: Pops, _: Any) -> None:
    limited = SubscriptionGroupConfig(group_name="g", attributes={"aerobee.max.rate": "1"})
    pops.desk.groups.update(limited, 0)
    assert (await pops.desk.pull("t")).code == 0


async def not_used(pops: Pops, _: Any) -> None:
    pops.desk.topic("t", attributes={"aerobee.max.rate": "1"})
    assert (await pops.desk.send("t")).code == 0


ROWS: Final[dict[str, Row]] = {
    "configuration, attributes": Row(configured, topic_is_new, group_is_new),
    "what was sent, or received, within its `--max-rate` and `--max-bytes`": Row(
        used_up, not_used, may_receive
    ),
    "queues, and what consumers get from them": Row(sent, queue_is_empty, None),
    "answers by id": Row(sent, not_found, None),
    "answers by key, and records for `aerobee store dump`": Row(sent, found_by_key, None),
    "consumer offsets": Row(consumed, no_offset, offset_stays),
    "topics known from pulls and pops": Row(noted, not_noted, not_noted),
    "SQL filters": Row(filtered, not_filtered, not_filtered),
    "queue locks": Row(locked, still_locked, still_locked),
    "blocks of orderly pops": Row(popped_in_order, free_again, not_blocked),
    "check points of pops": Row(popped, only_what_is_new_comes, comes_again),
    "retry topics of pops": Row(put_back, no_retry_topic, retry_topic_stays),
    "whether a group pulls or pops a topic (401)": Row(mode_set, no_mode, no_mode),
    "what a group may not read (353)": Row(forbidden, still_forbidden, allowed),
    "statistics, samples and series of metrics": Row(counted, topic_not_counted, group_not_counted),
    "delayed messages, timers and halves that wait": Row(
        waiting, not_delivered_but_to_one_made_anew, comes_to_the_retry_topic
    ),
    "keys of `dedupe`": Row(sent, sent_as_new, None),
}


def written() -> dict[str, tuple[str, str]]:
    """The rows of the page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {what: (topic, group) for what, topic, group in cells[1:]}


def test_the_rows_of_the_page_are_the_rows_of_the_test() -> None:
    assert list(written()) == list(ROWS)
    for what, (topic, group) in written().items():
        assert (topic == "–") is (ROWS[what].topic is None), what
        assert (group == "–") is (ROWS[what].group is None), what


@pytest.mark.trio
@pytest.mark.parametrize("what", [what for what, row in ROWS.items() if row.topic])
async def test_a_topic_made_anew_begins_as_the_page_says(
    tmp_path: Path, mock_clock: MockClock, what: str
) -> None:
    row = ROWS[what]
    async with open_pops(tmp_path, dedupe="t=KEYS@600s") as pops:
        await pops.desk.dedupe.run()
        pops.desk.groups.find("g", 0)
        before = await row.before(pops)
        assert (await pops.desk.ask(topics.DeleteTopicInBroker(topic="t"))).code == 0
        pops.desk.topic("t", read_queue_nums=1, write_queue_nums=1)
        assert row.topic is not None
        await row.topic(pops, before)


@pytest.mark.trio
@pytest.mark.parametrize("what", [what for what, row in ROWS.items() if row.group])
async def test_a_group_made_anew_begins_as_the_page_says(
    tmp_path: Path, mock_clock: MockClock, what: str
) -> None:
    row = ROWS[what]
    async with open_pops(tmp_path) as pops:
        pops.desk.groups.find("g", 0)
        before = await row.before(pops)
        assert (await pops.desk.ask(groups.DeleteGroup(group_name="g"))).code == 0
        pops.desk.groups.find("g", 0)
        assert row.group is not None
        await row.group(pops, before)
