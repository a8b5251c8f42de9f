"""Appending: order of checks, offsets, batches, the roll."""

import errno
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.server.routes import finished
from aerobee.store.errors import SegmentLate
from aerobee.store.files.disk import Disk
from aerobee.store.flags import Flag
from aerobee.store.format.copies import stored
from aerobee.store.format.record import MAGIC_V1, MAGIC_V2, TRANSACTION_PREPARED, MessageDraft, read
from aerobee.store.format.tags import java_hash
from aerobee.store.message_store import MessageStore
from aerobee.store.messages import writer
from aerobee.store.results import PutStatus
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.store_checker import check_running
from tests.kit.store_model import (
    HOST,
    LOG_BYTES,
    ManualClock,
    Sent,
    batch_body,
    draft,
    open_store,
    read_queue,
)

FIXED = 92  # a record of topic `T` without body and properties
ILLEGAL = PutStatus.MESSAGE_ILLEGAL


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> MessageStore:
    return open_store(tmp_path, Disk(), clock, max_message_size_bytes=2_000)[0]


def never() -> None:
    pytest.fail("no segment is late here")


def test_a_put_says_where_the_message_is(store: MessageStore, clock: ManualClock) -> None:
    first = store.put(draft(body=b"abc"))
    clock.ms += 5
    second = store.put(draft(body=b"defg"))
    assert (first.physical_offset, first.queue_offset, first.size) == (0, 0, FIXED + 3)
    assert (second.physical_offset, second.queue_offset, second.count) == (FIXED + 3, 1, 1)
    assert second.end_offset == 2 * FIXED + 7
    assert second.store_timestamp == first.store_timestamp + 5
    record = read(store.read(second.physical_offset) or b"")
    assert (record.queue_offset, record.physical_offset) == (1, FIXED + 3)
    assert record.store_timestamp == second.store_timestamp
    assert store.stats.messages_put == 2
    assert store.stats.bytes_put == second.end_offset


def test_every_queue_counts_for_itself(store: MessageStore) -> None:
    offsets = [store.put(draft(topic, q)).queue_offset for topic in "AB" for q in (0, 1, 0)]
    assert offsets == [0, 0, 1, 0, 0, 1]


def test_the_caller_may_bring_the_time(store: MessageStore, clock: ManualClock) -> None:
    assert store.put(draft(), clock.ms + 7).store_timestamp == clock.ms + 7


def test_store_times_never_decrease(store: MessageStore, clock: ManualClock) -> None:
    first = store.put(draft()).store_timestamp
    clock.ms -= 86_400_000
    assert store.put(draft()).store_timestamp == first
    assert store.put_batch(draft(), batch_body([Sent(b"x", b"")])).store_timestamp == first


def test_store_times_do_not_decrease_over_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    store, _ = open_store(tmp_path, Disk(), clock)
    first = store.put(draft()).store_timestamp
    store.let_go()
    clock.ms -= 1_000
    store, _ = open_store(tmp_path, Disk(), clock)
    assert store.put(draft()).store_timestamp == first


def test_prepared_messages_do_not_count(store: MessageStore) -> None:
    store.put(draft())
    prepared = draft()
    prepared.sys_flag = TRANSACTION_PREPARED
    assert store.put(prepared).queue_offset == 0
    assert store.put(draft()).queue_offset == 1


@pytest.mark.parametrize(
    ("topic", "queue_id"),
    [
        ("t" * 128, 0),
        ("ä" * 64, 0),
        ("", 0),
        ("%RETRY%" + "g" * 249, 0),
        ("../x", 0),
        ("..", 0),
        ("a\0b", 0),
        ("T", -1),
    ],
)
def test_what_cannot_be_the_name_of_a_queue_is_illegal(
    store: MessageStore, topic: str, queue_id: int
) -> None:
    assert store.put(draft(topic, queue_id)).status is ILLEGAL
    assert store.put_batch(draft(topic, queue_id), b"").status is ILLEGAL
    assert not store.queues.table
    assert store.stats.puts_refused == 2


@pytest.mark.parametrize(
    ("topic", "magic"), [("t" * 127, MAGIC_V1), ("%RETRY%" + "g" * 200, MAGIC_V2)]
)
def test_a_long_topic_gets_the_second_record_version_only_when_it_must(
    store: MessageStore, topic: str, magic: int
) -> None:
    at = store.put(draft(topic)).physical_offset
    assert read(store.read(at) or b"").magic == magic


def test_limits_are_those_of_other_brokers(store: MessageStore) -> None:
    assert store.put(draft(body=bytes(2_000))).status is PutStatus.PUT_OK
    assert store.put(draft(body=bytes(2_001))).status is ILLEGAL
    exceeded = PutStatus.PROPERTIES_SIZE_EXCEEDED
    assert store.put(draft(properties=bytes(32_768))).status is exceeded
    assert store.commit_log.max_offset == FIXED + 2_000


def test_a_record_that_no_segment_can_hold_is_illegal(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk())
    largest = LOG_BYTES - 8 - FIXED
    store.put(draft())
    assert store.put(draft(body=bytes(largest + 1))).status is ILLEGAL
    assert store.commit_log.max_offset == FIXED + 5, "no blank was written for it"
    assert store.put(draft(body=bytes(largest))).physical_offset == LOG_BYTES


def test_a_closed_store_takes_nothing(store: MessageStore) -> None:
    store.flags.set(Flag.SHUT_DOWN, "closed")
    assert store.put(draft("")).status is PutStatus.SERVICE_NOT_AVAILABLE, "this comes first"
    assert store.put_batch(draft(), b"").status is PutStatus.SERVICE_NOT_AVAILABLE


# ── Batches ──


def items(count: int, size: int = 10) -> list[Sent]:
    return [Sent(bytes([65 + n % 26]) * size, b"TAGS\x01t%d\x02" % n) for n in range(count)]


def test_a_batch_becomes_records_side_by_side(store: MessageStore) -> None:
    store.put(draft())
    shared = MessageDraft("T", 0, b"", b"", HOST, HOST, born_timestamp=7, reconsume_times=2)
    result = store.put_batch(shared, batch_body(items(3)))
    assert (result.queue_offset, result.count) == (1, 3)
    at = result.physical_offset
    for number, offset in enumerate(result.offsets):
        assert offset == at
        record = read(store.read(at) or b"")
        assert record.body == items(3)[number].body
        assert record.properties == items(3)[number].properties
        assert (record.queue_offset, record.born_timestamp) == (1 + number, 7)
        assert record.reconsume_times == 2
        at += record.size
    assert at == result.end_offset
    store.dispatch()
    units = [store.queues.table["T", 0].unit(n) for n in range(4)]
    assert [unit.tags_code for unit in units if unit] == [
        0,
        *(java_hash(f"t{n}") for n in range(3)),
    ]
    assert store.put(draft()).queue_offset == 4


def test_a_batch_is_in_one_segment_whole(store: MessageStore) -> None:
    store.put(draft(body=bytes(1_900)))
    store.put(draft(body=bytes(1_000)))
    result = store.put_batch(draft(), batch_body(items(12, 20)))
    assert result.physical_offset == LOG_BYTES
    assert all(offset >= LOG_BYTES for offset in result.offsets)
    store.dispatch()
    assert read_queue(store, "T", 0)[2:] == items(12, 20)
    check_running(store)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0\0\x20",
        batch_body(items(2))[:-1],
        batch_body(items(2)) + b"x",
        bytes(2_001),
        batch_body(items(45, 2)),
    ],
    ids=["empty", "head", "cut", "surplus", "long", "more than a segment"],
)
def test_of_a_batch_that_is_illegal_nothing_is_stored(store: MessageStore, body: bytes) -> None:
    assert store.put_batch(draft(), body).status is ILLEGAL
    assert store.commit_log.max_offset == 0
    assert store.put(draft()).queue_offset == 0


def test_a_batch_of_transaction_parts_is_illegal(store: MessageStore) -> None:
    prepared = draft()
    prepared.sys_flag = TRANSACTION_PREPARED
    assert store.put_batch(prepared, batch_body(items(2))).status is ILLEGAL


@given(
    st.lists(
        st.one_of(
            st.integers(0, 1_500),
            st.lists(st.integers(0, 300), min_size=1, max_size=4),
        ),
        max_size=25,
    )
)
def test_singles_and_batches_in_any_order_keep_the_laws(
    tmp_path_factory: pytest.TempPathFactory, puts: list[int | list[int]]
) -> None:
    store, _ = open_store(tmp_path_factory.mktemp("store"), Disk())
    sent: list[Sent] = []
    for number, sizes in enumerate(puts):
        if isinstance(sizes, int):
            message = Sent(bytes([number]) * sizes, b"")
            result = store.put(draft(body=message.body))
            sent.append(message)
        else:
            messages = [Sent(bytes([number]) * size, b"a\x01b\x02") for size in sizes]
            result = store.put_batch(draft(), batch_body(messages))
            sent += messages
        assert result.status is PutStatus.PUT_OK
        assert result.end_offset == store.commit_log.max_offset
    store.dispatch()
    assert read_queue(store, "T", 0) == sent
    check_running(store)


def test_a_number_that_no_field_holds_makes_a_batch_illegal(store: MessageStore) -> None:
    shared = MessageDraft("T", 0, b"", b"", HOST, HOST, born_timestamp=1 << 63)
    body = batch_body(items(3))
    assert store.put_batch(shared, body).status is ILLEGAL
    assert finished(store.writer.put_batch_in_steps(shared, body, never)).status is ILLEGAL
    assert store.commit_log.max_offset == 0


def test_a_batch_of_short_messages_is_limited_by_its_body_and_not_by_its_records(
    tmp_path: Path,
) -> None:
    """As in the Java broker: `maxMessageSize` is for what the client sent."""
    store, _ = open_store(
        tmp_path, Disk(), mapped_file_size_commit_log_bytes=1 << 20, max_message_size_bytes=50_000
    )
    body = batch_body(items(1_500, 1))
    assert 49_000 < len(body) <= 50_000
    assert store.put_batch(draft(), body).status is PutStatus.PUT_OK
    assert store.commit_log.max_offset > 50_000 + (64 << 10)
    assert store.put_batch(draft(), batch_body(items(1_520, 1))).status is ILLEGAL


def test_a_batch_in_steps_is_stored_in_the_last_one_wherever_others_put_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BATCH_STEP", 3)
    store, _ = open_store(tmp_path, Disk(), ManualClock())
    body = batch_body(items(10))
    steps = store.writer.put_batch_in_steps(draft(), body, never)
    others = []
    try:
        while True:
            next(steps)
            others.append(store.put(draft()).queue_offset)
    except StopIteration as end:
        result = end.value
    assert others == list(range(3))
    assert (result.status, result.queue_offset, result.count) == (PutStatus.PUT_OK, 3, 10)
    store.dispatch()
    assert read_queue(store, "T", 0)[3:] == items(10)
    places = list(result.offsets)
    assert [read(store.read(at) or b"").physical_offset for at in places] == places
    check_running(store)


def test_a_long_batch_is_stored_in_parts_between_which_others_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BATCH_STEP", 2)
    monkeypatch.setattr(writer, "PIECES_TOGETHER", 2)
    store, _ = open_store(tmp_path, Disk(), ManualClock())
    steps = store.writer.put_batch_in_steps(draft(), batch_body(items(10)), never)
    between = []
    try:
        while True:
            next(steps)
            if store.commit_log.max_offset:
                between.append(store.put(draft()))
    except StopIteration as end:
        result = end.value
    assert [one.queue_offset for one in between] == [4, 9]
    assert (result.status, result.queue_offset, result.count) == (PutStatus.PUT_OK, 0, 10)
    assert result.end_offset == store.commit_log.max_offset
    assert result.between == sum(one.size for one in between)
    store.dispatch()
    found = read_queue(store, "T", 0)
    assert [one for number, one in enumerate(found) if number not in {4, 9}] == items(10)
    places = list(result.offsets)
    assert [read(store.read(at) or b"").physical_offset for at in places] == places
    check_running(store)


@pytest.mark.parametrize("stored", [0, 4])
def test_a_batch_whose_queue_is_deleted_between_its_steps_ends_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: int
) -> None:
    """It would make the queue anew, for a topic that there is no more."""
    monkeypatch.setattr(writer, "BATCH_STEP", 2)
    monkeypatch.setattr(writer, "PIECES_TOGETHER", 2)
    store, _ = open_store(tmp_path, Disk(), ManualClock())
    steps = store.writer.put_batch_in_steps(draft(), batch_body(items(10)), never)
    next(steps)
    while store.stats.messages_put < stored:
        next(steps)
    store.dispatch()
    store.queues.drop("T", 0)
    assert finished(steps).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.stats.messages_put == stored
    assert not store.queues.table


def test_parts_that_are_stored_stay_when_no_more_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BATCH_STEP", 2)
    monkeypatch.setattr(writer, "PIECES_TOGETHER", 2)
    store, _ = open_store(tmp_path, Disk(), ManualClock())
    steps = store.writer.put_batch_in_steps(draft(), batch_body(items(10)), never)
    while not store.commit_log.max_offset:
        next(steps)
    store.flags.set(Flag.NOT_WRITEABLE, "a test")
    assert finished(steps).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.dispatch()
    assert read_queue(store, "T", 0) == items(10)[:4]
    check_running(store)


def test_a_batch_in_parts_is_no_longer_than_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BATCH_STEP", 2)
    monkeypatch.setattr(writer, "PIECES_TOGETHER", 2)
    store, _ = open_store(tmp_path, Disk(), ManualClock())
    steps = store.writer.put_batch_in_steps(draft(), batch_body(items(45, 2)), never)
    assert finished(steps).status is ILLEGAL
    assert store.commit_log.max_offset == 0


def test_a_batch_of_many_messages_is_that_of_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes, whichever way they were encoded; IPv6 as well, and behind a roll."""
    logs = []
    for number, step in enumerate((1, 1_000)):
        monkeypatch.setattr(writer, "BATCH_STEP", step)
        store, _ = open_store(tmp_path / str(number), Disk(), ManualClock())
        host = bytes(range(20))
        shared = MessageDraft("T", 0, b"", b"", host, HOST, born_timestamp=7, reconsume_times=2)
        for _ in range(4):
            store.put_batch(shared, batch_body(items(5, 30)))
        store.dispatch()
        logs.append([bytes(store.read(at) or b"") for at in offsets_of(store)])
    assert logs[0] == logs[1]
    assert len(logs[0]) == 20


def offsets_of(store: MessageStore) -> list[int]:
    queue = store.queues.table["T", 0]
    units = [queue.unit(number) for number in range(queue.end_offset)]
    return [unit.physical_offset for unit in units if unit]


def test_a_batch_whose_records_would_be_too_long_is_refused_before_it_is_encoded(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encoded(*_: object) -> bytes:
        raise AssertionError("encoded")

    monkeypatch.setattr(writer, "encode_batch", encoded)
    body = batch_body([Sent(b"", b"")] * 180_000)
    assert store.put_batch(draft(), body).status is PutStatus.MESSAGE_ILLEGAL


@given(st.lists(st.integers(0, 1_500), min_size=1, max_size=25))
def test_copies_come_in_order_through_as_many_segments_as_they_need(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    store, _ = open_store(tmp_path_factory.mktemp("store"), Disk())
    sent = [Sent(bytes([number]) * size, b"a\x01b\x02") for number, size in enumerate(sizes)]
    drafts = [draft(body=message.body, properties=message.properties) for message in sent]
    offsets = [store.put(one).physical_offset for one in drafts]
    messages = [stored(store.read(offset) or b"") for offset in offsets]
    copies = [(message, message.properties) for message in messages]
    result = store.writer.put_copies("Other", 1, copies)
    assert (result.status, result.count) == (PutStatus.PUT_OK, len(sent))
    assert store.stats.messages_put == 2 * len(sent)
    store.dispatch()
    assert read_queue(store, "Other", 1) == sent
    check_running(store)


def test_of_copies_for_which_there_is_no_segment_the_first_are_stored(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(draft(body=bytes(1_000)))
    store.dispatch()
    message = stored(store.read(0) or b"")
    copies = [(message, b"")] * 5
    with monkeypatch.context() as late:
        late.setattr(store.commit_log, "new_segment", Mock(side_effect=SegmentLate("late")))
        result = store.writer.put_copies("Other", 0, copies)
    assert (result.status, result.count) == (PutStatus.SEGMENT_LATE, 2)
    result = store.writer.put_copies("Other", 0, copies[2:])
    assert (result.status, result.count) == (PutStatus.PUT_OK, 3)
    store.dispatch()
    assert read_queue(store, "Other", 0) == [Sent(bytes(1_000), b"")] * 5
    check_running(store)


def test_copies_that_no_segment_or_topic_can_take_are_illegal(store: MessageStore) -> None:
    store.put(draft(body=bytes(1_900)))
    store.dispatch()
    message = stored(store.read(0) or b"")
    long = (message, bytes(LOG_BYTES))
    result = store.writer.put_copies("Other", 0, [(message, b""), long])
    assert (result.status, result.count) == (ILLEGAL, 1)
    assert store.writer.put_copies("x" * 128, 0, [(message, b"")]).status is ILLEGAL
    store.flags.set(Flag.DISK_FULL, "full")
    refused = store.writer.put_copies("Other", 0, [(message, b"")])
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    store.dispatch()
    assert store.max_offset("Other", 0) == 1


@pytest.mark.parametrize("kind", ["single", "batch", "copies"])
def test_a_message_for_which_the_disk_has_no_block_is_refused_and_the_log_goes_on(
    tmp_path: Path, kind: str
) -> None:
    """As on btrfs, which needs new blocks for a segment that has all of its own."""
    disk = FaultyDisk(tmp_path)
    disk.copying = True
    store, _ = open_store(tmp_path, disk)
    first = store.put(draft(body=b"first"))
    message = stored(store.read(first.physical_offset) or b"")
    puts = {
        "single": lambda: store.put(draft(body=b"first")),
        "batch": lambda: store.put_batch(draft(), batch_body([Sent(b"first", b"")])),
        "copies": lambda: store.writer.put_copies("T", 0, [(message, b"")]),
    }
    disk.faults.append(Fault(name="pwrite", path="commitlog", error=errno.ENOSPC))
    assert puts[kind]().status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "No space left" in store.flags.cause
    assert puts[kind]().status is PutStatus.SERVICE_NOT_AVAILABLE, "until there is room again"
    store.space.watch.segment_again()
    assert puts[kind]().status is PutStatus.PUT_OK
    store.dispatch()
    assert [one.body for one in read_queue(store, "T", 0)] == [b"first"] * 2
    check_running(store)
