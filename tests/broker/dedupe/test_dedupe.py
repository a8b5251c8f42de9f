"""Topics where a message that comes twice is stored once."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from aerobee.broker.config.settings.dedupe import parse
from aerobee.broker.dedupe import dedupe
from aerobee.broker.dedupe.dedupe import Dedupe
from aerobee.remoting.server.routes import HELD
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.send import SendBatchMessage, SendMessage, SendMessageV2
from aerobee.remoting.wire.headers.topic import DeleteTopicInBroker
from aerobee.store.clock import monotonic_ms
from aerobee.store.config import FlushDiskType
from aerobee.store.results import PutStatus
from tests.broker.desk import Desk, body_of, open_desk, said, send_header
from tests.kit.cold_disk import ColdDisk
from tests.kit.records import bodies_of
from tests.kit.running_store import TrioClock
from tests.kit.store_model import Sent, batch_body, draft

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.remoting.wire.answer import Answer

pytestmark = pytest.mark.trio

RULES = "t=UNIQ_KEY@60s;orders=KEYS@60s"
WINDOW_S = 60
PLACE = ("msgId", "queueId", "queueOffset")


def text(**properties: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def open_dedupe(root: Path, **changes: Any) -> Any:
    return open_desk(root, **{"dedupe": RULES, **changes})


async def begun(desk: Desk) -> None:
    """Windows read; topics there."""
    await desk.dedupe.run()
    for topic in ("t", "orders", "free"):
        desk.topic(topic, read_queue_nums=4, write_queue_nums=4)


async def send(desk: Desk, key: str, topic: str = "t", **fields: Any) -> Answer:
    name = {"t": "UNIQ_KEY"}.get(topic, "KEYS")
    return await desk.send(topic, properties=text(**{name: key}), **fields)


def place(answer: Answer) -> list[str]:
    assert answer.code == Code.SUCCESS, answer
    fields = said(answer)
    return [fields[name] for name in PLACE]


async def messages(desk: Desk, topic: str = "t", queue_id: int = 0) -> list[bytes]:
    return bodies_of([body_of(await desk.pull(topic, queue_id=queue_id))])


@pytest.mark.parametrize("cls", [SendMessage, SendMessageV2])
async def test_a_repeated_send_hears_where_the_first_lies(tmp_path: Path, cls: type[Any]) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        first = await send(desk, "k", cls=cls)
        again = await send(desk, "k", cls=cls, queue_id=3)
        other = await send(desk, "l", cls=cls)
        assert place(again) == place(first)
        assert said(again)["transactionId"] == "k"
        assert place(other) != place(first)
        assert len(await messages(desk)) == 2
        assert desk.dedupe.repeats == {"t": 1, "orders": 0}


async def test_what_a_client_says_of_the_queue_in_a_property_is_not_believed(
    tmp_path: Path,
) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        properties = text(UNIQ_KEY="k", REAL_QID="2147483646")
        first = await desk.send("t", properties=properties)
        again = await desk.send("t", properties=properties)
        assert place(again) == place(first)


async def test_each_topic_compares_its_own_property(tmp_path: Path) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        first = await send(desk, "4711", "orders", body=b"one")
        again = await send(desk, "4711", "orders", body=b"two")
        assert place(again) == place(first)
        assert await messages(desk, "orders") == [b"one"]


async def test_other_topics_and_messages_without_the_property_are_stored_as_ever(
    tmp_path: Path,
) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        for _ in range(2):
            await send(desk, "k", "free")
            await desk.send("orders")
        assert len(await messages(desk, "free")) == 2
        assert len(await messages(desk, "orders")) == 2


async def test_behind_the_window_a_message_is_new(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        first = await send(desk, "k")
        await trio.sleep(WINDOW_S - 1)
        assert place(await send(desk, "k")) == place(first)
        await trio.sleep(2)
        second = await send(desk, "k")
        assert place(second) != place(first)
        assert place(await send(desk, "k")) == place(second)


async def test_a_refused_send_was_no_first_one(tmp_path: Path) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        refused = await send(desk, "k", queue_id=99)
        assert refused.code == Code.INVALID_PARAMETER
        assert (await send(desk, "k")).code == Code.SUCCESS
        assert len(await messages(desk)) == 1


async def test_a_one_way_repetition_is_dropped_in_silence(tmp_path: Path) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        for _ in range(2):
            header = send_header("t", properties=text(UNIQ_KEY="k"))
            assert desk.begin(header, b"x", oneway=True) is None
        desk.after_round()
        assert len(await messages(desk)) == 1


async def test_the_first_may_lie_behind_a_roll_of_the_log(tmp_path: Path) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        places = [place(await send(desk, str(n), body=b"x" * 100_000)) for n in range(25)]
        assert desk.store.commit_log.max_offset > 1 << 21
        assert [place(await send(desk, str(n))) for n in range(25)] == places


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_where_nothing_can_be_read_without_waiting_a_send_is_stored_once(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    disk = ColdDisk(cold=False)
    changes: dict[str, Any] = {"access_message_in_memory_max_ratio_percent": 0}
    async with open_dedupe(tmp_path, disk=disk, flush_disk_type=flush, **changes) as desk:
        await begun(desk)
        disk.cold = True
        first = place(await send(desk, "k"))
        assert place(await send(desk, "k")) == first
        ids = place(await send_batch(desk, "a", "k", "a"))[0].split(",")
        assert ids == [ids[0], first[0], ids[0]]
        assert desk.store.stats.cold_reads == 0
        disk.cold = False
        assert await messages(desk) == [b"hello", b"a"]


async def test_a_repetition_is_not_acknowledged_before_the_first_is_durable(
    tmp_path: Path,
) -> None:
    async with open_dedupe(
        tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH, sync_flush_timeout_ms=5_000
    ) as desk:
        await begun(desk)
        header = send_header("t", properties=text(UNIQ_KEY="k"))
        assert desk.begin(header, b"x") is HELD
        assert desk.begin(header, b"x") is HELD
        assert desk.peer.answers == []
        desk.after_round()
        first, again = await desk.peer.next_answer(), await desk.peer.next_answer()
        assert place(again) == place(first)


# ── batches ──


def batch(*keys: str) -> bytes:
    return batch_body([Sent(key.encode(), text(UNIQ_KEY=key).encode()) for key in keys])


async def send_batch(desk: Desk, *keys: str, **fields: Any) -> Answer:
    return await desk.ask(send_header("t", SendBatchMessage, **fields), batch(*keys))


async def test_a_repeated_batch_is_stored_once(tmp_path: Path) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        first = await send_batch(desk, "a", "b", "c")
        again = await send_batch(desk, "a", "b", "c", queue_id=2)
        assert place(again) == place(first)
        assert await messages(desk) == [b"a", b"b", b"c"]


async def test_a_batch_with_one_key_twice_is_stored_once_and_may_be_repeated(
    tmp_path: Path,
) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        ids = place(await send_batch(desk, "a", "a"))[0].split(",")
        assert ids[0] == ids[1]
        assert place(await send_batch(desk, "a", "a"))[0].split(",") == ids
        longer = place(await send_batch(desk, "a", "a", "b"))[0].split(",")
        assert longer[:2] == ids
        assert await messages(desk) == [b"a", b"b"]
        assert desk.dedupe.repeats["t"] == 1 + 2 + 2


async def test_a_repetition_counts_as_no_message_of_its_topic(tmp_path: Path) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        for _ in range(3):
            await send(desk, "k")
            await send_batch(desk, "k", "l")
        assert desk.stats.topic_in("t").messages_in == 2
        assert desk.store.stats.messages_put == 2


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_of_a_batch_only_the_new_ones_are_stored_and_ids_keep_their_order(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    async with open_dedupe(tmp_path, flush_disk_type=flush) as desk:
        await begun(desk)
        b = place(await send(desk, "b", body=b"b"))[0]
        answer = await send_batch(desk, "a", "b", "c", "a")
        ids = place(answer)[0].split(",")
        assert ids[1] == b
        assert ids[3] == ids[0]
        assert len(set(ids)) == 3
        assert await messages(desk) == [b"b", b"a", b"c"]
        assert place(await send(desk, "c"))[0] == ids[2]


async def test_a_batch_of_more_than_can_be_looked_up_at_once_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedupe, "ITEMS_MAX", 3)
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        assert (await send_batch(desk, "a", "b", "c")).code == 0
        refused = await send_batch(desk, "d", "e", "f", "g")
        assert (refused.code, "has 3 messages at most" in str(refused.remark)) == (13, True)
        assert (await send_batch(desk, "d")).code == 0


async def test_a_broken_batch_is_refused_as_ever(tmp_path: Path) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        answer = await desk.ask(send_header("t", SendBatchMessage), batch("a")[:-1])
        assert answer.code == Code.MESSAGE_ILLEGAL
        assert desk.store.commit_log.max_offset == 0


# ── restarts ──


async def test_until_the_window_is_read_a_send_is_asked_to_come_again(tmp_path: Path) -> None:
    async with open_dedupe(tmp_path) as desk:
        desk.topic("t")
        desk.topic("free")
        refused = await send(desk, "k")
        assert refused.code == Code.SYSTEM_BUSY
        assert "send it again" in (refused.remark or "")
        assert (await desk.send("free")).code == Code.SUCCESS


async def test_a_restart_knows_what_the_window_holds(tmp_path: Path) -> None:
    clock = TrioClock()
    async with open_dedupe(tmp_path, clock=clock) as desk:
        await begun(desk)
        places = [place(await send(desk, str(n), queue_id=n % 4)) for n in range(100)]
        await desk.saver.save_all()
    async with open_dedupe(tmp_path, clock=clock) as desk:
        await begun(desk)
        assert [place(await send(desk, str(n))) for n in range(100)] == places
        assert desk.dedupe.repeats["t"] == 100


async def test_a_restart_does_not_read_what_the_window_has_left(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        await send(desk, "old")
        await trio.sleep(2 * WINDOW_S)
        await send(desk, "new")
        restarted = Dedupe(
            parse(RULES),
            max_entries=1_000,
            store=desk.store,
            clock=desk.clock,
            repeated={},
        )
        await restarted.run()
        assert restarted.table.count == 1


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
async def test_a_clock_that_was_set_makes_nothing_a_repetition(
    tmp_path: Path, jump_ms: int, autojump_clock: trio.testing.MockClock
) -> None:
    clock = TrioClock()
    async with open_dedupe(tmp_path, clock=clock) as desk:
        await begun(desk)
        await send(desk, "a")
        clock.start_ms += jump_ms
        first = place(await send(desk, "k"))
        clock.start_ms -= jump_ms
        assert place(await send(desk, "k")) == first
        await trio.sleep(WINDOW_S + 1)
        assert place(await send(desk, "k")) != first
        assert place(await send(desk, "a"))[2] == "3"
        assert len(await messages(desk)) == 4


async def test_what_a_clock_ahead_has_stamped_is_new_after_a_restart(tmp_path: Path) -> None:
    clock = TrioClock()
    async with open_dedupe(tmp_path, clock=clock) as desk:
        await begun(desk)
        clock.start_ms += 3_600_000
        first = place(await send(desk, "k"))
        clock.start_ms -= 3_600_000
        await desk.saver.save_all()
    async with open_dedupe(tmp_path, clock=clock) as desk:
        await begun(desk)
        again = place(await send(desk, "k"))
        assert again != first
        assert place(await send(desk, "k")) == again
        assert len(await messages(desk)) == 2


# ── what a consumer cannot get ──


async def test_a_topic_that_was_deleted_and_made_anew_knows_nothing_of_the_old_one(
    tmp_path: Path,
) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        for key in "abc":
            await send(desk, key)
        assert (await desk.ask(DeleteTopicInBroker(topic="t"))).code == 0
        refused = await send(desk, "a", default_topic="none")
        assert refused.code == Code.TOPIC_NOT_EXIST
        desk.topic("t", read_queue_nums=4, write_queue_nums=4)
        for key in "cab":
            await send(desk, key, body=key.encode())
        assert await messages(desk) == [b"c", b"a", b"b"]
        assert desk.dedupe.repeats["t"] == 0
        place_of_b = place(await send(desk, "b"))
        assert place_of_b[2] == "2"


async def test_a_first_that_was_deleted_with_its_segment_is_sent_anew(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    changes: dict[str, Any] = {"dedupe": "t=UNIQ_KEY@24h", "file_reserved_time_h": 1}
    clock = TrioClock(int(time.time() * 1_000))
    async with open_dedupe(tmp_path, clock=clock, **changes) as desk:
        await begun(desk)
        first = place(await send(desk, "k"))
        for number in range(12):
            await send(desk, str(number), body=bytes(100_000))
        await desk.puts.durable()
        autojump_clock.jump(3 * 3_600)
        cleanup = desk.store.space.cleanup
        cleanup.request()
        await cleanup.look()
        await cleanup.clean()
        assert desk.store.commit_log.min_offset > 0
        last = place(await send(desk, "11"))
        assert (last[2], desk.dedupe.repeats["t"]) == ("12", 1)
        again = place(await send(desk, "k"))
        assert again != first
        assert place(await send(desk, "k")) == again


async def test_a_first_in_a_queue_that_nobody_reads_any_more_is_sent_anew(tmp_path: Path) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        first = place(await send(desk, "k", queue_id=3))
        assert place(await send(desk, "k")) == first
        desk.topic("t", read_queue_nums=2, write_queue_nums=2)
        again = place(await send(desk, "k"))
        assert again[1:] == ["0", "0"]
        assert place(await send(desk, "k", queue_id=1)) == again


WAITS = (
    {"DELAY": "1"},
    {"TIMER_DELAY_SEC": "1"},
    {"TRAN_MSG": "true", "PGROUP": "p"},
)


@pytest.mark.parametrize("waits", WAITS)
async def test_what_waits_elsewhere_is_no_first_message(
    tmp_path: Path, waits: dict[str, str]
) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        for _ in range(2):
            waiting = await desk.send("t", properties=text(UNIQ_KEY="k", **waits))
            assert waiting.code == Code.SUCCESS
        first = place(await send(desk, "k"))
        assert place(await send(desk, "k")) == first
        assert len(await messages(desk)) == 1
        assert desk.dedupe.repeats["t"] == 1


ARRIVED = (
    {"REAL_TOPIC": "t", "REAL_QID": "0", "DELAY": "1"},
    {"REAL_TOPIC": "t", "REAL_QID": "0", "TIMER_OUT_MS": "1"},
    {"TRAN_MSG": "true", "PGROUP": "p"},
)


@pytest.mark.parametrize("had", ARRIVED)
async def test_what_waited_elsewhere_is_no_first_message_after_a_restart_either(
    tmp_path: Path, had: dict[str, str]
) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        first = place(await send(desk, "k", queue_id=1))
        copy = draft("t", 0, b"copy", text(UNIQ_KEY="k", **had).encode())
        assert desk.puts.put_again(copy).status is PutStatus.PUT_OK
        desk.after_round()
        again = Dedupe(
            parse(RULES), max_entries=100, store=desk.store, clock=desk.clock, repeated={}
        )
        await again.run()
        assert again.table.count == 1
        found = again.table.topics["t"].find("k", monotonic_ms(desk.clock))
        assert found is not None
        assert [str(found.queue_id), str(found.queue_offset)] == first[1:]


async def test_a_queue_that_cannot_be_read_again_ends_neither_the_others_nor_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_dedupe(tmp_path) as desk:
        await begun(desk)
        for topic in ("t", "orders"):
            await send(desk, "A", topic)
        again = Dedupe(
            parse(RULES), max_entries=100, store=desk.store, clock=desk.clock, repeated={}
        )
        offset_by_time = desk.store.offset_by_time

        def fails(topic: str, *place: Any) -> Any:
            if topic == "t":
                raise OSError(errno.EIO, "Input/output error")
            return offset_by_time(topic, *place)

        monkeypatch.setattr(desk.store, "offset_by_time", fails)
        with capture_logs() as logs:
            await again.run()
        assert again.ready
        assert again.table.topics["orders"].find("A", monotonic_ms(desk.clock)) is not None
        assert [one["topic"] for one in logs if one["event"] == "dedupe.read_failed"] == ["t"]
