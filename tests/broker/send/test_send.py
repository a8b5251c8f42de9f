"""Sending: the order of checks, what is stored, what is answered and when."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from aerobee.remoting.server.routes import HELD, PendingAnswer
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.send import SendBatchMessage, SendMessage, SendMessageV2
from aerobee.store.config import FlushDiskType
from aerobee.store.flags import Flag
from aerobee.store.format.message_id import offset_id, read_offset_id
from aerobee.store.format.names import segment_name
from aerobee.store.format.properties import decode
from aerobee.store.format.record import read
from aerobee.store.format.tags import java_hash
from tests.broker.desk import BORN_MS, Desk, body_of, open_desk, said, send_header
from tests.kit.faulty_disk import Fault, FaultyDisk, Gate
from tests.kit.store_model import Sent, batch_body

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.store.format.record import Record

pytestmark = pytest.mark.trio

SYNC = FlushDiskType.SYNC_FLUSH
REGION = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
FAR_MS = 4_000_000_000_000
BATCH = batch_body([Sent(b"one", b"TAGS\x01A\x02"), Sent(b"two", b"")])


def text(**properties: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def stored(desk: Desk, physical_offset: int = 0) -> Record:
    view = desk.store.read(physical_offset)
    assert view is not None
    return read(view)


def properties(desk: Desk, physical_offset: int = 0) -> dict[str, str]:
    return decode(stored(desk, physical_offset).properties)


# ── the order of checks ──

CHECKS: list[tuple[str, dict[str, Any], int, str]] = [
    ("time gate", {"gate": True}, Code.SYSTEM_ERROR, "broker unable to service, until"),
    ("blank name", {"topic": " "}, Code.INVALID_PARAMETER, "blank"),
    ("bad characters", {"topic": "no/way"}, Code.INVALID_PARAMETER, "illegal characters"),
    ("long name", {"topic": "x" * 128}, Code.INVALID_PARAMETER, "longer"),
    ("not for clients", {"topic": "SCHEDULE_TOPIC_XXXX"}, Code.NO_PERMISSION, "forbidden"),
    ("unknown", {"topic": "who", "default_topic": "none"}, Code.TOPIC_NOT_EXIST, "apply first"),
    ("queue", {"topic": "%RETRY%nobody", "queue_id": 4}, Code.INVALID_PARAMETER, "queueId[4]"),
    (
        "group of a retry topic",
        {"topic": "%RETRY%nobody"},
        Code.SUBSCRIPTION_GROUP_NOT_EXIST,
        "nobody",
    ),
    ("body", {"body": b""}, Code.MESSAGE_ILLEGAL, "body"),
    ("delay level", {"properties": text(DELAY="soon")}, Code.SYSTEM_ERROR, "DELAY"),
]
"""What is wrong · how the request says so · its answer. The first that is wrong answers."""


async def refused_for(desk: Desk, wrong: dict[str, Any]) -> Any:
    fields = dict(wrong)
    broker = desk.config.broker
    gate_ms = FAR_MS if fields.pop("gate", False) else 0
    desk.destinations.options = replace(broker, start_accept_send_request_time_stamp_ms=gate_ms)
    answer = await desk.send(**fields)
    assert answer.header is not None, "trace clients read region and switch in every answer"
    assert said(answer) == REGION
    return answer


async def test_the_first_failing_check_answers(tmp_path: Path) -> None:
    async with open_desk(tmp_path, auto_create_subscription_group=False) as desk:
        desk.topic("t")
        desk.topic("%RETRY%nobody", read_queue_nums=4, write_queue_nums=4)
        for number, (name, own, code, remark) in enumerate(CHECKS):
            assert (await refused_for(desk, own)).code == code, name
            everything: dict[str, Any] = {}
            for _, wrong, _, _ in CHECKS[number:]:
                everything = wrong | everything
            answer = await refused_for(desk, everything)
            assert (answer.code, remark in answer.remark) == (code, True), (name, answer)
        assert desk.store.commit_log.max_offset == 0, "nothing was stored"
        assert "who" not in desk.topics.configs


@pytest.mark.parametrize("permission", [4, 0])
async def test_a_broker_that_is_not_writable_refuses_ordered_topics_only(
    tmp_path: Path, permission: int
) -> None:
    async with open_desk(tmp_path, broker_permission=permission) as desk:
        desk.topic("ordered", order=True)
        desk.topic("plain")
        refused = await desk.send("ordered")
        assert (refused.code, said(refused)) == (Code.NO_PERMISSION, REGION)
        assert (await desk.send("plain")).code == Code.SUCCESS


async def test_the_write_bit_of_a_topic_is_the_clients_business(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", perm=4)
        assert (await desk.send()).code == Code.SUCCESS


@pytest.mark.parametrize(
    ("write", "read_queues", "queue_id", "code"),
    [
        (4, 4, 3, Code.SUCCESS),
        (4, 4, 4, Code.INVALID_PARAMETER),
        (2, 8, 7, Code.SUCCESS),
        (8, 2, 7, Code.SUCCESS),
        (2, 8, 8, Code.INVALID_PARAMETER),
        (0, 8, -1, Code.SYSTEM_ERROR),
    ],
)
async def test_a_queue_exists_if_it_is_one_to_write_or_one_to_read(
    tmp_path: Path, write: int, read_queues: int, queue_id: int, code: int
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", write_queue_nums=write, read_queue_nums=read_queues)
        assert (await desk.send(queue_id=queue_id)).code == code


async def test_a_negative_queue_is_any_of_those_to_write(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", write_queue_nums=3, read_queue_nums=8)
        chosen = {said(await desk.send(queue_id=-1))["queueId"] for _ in range(80)}
        assert chosen == {"0", "1", "2"}


async def test_a_compacted_topic_wants_keys(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", attributes={"cleanup.policy": "COMPACTION"})
        refused = await desk.send()
        assert (refused.code, said(refused)) == (Code.MESSAGE_ILLEGAL, REGION)
        assert (await desk.send(properties=text(KEYS="k"))).code == Code.SUCCESS


# ── what is delivered later, or by halves ──


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"properties": text(DELAY="soon")}, Code.SYSTEM_ERROR),
        ({"properties": text(TIMER_DELIVER_MS="soon")}, Code.MESSAGE_ILLEGAL),
        ({"properties": text(TIMER_DELAY_SEC="3456001")}, Code.MESSAGE_ILLEGAL),
        ({"properties": text(DELAY="soon", TIMER_DELAY_SEC="5")}, Code.SYSTEM_ERROR),
        ({"sys_flag": 0x4}, Code.MESSAGE_ILLEGAL),
        ({"sys_flag": 0xC}, Code.MESSAGE_ILLEGAL),
    ],
    ids=str,
)
async def test_what_asks_for_something_in_a_wrong_way_is_refused_and_never_stored(
    tmp_path: Path, fields: dict[str, Any], code: int
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        refused = await desk.send(**fields)
        assert (refused.code, said(refused)) == (code, REGION)
        assert desk.store.commit_log.max_offset == 0


@pytest.mark.parametrize("given", [{"DELAY": "0"}, {"DELAY": "-1"}, {"TRAN_MSG": "false"}], ids=str)
async def test_what_only_looks_like_one_is_an_ordinary_message(
    tmp_path: Path, given: dict[str, str]
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        assert (await desk.send(properties=text(**given))).code == Code.SUCCESS
        assert properties(desk).items() >= given.items()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "%RETRY%g"}, Code.MESSAGE_ILLEGAL),
        ({"properties": text(DELAY="1")}, Code.MESSAGE_ILLEGAL),
        ({"properties": text(DELAY="x")}, Code.SYSTEM_ERROR),
        ({"properties": text(TIMER_DELAY_SEC="1")}, Code.MESSAGE_ILLEGAL),
        ({"properties": text(TRAN_MSG="true")}, Code.MESSAGE_ILLEGAL),
        ({"sys_flag": 0x4}, Code.MESSAGE_ILLEGAL),
        ({"sys_flag": 0xC}, Code.MESSAGE_ILLEGAL),
        ({"body": b""}, Code.MESSAGE_ILLEGAL),
        ({"body": BATCH[:-1]}, Code.MESSAGE_ILLEGAL),
        ({"body": BATCH + b"\0"}, Code.MESSAGE_ILLEGAL),
        ({"queue_id": 99}, Code.INVALID_PARAMETER),
    ],
    ids=str,
)
@pytest.mark.parametrize("cls", [SendBatchMessage, SendMessageV2, SendMessage])
async def test_a_batch_has_rules_of_its_own_under_each_code(
    tmp_path: Path, cls: type[Any], fields: dict[str, Any], code: int
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        desk.topic("%RETRY%g")
        given: dict[str, Any] = {"body": BATCH, **fields}
        refused = await desk.send(cls=cls, batch=True, **given)
        assert (refused.code, said(refused)) == (code, REGION)
        assert desk.store.commit_log.max_offset == 0


# ── what is stored ──


@pytest.mark.parametrize("cls", [SendMessage, SendMessageV2])
async def test_a_message_is_stored_as_it_was_sent_and_the_answer_says_where(
    tmp_path: Path, cls: type[Any]
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await desk.send(queue_id=1)
        at = desk.store.commit_log.max_offset
        answer = await desk.send(
            cls=cls,
            queue_id=1,
            flag=7,
            sys_flag=1,
            reconsume_times=2,
            properties=text(UNIQ_KEY="U", TAGS="A"),
        )
        record = stored(desk, at)
        assert (record.topic, record.queue_id, record.queue_offset) == ("t", 1, 1)
        assert (record.flag, record.sys_flag, record.reconsume_times) == (7, 1, 2)
        assert (record.born_timestamp, bytes(record.body)) == (BORN_MS, b"hello")
        assert record.born_host == desk.peer.host
        assert record.store_host == desk.store_host
        assert answer.remark is None
        assert said(answer) == {
            "msgId": offset_id(desk.store_host, at),
            "queueId": "1",
            "queueOffset": "1",
            "transactionId": "U",
            **REGION,
        }


async def test_properties_of_the_broker_follow_those_of_the_client(tmp_path: Path) -> None:
    async with open_desk(
        tmp_path, broker_cluster_name="c1", region_id="r1", trace_on=False
    ) as desk:
        desk.topic()
        answer = await desk.send(properties=f"KEYS\x01k\x02{text(UNIQ_KEY='U')}")
        ours = text(CLUSTER="c1", MSG_REGION="r1", TRACE_ON="false")
        assert stored(desk).properties.decode() == f"KEYS\x01k\x02UNIQ_KEY\x01U\x02{ours}"
        assert said(answer)["MSG_REGION"] == "r1"
        assert said(answer)["TRACE_ON"] == "false"


@pytest.mark.parametrize("given", [None, "", "KEYS\x01k", "KEYS\x01k\x02", "UNIQ_KEY\x01\x02"])
async def test_a_message_without_a_unique_key_gets_one(tmp_path: Path, given: str | None) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        answer = await desk.send(properties=given)
        unique = properties(desk)["UNIQ_KEY"]
        assert said(answer)["transactionId"] == unique
        assert len(bytes.fromhex(unique)) == 16
        assert (properties(desk).get("KEYS") == "k") == ("KEYS" in (given or ""))


@pytest.mark.parametrize("name", ["POP_CK", "CLUSTER", "MSG_REGION", "TRACE_ON"])
async def test_what_only_a_broker_may_say_is_not_taken_from_a_client(
    tmp_path: Path, name: str
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await desk.send(properties=text(KEYS="k", **{name: "forged"}))
        found = stored(desk).properties.decode()
        assert "forged" not in found
        assert properties(desk)["KEYS"] == "k"
        assert found.count("CLUSTER\x01") == 1


async def test_flag_bits_of_a_broker_are_not_taken_from_a_client(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await desk.send(sys_flag=0xF3)
        assert stored(desk).sys_flag == 0x3


async def test_the_tag_is_found_in_the_queue(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await desk.send(properties=text(TAGS="orange"))
        await desk.send()
        queue = desk.store.queues.table["t", 0]
        units = [queue.unit(number, desk.store.reader.cold.units) for number in (0, 1)]
        assert [unit and unit.tags_code for unit in units] == [java_hash("orange"), 0]


async def test_each_message_of_a_batch_is_stored_with_its_own_properties(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        answer = await desk.send(
            cls=SendBatchMessage, batch=True, body=BATCH, properties=text(DELAY="0", KEYS="x")
        )
        ids = said(answer)["msgId"].split(",")
        places = [read_offset_id(one)[1] for one in ids]
        records = [stored(desk, place) for place in places]
        assert [bytes(record.body) for record in records] == [b"one", b"two"]
        assert [record.properties for record in records] == [b"TAGS\x01A\x02", b""]
        assert [record.queue_offset for record in records] == [0, 1]
        assert said(answer).items() >= {"queueOffset": "0", "queueId": "0", **REGION}.items()
        counted = desk.stats.topic_in("t")
        assert (counted.messages_in, counted.bytes_in) == (2, sum(r.size for r in records))


# ── the store's word ──


async def test_sizes_are_limited_by_the_store(tmp_path: Path) -> None:
    async with open_desk(tmp_path, max_message_size_bytes=1024) as desk:
        desk.topic()
        big = await desk.send(body=b"x" * 1025)
        assert (big.code, said(big)) == (Code.MESSAGE_ILLEGAL, REGION)
        assert "1024B" in str(big.remark)
        assert (await desk.send(body=b"x" * 1024)).code == Code.SUCCESS
        # Those that the broker adds count, too.
        much = await desk.send(properties=text(KEYS="k" * 32_700))
        assert (much.code, said(much)) == (Code.MESSAGE_ILLEGAL, REGION)
        assert "properties" in str(much.remark)


async def test_a_store_that_takes_no_writes_says_why_and_reads_go_on(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await desk.send()
        desk.store.flags.set(Flag.DISK_FULL, "no room at all")
        refused = await desk.send()
        assert (refused.code, said(refused)) == (Code.SERVICE_NOT_AVAILABLE, REGION)
        assert "no room at all" in str(refused.remark)
        assert desk.stats.topic_in("t").messages_in == 1
        assert len(body_of(await desk.pull())) > 0
        desk.store.flags.clear(Flag.DISK_FULL)
        assert (await desk.send()).code == Code.SUCCESS


async def test_a_one_way_message_is_stored_and_counted_and_nobody_is_told(tmp_path: Path) -> None:
    async with open_desk(tmp_path, flush_disk_type=SYNC) as desk:
        desk.topic()
        assert desk.begin(send_header(), b"hello", oneway=True) is None
        assert desk.stats.topic_in("t").messages_in == 1
        assert desk.peer.answers == []


# ── topics made by sending ──


async def test_a_topic_made_by_use_is_told_once(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        with capture_logs() as lines:
            await desk.send("new")
            await desk.send("new")
            await desk.send("%RETRY%g")
    made = [line for line in lines if line["event"] == "topic.created"]
    assert [(line["topic"], line["by"]) for line in made] == [("new", "use"), ("%RETRY%g", "use")]


async def test_an_unknown_topic_is_made_from_its_default(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        assert (await desk.send("new", queue_id=3)).code == Code.SUCCESS
        made = desk.topics.configs["new"]
        assert (made.write_queue_nums, made.read_queue_nums, made.perm) == (4, 4, 6)


async def test_a_message_to_a_new_topic_is_answered_when_the_topic_is_saved(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with open_desk(tmp_path, disk) as desk:
        await desk.saver.save_all()
        gate = Gate(disk, "fsync", "topics.json")
        answers: list[Any] = []

        async def send() -> None:
            answers.append(await desk.send("new"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await gate.wait_for_a_call()
            await wait_all_tasks_blocked()
            assert answers == []
            assert desk.store.max_offset("new", 0) == 1
            gate.let_go()
        assert answers[0].code == Code.SUCCESS
        assert "new" in (tmp_path / "config/topics.json").read_text()


def waits_for_the_table(outcome: Any) -> bool:
    if isinstance(outcome, PendingAnswer):
        outcome.work.close()  # type: ignore[attr-defined]  # a coroutine
        return True
    assert isinstance(outcome, Answer)
    return False


async def test_a_message_to_a_saved_topic_does_not_wait_for_another_topic(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with open_desk(tmp_path, disk) as desk:
        desk.topic("old")
        await desk.saver.save_all()
        gate = Gate(disk, "fsync", "topics.json")
        assert waits_for_the_table(desk.begin(send_header("new"), b"hello"))
        await gate.wait_for_a_call()
        for topic, waits in (("old", False), ("new", True)):
            assert waits_for_the_table(desk.begin(send_header(topic), b"hello")) is waits
            delayed = send_header(topic, properties=text(DELAY="3"))
            assert waits_for_the_table(desk.begin(delayed, b"hello")) is waits
            *_, outcome = until_its_end(desk.begin(send_header(topic, batch=True), BATCH))
            assert waits_for_the_table(outcome) is waits
        gate.let_go()
        await desk.topic_file.catch_up()
        assert not waits_for_the_table(desk.begin(send_header("new"), b"hello"))


async def test_a_topic_that_cannot_be_saved_does_not_unsay_its_message(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="fsync", path="topics.json", times=1000))
    async with open_desk(tmp_path, disk, flush_disk_type=SYNC) as desk:
        answer = await desk.send("new")
        assert (answer.code, said(answer)["queueOffset"]) == (Code.SUCCESS, "0")
        assert desk.topic_file.failing


# ── SYNC_FLUSH ──


async def test_under_sync_flush_an_answer_means_on_disk(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with open_desk(tmp_path, disk, flush_disk_type=SYNC, sync_flush_inline=False) as desk:
        desk.topic()
        gate = Gate(disk, "fdatasync", f"commitlog.{segment_name(0)}")
        assert desk.begin(send_header(), b"hello") is HELD
        desk.after_round()
        await gate.wait_for_a_call()
        await wait_all_tasks_blocked()
        assert desk.peer.answers == []
        gate.let_go()
        answer = await desk.peer.next_answer()
        assert answer.code == Code.SUCCESS
        assert desk.store.commit_log.flushed == desk.store.commit_log.max_offset


@pytest.mark.parametrize(
    ("given", "waits"),
    [(None, True), ("true", True), ("TRUE", True), ("false", False), ("no", False)],
)
@pytest.mark.parametrize("batch", [False, True])
async def test_a_producer_may_choose_not_to_wait(
    tmp_path: Path, given: str | None, waits: bool, batch: bool
) -> None:
    async with open_desk(tmp_path, flush_disk_type=SYNC) as desk:
        desk.topic()
        wanted = None if given is None else text(WAIT=given)
        header = send_header(properties=wanted, batch=batch)
        outcome = desk.begin(header, BATCH if batch else b"hello")
        *_, outcome = until_its_end(outcome) if batch else [outcome]
        assert (outcome is HELD) is waits


@pytest.mark.parametrize("topic", ["t", "new"])
async def test_a_sync_that_takes_too_long_is_told_with_the_whole_header(
    tmp_path: Path, mock_clock: MockClock, topic: str
) -> None:
    disk = FaultyDisk(tmp_path)
    async with open_desk(tmp_path, disk, flush_disk_type=SYNC, sync_flush_inline=False) as desk:
        desk.topic("t")
        desk.topic("first")
        # The thread that makes a segment syncs it as well: the first one must be there by now,
        # and the gate is for that one by its number.
        assert (await desk.send("first")).code == Code.SUCCESS
        gate = Gate(disk, "fdatasync", f"commitlog.{segment_name(0)}")
        answers: list[Any] = []

        async def send() -> None:
            answers.append(await desk.send(topic))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await gate.wait_for_a_call()
            while topic == "new" and not desk.topic_file.clean:
                await trio.lowlevel.checkpoint()
            await wait_all_tasks_blocked()
            mock_clock.jump(4.9)
            await wait_all_tasks_blocked()
            assert answers == []
            mock_clock.jump(0.3)
            while not answers:
                await trio.lowlevel.checkpoint()
            gate.let_go()
        answer = answers[0]
        assert answer.code == Code.FLUSH_DISK_TIMEOUT
        assert said(answer).keys() >= {"msgId", "queueId", "queueOffset", *REGION}
        assert desk.stats.topic_in(topic).messages_in == 1, "it is stored"


async def test_a_failed_sync_is_told_and_the_next_message_is_refused(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with open_desk(tmp_path, disk, flush_disk_type=SYNC) as desk:
        desk.topic()
        assert (await desk.send()).code == Code.SUCCESS
        # The first segment by its number: the thread that makes the second one syncs as well.
        disk.faults.append(Fault(name="fdatasync", path="0" * 20, error=errno.EIO))
        answer = await desk.send()
        assert answer.code == Code.FLUSH_DISK_TIMEOUT
        assert said(answer)["queueOffset"] == "1"
        refused = await desk.send()
        assert refused.code == Code.SERVICE_NOT_AVAILABLE
        assert "sync" in str(refused.remark)


async def test_a_retry_topic_of_a_known_group_is_made_with_one_queue(tmp_path: Path) -> None:
    async with open_desk(
        tmp_path, auto_create_topic_enable=False, auto_create_subscription_group=False
    ) as desk:
        desk.groups.update(SubscriptionGroupConfig(group_name="g"), 0)
        assert (await desk.send("%RETRY%g")).code == Code.SUCCESS
        assert desk.topics.configs["%RETRY%g"].write_queue_nums == 1


@pytest.mark.parametrize(
    "asked",
    [
        "DELAY\x013\x02",
        "TRAN_MSG\x01true\x02",
        "TIMER_DELAY_SEC\x0160\x02",
        "TIMER_DELAY_MS\x0160000\x02",
        "TIMER_DELIVER_MS\x014102444800000\x02",
    ],
)
async def test_properties_that_ask_for_delay_or_transaction_have_no_effect_within_a_batch(
    tmp_path: Path, asked: str
) -> None:
    """So a batch of messages that were committed elsewhere can be stored again."""
    async with open_desk(tmp_path) as desk:
        desk.topic("t", read_queue_nums=1, write_queue_nums=1)
        special = Sent(b"special", asked.encode())
        body = batch_body([Sent(b"plain", b"TAGS\x01a\x02"), special])
        answer = await desk.ask(send_header("t", cls=SendBatchMessage, batch=True), body)
        assert answer.code == Code.SUCCESS
        desk.store.dispatch()
        assert {name for name, _ in desk.store.queues.table} == {"t"}
        assert desk.store.max_offset("t", 0) == 2


async def test_a_long_batch_is_stored_in_steps_and_answered_as_a_short_one(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", read_queue_nums=1, write_queue_nums=1)
        for number, steps in ((10, 1), (1_500, 3), (2_500, 7)):
            body = batch_body([Sent(bytes(100), b"")] * number)
            before = desk.store.stats.messages_put
            answers = list(until_its_end(desk.begin(send_header("t", batch=True), body)))
            assert len(answers) == steps
            assert answers[-1].code == Code.SUCCESS
            assert len(answers[-1].header.msg_id.split(",")) == number
            assert desk.store.stats.messages_put == before + number


def until_its_end(steps: Any) -> Iterator[Any]:
    """What steps yield, and then what they end with."""
    yield (yield from steps)
