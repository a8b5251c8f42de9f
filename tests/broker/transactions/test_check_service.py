"""Transactions to their end: committed once, rolled back never, asked for by the clock."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from aerobee.broker.consumers.clients import Client
from aerobee.broker.core.drafts import draft_again
from aerobee.broker.transactions import check_service as half_messages
from aerobee.broker.transactions.half_messages import (
    HALF_PROPERTIES_MAX,
    Half,
    op_draft,
    op_offsets,
)
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.headers.offset import UpdateConsumerOffset
from aerobee.remoting.wire.headers.topic import DeleteTopicInBroker
from aerobee.remoting.wire.headers.transaction import EndTransaction
from aerobee.store.config import FlushDiskType
from aerobee.store.flags import Flag
from aerobee.store.format.message_id import read_offset_id
from aerobee.store.format.properties import decode, encode
from aerobee.store.format.record import MessageDraft, read
from aerobee.store.format.system_names import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from aerobee.store.results import PutResult, PutStatus
from tests.broker.desk import Caller, Desk, open_desk, said, spoil
from tests.kit.quick_disk import WornDisk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

START_MS = 1_700_000_000_000
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
STEP_S = 10.0
HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
CHECK = int(RequestCode.CHECK_TRANSACTION_STATE)
GROUP = "payments"


class Bank:
    """A desk with the services of transactions, and one producer."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.count = 0
        self.queue_id = 0
        """Of the topic, for which the halves are."""

    def producer(self, group: str = GROUP) -> Caller:
        """One more connection of a producer group."""
        peer = Caller()
        client = Client(peer, f"c{peer.id}", "JAVA", 479, 0)
        self.desk.clients.register_producer(group, client)
        return peer

    async def half(
        self, body: bytes = b"pay", *, born_ms: int | None = None, **more: str
    ) -> Answer:
        """Begin a transaction."""
        self.count += 1
        properties = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": f"K{self.count}", **more}
        return await self.desk.send(
            body=body,
            queue_id=self.queue_id,
            sys_flag=4,
            properties=encode(properties),
            born_timestamp=self.desk.now_ms() if born_ms is None else born_ms,
        )

    async def end(self, half: Answer | Any, how: int, **fields: Any) -> Answer:
        """End it, and wait for the answer."""
        return await self.desk.ask(end_of(half, how, **fields))

    async def end_oneway(self, half: Answer | Any, how: int, **fields: Any) -> None:
        """End it as a Java producer does."""
        outcome = self.desk.begin(end_of(half, how, **fields), oneway=True)
        if inspect.isawaitable(outcome):
            await outcome  # its half has to be read from disk
        self.desk.after_round()

    async def pass_s(self, seconds: float) -> None:
        """In longer steps than timers need."""
        await self.desk.pass_s(seconds, STEP_S)

    async def progress(self) -> tuple[int, int]:
        """How far the queues are done with, as the next start will read it."""
        await self.pass_s(6)
        query = self.desk.offsets.query
        return query("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0), query("CID_RMQ_SYS_TRANS", OP_TOPIC, 0)


def end_of(half: Answer | Any, how: int, **fields: Any) -> EndTransaction:
    """The end of a half, by its send answer or by the header of a check."""
    if isinstance(half, Answer):
        told = said(half)
        place = {
            "tran_state_table_offset": int(told["queueOffset"]),
            "commit_log_offset": read_offset_id(told["msgId"])[1],
            "msg_id": told["transactionId"],
        }
    else:
        place = {
            "tran_state_table_offset": half.tran_state_table_offset,
            "commit_log_offset": half.commit_log_offset,
            "msg_id": half.msg_id,
            "from_transaction_check": True,
        }
    return EndTransaction(**{"producer_group": GROUP, "commit_or_rollback": how, **place, **fields})


@asynccontextmanager
async def open_bank(root: Path, **changes: Any) -> AsyncIterator[Bank]:
    async with open_desk(root, **changes) as desk, trio.open_nursery() as nursery:
        desk.topic()
        await nursery.start(desk.half_messages.run)
        yield Bank(desk)
        nursery.cancel_scope.cancel()


def told(producer: Caller) -> list[Any]:
    """The headers of the questions that a producer was asked."""
    return [header for _, header in producer.told]


# ── a transaction ──


@pytest.mark.trio
async def test_a_half_is_nobodys_message_until_it_is_committed(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        half = await bank.half(TAGS="a")
        assert said(half)["queueId"] == "0"
        assert said(half)["transactionId"] == "K1"
        assert bank.desk.bodies() == []
        assert (await bank.end(half, COMMIT)).code == 0
        (record,) = bank.desk.records()
        assert bytes(record.body) == b"pay"
        assert record.sys_flag & 0xC == 8
        assert record.prepared_transaction_offset == read_offset_id(said(half)["msgId"])[1]
        properties = decode(record.properties)
        assert properties["__transactionId__"] == properties["UNIQ_KEY"] == "K1"
        assert properties["TRAN_MSG"] == "true"
        assert "REAL_TOPIC" not in properties
        assert "REAL_QID" not in properties


@pytest.mark.trio
async def test_the_stored_half_is_an_ordinary_record_with_its_target_in_the_properties(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        await bank.half(TAGS="a")
        (record,) = bank.desk.records(HALF_TOPIC)
        properties = decode(record.properties)
        assert record.sys_flag & 0xC == 0
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("t", "0")
        assert bank.desk.transactions.open == {"t": 1}
        assert bank.desk.stats.topic_in(HALF_TOPIC, "transaction").messages_in == 1


@pytest.mark.trio
async def test_what_is_rolled_back_is_never_seen(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_bank(tmp_path) as bank:
        half = await bank.half()
        assert (await bank.end(half, ROLLBACK)).code == 0
        assert (await bank.end(half, COMMIT)).code == 0, "the first end stands"
        await bank.pass_s(3600)
        assert (await bank.end(half, COMMIT)).code == 0
        assert bank.desk.bodies() == []
        assert bank.desk.transactions.open == {}


@pytest.mark.trio
async def test_a_second_commit_delivers_nothing(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_bank(tmp_path) as bank:
        half = await bank.half()
        for _ in range(2):
            assert (await bank.end(half, COMMIT)).code == 0
        await bank.pass_s(3600)
        assert (await bank.end(half, COMMIT)).code == 0
        assert (await bank.end(half, ROLLBACK)).code == 0
        assert bank.desk.bodies() == [b"pay"]


@pytest.mark.trio
@pytest.mark.parametrize(
    ("delay", "topic"),
    [
        ({}, "t"),
        ({"DELAY": "1"}, "SCHEDULE_TOPIC_XXXX"),
        ({"TIMER_DELAY_SEC": "1"}, "rmq_sys_wheel_timer"),
    ],
)
async def test_the_longest_half_that_is_taken_can_be_checked_and_committed(
    tmp_path: Path, mock_clock: MockClock, delay: dict[str, str], topic: str
) -> None:
    async with open_bank(tmp_path) as bank:
        producer = bank.producer()
        small = await bank.half(b"small", born_ms=None, big="x", **delay)
        (record,) = bank.desk.records(HALF_TOPIC)
        big = "x" * (HALF_PROPERTIES_MAX - len(record.properties) + 1)
        half = await bank.half(b"full", born_ms=None, big=big, **delay)
        assert len(bank.desk.records(HALF_TOPIC)[1].properties) == HALF_PROPERTIES_MAX
        refused = await bank.half(b"more", born_ms=None, big=f"{big}x", **delay)
        assert "leave room for its checks" in (refused.remark or "")
        await bank.pass_s(5 * 30 + 10)
        assert len(producer.told) == 2 * 5
        for one in (half, small):
            assert (await bank.end(one, COMMIT)).code == 0
        assert sorted(bank.desk.bodies(topic)) == [b"full", b"small"]


@pytest.mark.trio
async def test_a_half_of_a_java_broker_without_room_for_checks_is_given_up_as_it_was(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        said = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "K", "REAL_TOPIC": "t"}
        said |= {"REAL_QID": "0", "big": ""}
        said["big"] = "x" * (32_767 - len(encode(said)) - len("big__"))
        full = encode(said).encode()
        assert len(full) == 32_767
        draft = MessageDraft(
            HALF_TOPIC, 0, b"full", full, HOST, HOST, born_timestamp=bank.desk.now_ms()
        )
        assert bank.desk.puts.put_as_is(draft).status is PutStatus.PUT_OK
        bank.desk.after_round()
        await bank.pass_s(100)
        (given_up,) = bank.desk.records(GIVEN_UP_TOPIC)
        assert bytes(given_up.properties) == full
        assert bank.desk.store.stats.set_aside == {}


@pytest.mark.trio
async def test_fifteen_checks_then_the_half_is_given_up(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        producer = bank.producer()
        await bank.half()
        await bank.pass_s(15 * 30 + 10)
        assert [code for code, _ in producer.told] == [CHECK] * 15
        assert bank.desk.bodies(GIVEN_UP_TOPIC) == []
        await bank.pass_s(30)
        assert bank.desk.bodies(GIVEN_UP_TOPIC) == [b"pay"]
        await bank.pass_s(3600)
        assert len(producer.told) == 15
        assert bank.desk.bodies() == []
        counts = [Half.of(record).checks for record in bank.desk.records(HALF_TOPIC)]
        assert counts == list(range(16))
        assert bank.desk.transactions.open == {}


@pytest.mark.trio
async def test_a_commit_at_the_second_check_delivers_once(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        producer = bank.producer()
        half = await bank.half()
        await bank.pass_s(65)
        assert len(producer.told) == 2
        first, second = (header for _, header in producer.told)
        asked = read(producer.bodies[1])
        assert (asked.topic, asked.queue_id, bytes(asked.body)) == ("t", 0, b"pay")
        assert asked.physical_offset == second.commit_log_offset
        assert asked.queue_offset == second.tran_state_table_offset
        await bank.end_oneway(second, COMMIT)
        await bank.end_oneway(first, COMMIT)
        await bank.end_oneway(half, ROLLBACK)
        await bank.pass_s(3600)
        assert bank.desk.bodies() == [b"pay"]
        assert len(producer.told) == 2
        assert await bank.progress() == (3, 1)


# ── the check ──


@pytest.mark.trio
async def test_a_late_end_that_names_the_first_place_ends_the_half_wherever_it_is(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        halves = [await bank.half(body) for body in (b"a", b"b")]
        await bank.pass_s(95)
        assert len(bank.desk.records(HALF_TOPIC)) == 2 + 3 * 2
        await bank.end_oneway(halves[0], COMMIT)
        await bank.end_oneway(halves[1], ROLLBACK)
        await bank.end_oneway(halves[1], COMMIT)
        await bank.pass_s(3600)
        assert bank.desk.bodies() == [b"a"]
        assert bank.desk.bodies(GIVEN_UP_TOPIC) == []
        assert [op_offsets(record.body) for record in bank.desk.records(OP_TOPIC)] == [[6], [7]]
        assert await bank.progress() == (8, 2)


@pytest.mark.trio
async def test_a_half_that_was_given_up_can_still_be_committed_once(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path, transaction_check_max=1) as bank:
        half = await bank.half()
        await bank.pass_s(100)
        assert bank.desk.bodies(GIVEN_UP_TOPIC) == [b"pay"]
        for _ in range(2):
            assert (await bank.end(half, COMMIT)).code == 0
        assert bank.desk.bodies() == [b"pay"]


@pytest.mark.trio
async def test_a_half_that_was_given_up_behind_an_open_one_can_still_be_committed_once(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        await bank.half(b"open", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
        half = await bank.half(b"late", born_ms=START_MS - 400 * 86_400_000)
        await bank.pass_s(100)
        assert bank.desk.bodies(GIVEN_UP_TOPIC) == [b"late"]
        for _ in range(2):
            assert (await bank.end(half, COMMIT)).code == 0
        assert bank.desk.bodies() == [b"late"]


@pytest.mark.trio
async def test_no_client_moves_the_offsets_of_the_service(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        await bank.half()
        await bank.pass_s(1)
        commit = UpdateConsumerOffset("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0, 1)
        assert (await bank.desk.ask(commit)).code != 0
        assert max(await bank.progress()) <= 0, "a start from there would forget the half"


@pytest.mark.trio
async def test_a_young_half_and_those_behind_it_are_left_alone(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        await bank.half(b"old")
        await bank.pass_s(25)
        await bank.half(b"young")
        await bank.pass_s(5.5)
        assert bank.desk.bodies(HALF_TOPIC) == [b"old", b"young", b"old"]
        assert await bank.progress() == (1, 0)


@pytest.mark.trio
async def test_a_producer_whose_clock_is_ahead_is_asked_at_the_next_round(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        producer = bank.producer()
        await bank.pass_s(29)
        await bank.half(born_ms=bank.desk.now_ms() + 3_600_000)
        await bank.pass_s(1.5)
        assert len(producer.told) == 1


@pytest.mark.trio
async def test_an_immune_half_waits_where_it_is_and_those_behind_it_are_asked_for(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path, transaction_check_max=3) as bank:
        producer = bank.producer()
        half = await bank.half(CHECK_IMMUNITY_TIME_IN_SECONDS="200")
        behind = await bank.half(b"behind")
        await bank.pass_s(35)
        assert [header.tran_state_table_offset for header in told(producer)] == [2]
        assert (await bank.end(behind, COMMIT)).code == 0
        await bank.pass_s(160)
        assert len(producer.told) == 1
        assert bank.desk.bodies(HALF_TOPIC) == [b"pay", b"behind", b"behind"]
        assert max(await bank.progress()) <= 0
        await bank.pass_s(20)
        assert len(producer.told) == 2
        assert (await bank.end(half, COMMIT, from_transaction_check=True)).code == 0
        await bank.pass_s(600)
        assert bank.desk.bodies() == [b"behind", b"pay"]
        assert bank.desk.bodies(GIVEN_UP_TOPIC) == []


@pytest.mark.trio
async def test_what_happened_behind_an_immune_half_is_known_after_a_start(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path, transaction_check_max=1) as bank:
        half = await bank.half(CHECK_IMMUNITY_TIME_IN_SECONDS="100000")
        await bank.half(b"given up")
        ended = await bank.half(b"ended")
        await bank.pass_s(31)
        assert (await bank.end(ended, COMMIT)).code == 0
        await bank.pass_s(60)
        assert bank.desk.bodies(GIVEN_UP_TOPIC) == [b"given up"]
        assert max(await bank.progress()) <= 0
    async with open_bank(tmp_path, transaction_check_max=1) as bank:
        assert bank.desk.transactions.open["t"] == 1
        await bank.pass_s(120)
        assert bank.desk.bodies(GIVEN_UP_TOPIC) == [b"given up"]
        assert (await bank.end(half, COMMIT)).code == 0
        assert bank.desk.bodies() == [b"ended", b"pay"]
        assert (await bank.progress())[0] == bank.desk.store.max_offset(HALF_TOPIC, 0)


@pytest.mark.trio
async def test_too_much_behind_an_immune_half_moves_it_to_the_end(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_messages, "HELD_BACK_MAX", 3)
    async with open_bank(tmp_path) as bank:
        half = await bank.half(CHECK_IMMUNITY_TIME_IN_SECONDS="100000")
        for number in range(5):
            await bank.end(await bank.half(b"%d" % number), ROLLBACK)
        await bank.pass_s(31)
        assert Half.of(bank.desk.records(HALF_TOPIC)[-1]).first_offset == 0
        assert (await bank.progress())[0] == 6
        await bank.pass_s(300)
        assert len(bank.desk.records(HALF_TOPIC)) == 7, (
            "it is stored again for others, not by the clock"
        )
        assert (await bank.end(half, COMMIT)).code == 0
        assert bank.desk.bodies() == [b"pay"]


@pytest.mark.trio
async def test_the_producers_of_a_group_are_asked_in_turn_and_never_one_that_does_not_read(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        first, second, deaf = (bank.producer() for _ in range(3))
        stranger = bank.producer("another-group")
        deaf.paused = True
        for number in range(8):
            await bank.half(str(number).encode())
        await bank.pass_s(31)
        assert len(first.told) + len(second.told) == 8
        assert min(len(first.told), len(second.told)) >= 2
        assert deaf.told == stranger.told == []


@pytest.mark.trio
async def test_without_a_producer_the_half_still_goes_round_and_is_given_up(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path, transaction_check_max=2) as bank:
        await bank.half()
        await bank.pass_s(91)
        assert bank.desk.bodies(GIVEN_UP_TOPIC) == [b"pay"]
        assert await bank.progress() == (3, 0)


@pytest.mark.trio
async def test_many_halves_are_asked_for_in_slices_and_in_one_round(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        producer = bank.producer()
        for number in range(300):
            await bank.half(str(number).encode())
        await bank.pass_s(31)
        assert len(producer.told) == 300
        assert await bank.progress() == (300, 0)


@pytest.mark.trio
async def test_while_the_store_takes_nothing_a_half_stays_where_it_is(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        producer = bank.producer()
        await bank.half()
        flags = bank.desk.store.flags
        flags.set(Flag.DISK_FULL, "the disk is full")
        await bank.pass_s(65)
        assert producer.told == []
        flags.clear(Flag.DISK_FULL)
        await bank.pass_s(30)
        assert len(producer.told) == 1


# ── the next start ──


@pytest.mark.trio
async def test_the_next_start_knows_what_is_open_and_what_has_ended(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path, transaction_check_max=2) as bank:
        halves = [await bank.half(body) for body in (b"a", b"b", b"c", b"d")]
        await bank.end(halves[1], COMMIT)
        await bank.end(halves[2], ROLLBACK)
        await bank.pass_s(31)
        await bank.end(halves[3], ROLLBACK)
        await bank.desk.saver.save_all()
    async with open_bank(tmp_path, transaction_check_max=2) as bank:
        assert bank.desk.transactions.open == {"t": 1}
        for half in halves[1:]:
            assert (await bank.end(half, COMMIT)).code == 0
        assert bank.desk.bodies() == [b"b"], "ended is ended"
        assert (await bank.end(halves[0], COMMIT)).code == 0
        assert bank.desk.bodies() == [b"b", b"a"]
        given_up = await bank.half(b"e")
        await bank.pass_s(130)
        assert bank.desk.bodies(GIVEN_UP_TOPIC) == [b"e"]
        await bank.desk.saver.save_all()
    async with open_bank(tmp_path) as bank:
        assert (await bank.end(given_up, COMMIT)).code == 0
        assert bank.desk.bodies() == [b"b", b"a", b"e"]


@pytest.mark.trio
async def test_a_damaged_half_is_passed_over_and_the_start_knows_the_others(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        halves = [await bank.half(body) for body in (b"a", b"b", b"c")]
        await bank.desk.saver.save_all()
    place = read_offset_id(said(halves[1])["msgId"])[1]
    [segment] = (tmp_path / "commitlog").glob("0*")
    with segment.open("r+b") as file:
        file.seek(place + 4)
        file.write(b"gone")
    async with open_bank(tmp_path) as bank:
        assert bank.desk.transactions.open == {"t": 2}
        assert (await bank.end(halves[1], COMMIT)).code == 1
        assert (await bank.end(halves[2], COMMIT)).code == 0
        assert bank.desk.bodies() == [b"c"]


@pytest.mark.trio
async def test_a_half_whose_body_the_disk_altered_is_neither_committed_nor_asked_about(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        producer = bank.producer()
        half = await bank.half(b"spoilt")
        spoil(tmp_path, b"spoilt")
        answer = await bank.end(half, COMMIT)
        assert (answer.code, answer.remark) == (1, "the body at 0 is not the one that was stored")
        await bank.pass_s(35)
        assert (told(producer), bank.desk.bodies()) == ([], [])
        assert bank.desk.store.stats.set_aside == {"transactions": 1}
        assert bank.desk.transactions.open == {}


@pytest.mark.trio
async def test_a_half_that_the_disk_cannot_read_stays_open_and_holds_up_no_other(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = WornDisk()
    async with open_bank(tmp_path, disk=disk) as bank:
        halves = [await bank.half(body) for body in (b"a", b"worn", b"c")]
        await bank.end(halves[0], COMMIT)
        await bank.desk.saver.save_all()
    # A start reads the end of the log, whatever it is.
    async with open_desk(tmp_path, disk) as desk, trio.open_nursery() as nursery:
        disk.bad = b"worn"
        await nursery.start(desk.half_messages.run)
        bank = Bank(desk)
        assert desk.transactions.open == {"t": 1}
        producer = bank.producer()
        await bank.pass_s(35)
        assert [header.msg_id for header in told(producer)] == ["K3"]
        assert (await bank.end(told(producer)[0], COMMIT)).code == 0
        assert desk.store.stats.unreadable == {"transactions": 1}
        assert (await bank.progress())[0] == 1, "those behind it are not forgotten"
        disk.bad = b""
        await bank.pass_s(30)
        assert [header.msg_id for header in told(producer)] == ["K3", "K2"]
        assert (await bank.end(told(producer)[1], COMMIT)).code == 0
        assert bank.desk.bodies() == [b"a", b"c", b"worn"]
        assert desk.transactions.open == {}
        assert (await bank.progress())[0] == desk.store.max_offset(HALF_TOPIC, 0)
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_too_much_behind_a_half_that_the_disk_cannot_read_sets_it_aside(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_messages, "HELD_BACK_MAX", 3)
    disk = WornDisk()
    async with open_bank(tmp_path, disk=disk) as bank:
        await bank.half(b"worn")
        for number in range(5):
            await bank.end(await bank.half(b"%d" % number), ROLLBACK)
    async with open_desk(tmp_path, disk) as desk, trio.open_nursery() as nursery:
        disk.bad = b"worn"
        await nursery.start(desk.half_messages.run)
        bank = Bank(desk)
        await bank.pass_s(35)
        assert desk.store.stats.set_aside == {"transactions": 1}
        assert (await bank.progress())[0] == 6
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("bodies", [(b"0", b"2"), (b"0,2,",), (b"2,", b"0,0")], ids=str)
@pytest.mark.trio
async def test_op_records_of_every_broker_end_their_halves(
    tmp_path: Path, mock_clock: MockClock, bodies: tuple[bytes, ...]
) -> None:
    async with open_bank(tmp_path) as bank:
        for body in (b"a", b"b", b"c"):
            await bank.half(body)
        for body in bodies:
            draft = op_draft(0, HOST, bank.desk.now_ms())
            draft.body = body
            bank.desk.puts.put_as_is(draft)
        bank.desk.puts.finish_round()
    async with open_bank(tmp_path) as bank:
        producer = bank.producer()
        assert bank.desk.transactions.open == {"t": 1}
        await bank.pass_s(31)
        assert [read(body).body for body in producer.bodies] == [b"b"]
        assert await bank.progress() == (3, len(bodies))


@pytest.mark.trio
async def test_java_names_an_immune_half_by_its_first_place(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        await bank.half(b"other")
        await bank.half(CHECK_IMMUNITY_TIME_IN_SECONDS="500")
        await bank.pass_s(31)
        [_, immune, _] = bank.desk.records(HALF_TOPIC)
        moved = draft_again(
            immune, HALF_TOPIC, 0, immune.properties + b"TRAN_PREPARED_QUEUE_OFFSET\x011\x02"
        )
        bank.desk.puts.put_as_is(moved)
        bank.desk.puts.put_as_is(op_draft(1, HOST, bank.desk.now_ms()))
        bank.desk.puts.finish_round()
    async with open_bank(tmp_path) as bank:
        assert bank.desk.transactions.open == {"t": 1}


@pytest.mark.trio
async def test_a_delay_begins_with_the_commit_and_an_illegal_one_is_refused_with_the_half(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        half = await bank.half(DELAY="3")
        assert len(bank.desk.records(HALF_TOPIC)) == 1
        assert (await bank.end(half, COMMIT)).code == 0
        assert bank.desk.bodies() == []
        store = bank.desk.store
        assert store.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 1
        refused = await bank.half(DELAY="soon")
        assert refused.code == 1
        assert len(bank.desk.records(HALF_TOPIC)) == 1


# ── halves that cannot go on ──


@pytest.mark.trio
async def test_a_half_that_no_frame_can_carry_is_given_up_and_those_behind_it_are_asked_for(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_messages, "MAX_FRAME_BYTES", half_messages.QUESTION_BYTES + 2_000)
    async with open_bank(tmp_path) as bank:
        producer = bank.producer()
        big = await bank.half(bytes(3_000))
        await bank.half(b"small")
        await bank.pass_s(31)
        assert bank.desk.bodies(GIVEN_UP_TOPIC) == [bytes(3_000)]
        assert [header.tran_state_table_offset for header in told(producer)] == [2]
        assert bank.desk.store.stats.set_aside == {"transactions": 1}
        assert (await bank.end(big, COMMIT)).code == 0
        assert bank.desk.bodies() == [bytes(3_000)], "a late commit is still taken"


@pytest.mark.trio
async def test_a_half_whose_topic_was_deleted_is_given_up_and_nobody_is_asked(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        producer = bank.producer()
        await bank.half()
        assert (await bank.desk.ask(DeleteTopicInBroker(topic="t"))).code == 0
        await bank.pass_s(31)
        assert bank.desk.bodies(GIVEN_UP_TOPIC) == [b"pay"]
        assert told(producer) == []
        assert bank.desk.store.stats.set_aside == {"transactions": 1}
        assert bank.desk.store.queues.find("t", 0) is None


@pytest.mark.trio
async def test_a_half_that_no_segment_takes_any_more_stops_no_round(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_bank(tmp_path) as bank:
        producer = bank.producer()
        await bank.half(bytes(3_000))
        await bank.half(b"small")
        put = bank.desk.puts.put_again

        def put_if_small(draft: MessageDraft) -> PutResult:
            if len(draft.body) > 2_000:
                return PutResult(PutStatus.MESSAGE_ILLEGAL)
            return put(draft)

        monkeypatch.setattr(bank.desk.puts, "put_again", put_if_small)
        await bank.pass_s(31)
        assert len(producer.told) == 1
        assert bank.desk.store.stats.set_aside == {"transactions": 1}
        assert (await bank.progress())[0] == 2


@pytest.mark.trio
async def test_properties_that_leave_no_room_for_checks_are_refused_with_the_half(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        assert (await bank.half(FILLER="x" * 32_400)).code == 13
        half = await bank.half(FILLER="x" * 32_000, DELAY="1")
        await bank.pass_s(31)
        assert len(bank.desk.records(HALF_TOPIC)) == 2
        assert (await bank.end(half, COMMIT)).code == 0


@pytest.mark.trio
async def test_no_producer_claims_what_only_checks_say_of_a_half(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        await bank.half(TRANSACTION_CHECK_TIMES="15", TRAN_PREPARED_QUEUE_OFFSET="0")
        [half] = [Half.of(one) for one in bank.desk.records(HALF_TOPIC)]
        assert (half.was_moved, half.checks) == (False, 0)


@pytest.mark.trio
async def test_the_half_of_another_connection_is_never_taken_for_ones_own(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path) as bank:
        born_ms = bank.desk.now_ms()
        victim = await bank.half(b"victim", born_ms=born_ms, UNIQ_KEY="SAME")
        await bank.pass_s(31)
        bank.desk.peer = Caller("127.0.0.1:50001")
        twin = await bank.half(b"twin", born_ms=born_ms, UNIQ_KEY="SAME")
        assert (await bank.end(twin, ROLLBACK)).code == 0
        assert (await bank.end(victim, COMMIT)).code == 0
        assert bank.desk.bodies() == [b"victim"]


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("how", ["old", "checked"])
@pytest.mark.trio
async def test_the_late_end_of_a_half_that_was_given_up_stands_after_a_start(
    tmp_path: Path, mock_clock: MockClock, first: int, how: str
) -> None:
    born_ms = START_MS - 400 * 86_400_000 if how == "old" else None
    async with open_bank(tmp_path, transaction_check_max=1) as bank:
        half = await bank.half(born_ms=born_ms)
        await bank.pass_s(100)
        assert bank.desk.bodies(GIVEN_UP_TOPIC) == [b"pay"]
        assert (await bank.end(half, first)).code == 0
    for _ in range(2):
        async with open_bank(tmp_path, transaction_check_max=1) as bank:
            assert (await bank.end(half, COMMIT)).code == 0
            assert bank.desk.bodies() == [b"pay"] * (first == COMMIT)


@pytest.mark.parametrize("starts", [0, 1])
@pytest.mark.parametrize("born_ago_ms", [0, 400 * 86_400_000], ids=["asked for", "given up"])
@pytest.mark.trio
async def test_halves_that_say_the_same_of_themselves_have_an_end_each(
    tmp_path: Path, mock_clock: MockClock, starts: int, born_ago_ms: int
) -> None:
    born_ms = START_MS - born_ago_ms
    async with open_bank(tmp_path) as bank:
        halves = [await bank.half(b"%d" % i, born_ms=born_ms, UNIQ_KEY="SAME") for i in range(5)]
        await bank.pass_s(65)
        if starts:
            await bank.desk.saver.save_all()
        else:
            await commit_all_twice(bank, halves)
    async with open_bank(tmp_path) as bank:
        await commit_all_twice(bank, halves)
        assert bank.desk.transactions.open.get("t", 0) == 0


async def commit_all_twice(bank: Bank, halves: list[Answer]) -> None:
    for half in halves * 2:
        assert (await bank.end(half, COMMIT)).code == 0
    assert bank.desk.bodies() == [b"%d" % i for i in range(5)]


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.trio
async def test_halves_that_java_has_put_again_are_found_by_what_they_say_of_themselves(
    tmp_path: Path, mock_clock: MockClock, repeated: bool
) -> None:
    """Java's copies do not name their first place. After a kill both are read."""
    keys = ["SAME"] * 3 if repeated else ["A", "B", "C"]
    async with open_bank(tmp_path) as bank:
        halves = [await bank.half(key.encode(), born_ms=START_MS, UNIQ_KEY=key) for key in keys]
        for record in bank.desk.records(HALF_TOPIC)[:2]:
            java = record.properties + b"TRANSACTION_CHECK_TIMES\x011\x02"
            bank.desk.puts.put_as_is(draft_again(record, HALF_TOPIC, 0, java))
        bank.desk.puts.finish_round()
    async with open_bank(tmp_path) as bank:
        assert bank.desk.transactions.open == {"t": 3}
        if not repeated:
            for half in halves * 2:
                assert (await bank.end(half, COMMIT)).code == 0
        else:
            producer = bank.producer()
            await bank.pass_s(31)
            for header in told(producer) * 2:
                assert (await bank.end(header, COMMIT)).code == 0
        assert sorted(bank.desk.bodies()) == [key.encode() for key in keys]
        assert bank.desk.transactions.open == {}


@pytest.mark.trio
async def test_a_producer_is_asked_about_a_copy_once_that_is_kept(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bank(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH) as bank:
        log = bank.desk.store.commit_log

        class Quick(Caller):
            def notify(self, code: int, header: Any, body: bytes = b"") -> None:
                # It may answer at once, and its end is refused as long as nobody sees the copy.
                assert log.flushed > header.commit_log_offset
                super().notify(code, header, body)

        producer = Quick()
        bank.desk.clients.register_producer(GROUP, Client(producer, "c", "JAVA", 479, 0))
        await bank.half()
        await bank.pass_s(65)
        assert len(producer.told) == 2
