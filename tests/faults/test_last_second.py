"""What was acknowledged a moment before a kill: no byte of it makes a start take it for torn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerobee.store.errors import StoreDamaged
from aerobee.store.flush.recovery_point import RecoveryPointFile
from aerobee.store.format.names import RECOVERY_POINT, segment_name
from aerobee.store.format.properties import PROPERTIES_BYTES_MAX, closed
from aerobee.store.format.record import HEAD, encode, read
from aerobee.store.results import PutStatus
from tests.kit.broker_process import BrokerProcess
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.logged import Logged, events
from tests.kit.process import DidNotStart
from tests.kit.raw_client import RawConnection, send_fields, topic_fields
from tests.kit.reading import read_topic
from tests.kit.store_model import (
    Sent,
    StoreModel,
    batch_body,
    check_directory,
    draft,
    log_records,
    open_store,
    read_queue,
)

pytestmark = pytest.mark.faults

SEND_BATCH, SEND, CREATE_TOPIC = 320, 310, 17
SYNC = {"flushDiskType": "SYNC_FLUSH"}
STILL = {"flushIntervalConsumeQueue": 60_000}
"""The recovery point stays where it was at the start, however slow the machine is."""
TOPIC = "last-second"


# ── Over the wire ──


def fresh(tmp_path: Path, **settings: object) -> BrokerProcess:
    return BrokerProcess(data=tmp_path / "store", settings={**SYNC, **settings})


def bodies(broker: BrokerProcess, queue_id: int = 0) -> list[bytes]:
    with RawConnection(broker.address) as connection:
        return [record.body for record in read_topic(connection, TOPIC, queue_id)]


def test_a_batch_with_any_ends_of_properties_outlives_a_kill(tmp_path: Path) -> None:
    ends = [b"", b"a\x01b\x00", b"a\x01b\xff", b"\x00", b"\xff\xff", b"a\x01b", b"a\x01b\x02"]
    items = [Sent(b"item %d" % n, ends[n % len(ends)]) for n in range(30)]
    assert items[-1].properties[-1:] == b"\x00"
    with fresh(tmp_path) as broker:
        with RawConnection(broker.address) as connection:
            connection.call(CREATE_TOPIC, topic_fields(TOPIC, 1))
            answer = connection.call(SEND_BATCH, send_fields(TOPIC, 0, m=True), batch_body(items))
            assert answer.code == 0, answer
        broker.kill()
        broker.start()
        broker.stop()
    stored = [read(data) for _, data in log_records(broker.data)]
    found = [bytes(record.body) for record in stored if record.topic == TOPIC]
    assert found == [item.body for item in items]


def killed_after(broker: BrokerProcess, count: int) -> Sequence[tuple[int, bytes]]:
    """The records of a broker that was killed when so many sends had been acknowledged."""
    with RawConnection(broker.address) as connection:
        connection.call(CREATE_TOPIC, topic_fields(TOPIC, 1))
        for number in range(count):
            answer = connection.call(SEND, send_fields(TOPIC, 0), b"message %d" % number)
            assert answer.code == 0, answer
    broker.kill()
    return [one for one in log_records(broker.data) if read(one[1]).topic == TOPIC]


def flip(root: Path, position: int) -> None:
    path = root / "commitlog" / segment_name(0)
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_bit_in_a_body_of_the_last_second_costs_that_message_only(
    tmp_path: Path, flush: str
) -> None:
    with fresh(tmp_path, flushDiskType=flush, **STILL) as broker:
        records = killed_after(broker, 50)
        assert len(records) == 50
        flip(broker.data, records[0][0] + HEAD.size)
        broker.start()
        assert bodies(broker) == [b"message %d" % number for number in range(1, 50)]
        assert "commit_log.corrupt_record" in broker.log.read_text()


def test_a_bit_in_a_head_of_the_last_second_is_refused_and_nothing_is_cut(tmp_path: Path) -> None:
    with fresh(tmp_path, **STILL) as broker:
        records = killed_after(broker, 50)
        place = records[0][0] + HEAD.offset["magic"]
        flip(broker.data, place)
        with pytest.raises(DidNotStart, match=segment_name(0)):
            broker.start()
        flip(broker.data, place)
        broker.start()
        assert len(bodies(broker)) == 50


# ── Any bytes ──

ODD = st.sampled_from(
    [b"\x00", b"\xff", b"\x02", b"\x01", b"\xda\xa3\x20\xa7", b"\xcb\xd4\x31\x94"]
)
BYTES = st.lists(ODD | st.binary(max_size=40), max_size=6).map(b"".join)
"""Of fillings, separators and the magics of records, and anything else."""
MESSAGES = st.builds(Sent, BYTES | st.integers(0, 1_200).map(bytes), BYTES)
PUTS = st.lists(st.lists(MESSAGES, min_size=1, max_size=4), min_size=1, max_size=6)


@given(puts=PUTS, known=st.integers(0, 6), prepared=st.booleans())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_acknowledged_bytes_outlive_a_kill(
    tmp_path_factory: pytest.TempPathFactory,
    puts: list[list[Sent]],
    known: int,
    prepared: bool,
) -> None:
    """One by one and in batches, with the recovery point in front of any of them."""
    model = StoreModel(tmp_path_factory.mktemp("any") / "d")
    for number, batch in enumerate(puts):
        if len(batch) == 1:
            model.put("T", number % 2, batch[0])
        else:
            model.put_batch("T", number % 2, batch)
        if prepared:
            model.store.dispatch()
            model.store.queues.write_all(sync=False)
        if number == known:
            model.store.dispatch()
            model.store.commit_log.sync_all()
            model.store.queues.write_all(sync=True)
            model.store.points.write_now()
    end = model.store.commit_log.max_offset
    for _ in range(2):
        model.crash()
        assert model.recovery.end_offset == end
        model.check_store()
        check_directory(model.root)
    model.disk.kill()


def test_properties_that_leave_no_room_for_their_end_outlive_a_kill(tmp_path: Path) -> None:
    model = StoreModel(tmp_path / "d", mapped_file_size_commit_log_bytes=1 << 20)
    longest = b"a\x01".ljust(PROPERTIES_BYTES_MAX, b"\x00")
    assert closed(longest) == longest
    for _ in range(2):
        assert model.put("T", 0, Sent(b"x", longest)).status is PutStatus.PUT_OK
    model.crash()
    model.check_store()
    model.disk.kill()


# ── A kill within an append ──


def killed_within(model: StoreModel, missing: range) -> None:
    """The last batch, without some of its bytes."""
    begin = model.store.commit_log.max_offset
    model.put_batch("T", 0, [Sent(b"item %d" % n, b"TAGS\x01A\x02") for n in range(5)])
    model.disk.kill()
    path = model.root / "commitlog" / segment_name(0)
    content = bytearray(path.read_bytes())
    content[begin + missing.start : begin + missing.stop] = bytes(len(missing))
    path.write_bytes(content)
    model.forget_behind(begin)


@pytest.mark.parametrize("missing", [range(64), range(32), range(8)])
def test_an_append_whose_begin_was_copied_last_is_cut(tmp_path: Path, missing: range) -> None:
    """Copying may store the first bytes behind all others; nothing of it was acknowledged."""
    model = StoreModel(tmp_path / "d")
    model.put("T", 0, Sent(b"whole", b""))
    killed_within(model, missing)
    store, recovery = open_store(model.root, model.disk, model.clock)
    assert recovery.cut_bytes > 0
    model.store = store
    model.check_store()
    check_directory(model.root)
    model.disk.kill()


def test_missing_bytes_in_front_of_several_appends_are_damage(tmp_path: Path) -> None:
    model = StoreModel(tmp_path / "d")
    begin = model.store.commit_log.max_offset
    for number in range(4):
        model.put("T", 0, Sent(b"%d" % number, b""))
    model.disk.kill()
    path = model.root / "commitlog" / segment_name(0)
    content = bytearray(path.read_bytes())
    content[begin : begin + 40] = bytes(40)
    path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(StoreDamaged, match="whole messages follow at"):
        open_store(model.root, model.disk, model.clock)
    assert path.read_bytes() == before
    model.disk.kill()


# ── One bit of what a kill left ──


def served(model: StoreModel, queues: Mapping[tuple[str, int], list[Sent]]) -> set[bytes]:
    """The bodies that can be read, whole."""
    found: set[bytes] = set()
    for topic, queue_id in queues:
        queue = model.store.queues.table.get((topic, queue_id))
        at = 0 if queue is None else queue.min_offset
        while queue is not None and at < queue.end_offset:
            result = model.store.get(topic, queue_id, at, 1)
            found |= {bytes(read(view).body) for view in result.views}
            at = max(at + 1, result.next_begin_offset)
    return found


@pytest.mark.parametrize("seed", range(2))
def test_one_bit_behind_the_recovery_point_costs_one_message_or_is_refused(
    tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    model = StoreModel(tmp_path / "d", message_index_enable=False)
    for number in range(20):
        sent = Sent(b"body %d " % number * 5, b"TAGS\x01A\x02")
        model.put("T", number % 2, sent)
        model.store.dispatch()
    end = model.store.commit_log.max_offset
    model.disk.kill()
    path = model.root / "commitlog" / segment_name(0)
    whole = {file: file.read_bytes() for file in model.root.rglob("*") if file.is_file()}
    sent_bodies = {one.body for queue in model.queues.values() for one in queue}
    refused = 0
    for _ in range(60):
        for file, content in whole.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        flip_at = random.randrange(end)
        flipped = bytearray(whole[path])
        flipped[flip_at] ^= 1 << random.randrange(8)
        path.write_bytes(flipped)
        try:
            model.store, _ = open_store(model.root, model.disk, model.clock)
        except StoreDamaged:
            refused += 1
            model.disk.kill()
            continue
        found = served(model, model.queues)
        assert found <= sent_bodies, flip_at
        assert len(sent_bodies - found) <= 1, flip_at
        model.disk.kill()
    assert 0 < refused < 60


# ── Who was here ──


def test_nothing_is_known_after_another_broker(tmp_path: Path) -> None:
    """They write `lock` to the lock file; then a place says nothing, and the times count."""
    model = StoreModel(tmp_path / "d")
    model.put("T", 0, Sent(b"one", b"a\x01b\x02"))
    end = model.store.commit_log.max_offset
    model.disk.kill()
    lock = model.root / "lock"
    lock.write_bytes(b"lock" + lock.read_bytes()[4:])
    record = encode(draft(body=b"two", properties=b"a\x01b"), 1, end, model.clock.ms)
    theirs = bytearray(record)
    # As 4.9 writes it: without the last separator.
    theirs[-1] = 0
    path = model.root / "commitlog" / segment_name(0)
    content = bytearray(path.read_bytes())
    content[end : end + len(theirs)] = theirs
    path.write_bytes(content)
    store, recovery = open_store(model.root, model.disk, model.clock)
    assert recovery.end_offset == end + len(theirs)
    assert [one.body for one in read_queue(store, "T", 0)] == [b"one", b"two"]
    model.disk.kill()


def test_a_log_that_ends_in_front_of_the_recovery_point_is_refused(tmp_path: Path) -> None:
    model = StoreModel(tmp_path / "d")
    for number in range(20):
        model.put("T", 0, Sent(b"%d" % number * 700, b""))
    model.store.dispatch()
    model.store.commit_log.sync_all()
    model.store.queues.write_all(sync=True)
    model.store.points.write_now()
    point = RecoveryPointFile(FaultyDisk(model.root), model.root / RECOVERY_POINT).load()
    assert point is not None
    assert point.log_end == model.store.commit_log.max_offset
    model.disk.kill()
    last = max((model.root / "commitlog").iterdir())
    kept = last.read_bytes()
    last.unlink()
    with pytest.raises(StoreDamaged, match=f"up to {point.log_end}"):
        open_store(model.root, model.disk, model.clock)
    last.write_bytes(kept)
    model.crash()
    model.check_store()
    model.disk.kill()


@pytest.mark.parametrize("killed", [True, False])
def test_a_queue_that_lost_units_is_found_by_their_number(
    tmp_path: Path, logged: Logged, killed: bool
) -> None:
    """The sum of all ends is in the recovery point: no queue may be shorter."""
    model = StoreModel(tmp_path / "d")
    for number in range(12):
        model.put("T", number % 3, Sent(b"%d" % number, b""))
    model.store.dispatch()
    model.store.commit_log.sync_all()
    model.store.queues.write_all(sync=True)
    model.store.points.write_now()
    model.disk.kill()
    path = model.root / "consumequeue" / "T" / "1" / segment_name(0)
    path.write_bytes(path.read_bytes()[:40].ljust(len(path.read_bytes()), b"\0"))
    logged.clear()
    if not killed:
        model.disk = FaultyDisk(model.root)
    model.crash()
    assert "store.recovery_point_wrong" in events(logged)
    model.check_store()
    check_directory(model.root)
    model.disk.kill()


def test_a_kill_within_the_properties_of_the_last_record_costs_that_record_only(
    tmp_path: Path,
) -> None:
    model = StoreModel(tmp_path / "d")
    for number in range(3):
        model.put("T", 0, Sent(b"whole %d" % number, b"KEYS\x01k\x02"))
        model.store.dispatch()
    model.store.commit_log.sync_all()
    model.store.queues.write_all(sync=True)
    model.store.points.write_now()
    model.put("T", 0, Sent(b"torn", b"KEYS\x01" + b"k" * 40 + b"\x02"))
    model.disk.kill()
    records = log_records(model.root)
    last, data = records[-1]
    with (model.root / "commitlog" / segment_name(0)).open("r+b") as file:
        file.seek(last + len(data) - 20)
        file.write(bytes(20))
    _, recovery = open_store(model.root, model.disk)
    assert (recovery.end_offset, recovery.cut_bytes) == (last, len(data) - 20)
    assert log_records(model.root) == records[:-1]
    model.disk.kill()
