import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from mmap import MAP_PRIVATE, PAGESIZE, mmap
from pathlib import Path
from random import Random

import pytest
import trio

from aerobee.store.errors import StoreDamaged
from aerobee.store.files.disk import Disk
from aerobee.store.flush.checkpoint_file import CheckpointFile
from aerobee.store.format.names import LAST_STOP, RECOVERY_POINT, segment_name
from aerobee.store.format.record import HEAD, TRANSACTION_COMMIT, TRANSACTION_PREPARED, encode
from aerobee.store.format.recovery_point import RecoveryPoint
from aerobee.store.format.unit import BLANK, UNIT, UNIT_SIZE
from aerobee.store.message_store import MessageStore
from aerobee.store.recovery.abort_file import AbortFile
from aerobee.store.recovery.recovery_start import (
    FirstRecord,
    StartKind,
    TopicHistory,
    abnormal_start,
    kind_of,
    normal_start,
)
from aerobee.store.results import Recovery
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.logged import Logged, events
from tests.kit.records import changed
from tests.kit.running_store import running_store
from tests.kit.store_model import (
    LOG_BYTES,
    QUEUE_BYTES,
    ManualClock,
    Sent,
    StoreModel,
    check_directory,
    draft,
    flush_everything,
    log_records,
    open_store,
    queue_files,
    read_queue,
    small_config,
)
from tests.kit.waiting import eventually

BIG = Sent(b"x" * 700, b"TAGS\x01A\x02")
LIBC = ctypes.CDLL(None)
DROPPED_WITHIN_S = 30.0


@pytest.fixture
def model(tmp_path: Path) -> Iterator[StoreModel]:
    """A store with 40 messages in two queues, over many segments; nothing is flushed."""
    model = StoreModel(tmp_path / "d")
    for number in range(40):
        model.put("T", number % 2, BIG)
        model.store.dispatch()
    yield model
    model.disk.kill()


def reopen(model: StoreModel, **changes: object) -> tuple[MessageStore, Recovery]:
    """The next start after whatever was done to the files."""
    model.store, model.recovery = open_store(model.root, model.disk, model.clock, **changes)
    return model.store, model.recovery


def queue_directory(model: StoreModel, queue_id: int = 0) -> Path:
    return model.root / "consumequeue" / "T" / str(queue_id)


# ── Decisions ──

FIRSTS = [FirstRecord(300, 3_000), FirstRecord(200, 2_000), FirstRecord(100, 1_000)]


@pytest.mark.parametrize(
    ("min_timestamp", "start"), [(9_000, 300), (2_999, 200), (2_000, 200), (999, 100), (0, 100)]
)
def test_after_a_crash_the_walk_begins_before_everything_unsafe(
    min_timestamp: int, start: int
) -> None:
    assert abnormal_start(FIRSTS, min_timestamp) == start


@pytest.mark.parametrize(("reach", "start"), [(500, 300), (299, 200), (200, 200), (-1, 100)])
def test_after_a_stop_the_walk_begins_where_the_queues_end(reach: int, start: int) -> None:
    assert normal_start(FIRSTS, reach) == start


def test_a_segment_without_a_first_record_is_passed_over() -> None:
    firsts = [FirstRecord(400, 0), *FIRSTS]
    assert abnormal_start(firsts, 9_000) == 300
    assert normal_start(firsts, 900) == 300


def test_without_segments_the_walk_begins_at_zero() -> None:
    assert abnormal_start([], 5) == normal_start([], 5) == 0


# ── Ends of the store ──


def test_an_empty_directory_is_a_clean_empty_store(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    _, recovery = open_store(tmp_path / "d", disk)
    assert recovery.clean
    assert recovery.end_offset == recovery.records == 0
    disk.kill()


def test_after_a_stop_only_the_last_record_is_read(model: StoreModel) -> None:
    model.stop()
    assert model.recovery.records == 1
    model.check_store()


def test_after_a_kill_everything_the_checkpoint_does_not_cover_is_read(model: StoreModel) -> None:
    model.crash()
    assert model.recovery.records == 40
    assert model.recovery.cut_bytes == 0
    model.check_store()


def put_around_checkpoint(model: StoreModel, count: int) -> None:
    """So many messages that the checkpoint has, and 10 s later one that it has not."""
    flush_everything(model.store, model.disk)
    model.clock.ms += 10_000
    for _ in range(count):
        model.put("T", 0, BIG)
    flush_everything(model.store, model.disk)
    model.clock.ms += 10_000
    model.put("T", 0, BIG)


def test_after_a_kill_nothing_before_the_checkpoint_is_read(model: StoreModel) -> None:
    put_around_checkpoint(model, 20)
    model.crash()
    # The 21 younger ones, and what stands before them in the first one's segment.
    assert 21 <= model.recovery.records <= 21 + LOG_BYTES // 700
    model.check_store()


def test_a_recovered_store_recovers_to_itself(model: StoreModel) -> None:
    model.crash()
    before = {path: path.read_bytes() for path in model.root.rglob("0*") if path.is_file()}
    for _ in range(2):
        model.crash()
        assert before == {path: path.read_bytes() for path in before}
    model.check_store()


def test_an_abnormal_start_of_a_clean_store_changes_no_byte(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    before = {path: path.read_bytes() for path in model.root.rglob("0*") if path.is_file()}
    AbortFile(Disk(), model.root / "abort").create()
    _, recovery = reopen(model)
    assert not recovery.clean
    assert before == {path: path.read_bytes() for path in before}
    model.check_store()


def test_the_abort_file_is_durable_before_anything_else_changes(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    model.disk.calls.clear()
    reopen(model)
    changed = [
        call.path.name
        for call in model.disk.calls
        if call.path and call.name in ("pwrite", "replace", "unlink", "ftruncate")
    ]
    assert changed[0] == "abort"
    syncs = [call.path for call in model.disk.calls if call.name == "fsync"]
    assert syncs[:2] == [model.root / "abort", model.root]


def test_the_recovered_tail_is_written_again_and_synced_before_it_is_served(
    model: StoreModel,
) -> None:
    """After a failed sync the page cache shows what the disk lacks."""
    model.disk.faults = [Fault(name="fdatasync")]
    with pytest.raises(OSError, match="Input/output"):
        model.store.commit_log.sync_all()
    model.disk.faults = []
    model.crash()
    after = model.disk.power_cut(model.root.parent / "after", Random(1), keep=0)
    assert log_records(after) == log_records(model.root)


def test_the_last_segment_has_all_its_blocks_before_it_is_written_on(model: StoreModel) -> None:
    """Java's segments are sparse: a store into a hole of a full disk kills the process."""
    assert trio.run(model.store.close)
    last = max((model.root / "commitlog").iterdir())
    content = last.read_bytes()
    with last.open("wb") as file:
        file.truncate(1 << 20)
    last.write_bytes(content)
    model.disk.calls.clear()
    reopen(model)
    filled = [call.path for call in model.disk.calls if call.name == "posix_fallocate"]
    assert last in filled


# ── Queues ──


def test_queues_built_again_equal_those_written_live(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    live = queue_files(model.root)
    shutil.rmtree(model.root / "consumequeue")
    reopen(model)
    model.check_store()
    assert trio.run(model.store.close)
    assert queue_files(model.root) == live


def test_queues_built_again_without_the_oldest_segments_have_blanks_in_front(
    model: StoreModel,
) -> None:
    assert trio.run(model.store.close)
    live = queue_files(model.root)
    segments = sorted((model.root / "commitlog").iterdir())
    for path in segments[:4]:
        path.unlink()
    shutil.rmtree(model.root / "consumequeue")
    store, _ = reopen(model)
    first = log_records(model.root)[0][0]
    assert first == 4 * LOG_BYTES
    assert trio.run(store.close)
    for key, files in queue_files(model.root).items():
        built = b"".join(data for _, data in files)
        written = b"".join(data for start, data in live[key] if start >= files[0][0])
        blanks = built.count(BLANK)
        assert built[blanks * UNIT_SIZE :] == written[blanks * UNIT_SIZE :]
        assert UNIT.read(written, blanks * UNIT_SIZE).physical_offset >= first


@pytest.mark.parametrize("clean", [True, False])
def test_one_lost_queue_is_built_again_from_the_whole_log(model: StoreModel, clean: bool) -> None:
    put_around_checkpoint(model, 8)
    model.disk.kill()
    if clean:
        reopen(model)
        assert trio.run(model.store.close)
        newest = max(queue_directory(model).iterdir())
        newest.write_bytes(newest.read_bytes()[:50])
    else:
        shutil.rmtree(queue_directory(model))
    _, recovery = reopen(model)
    assert recovery.rebuilt_queues == 1
    model.check_store()
    check_directory(model.root)


# ── What was lost after a clean stop ──


def lose_directory(directory: Path) -> None:
    shutil.rmtree(directory)


def lose_all_files(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


def lose_first_file(directory: Path) -> None:
    min(directory.iterdir()).unlink()


def lose_last_file(directory: Path) -> None:
    max(directory.iterdir()).unlink()


def lose_last_units(directory: Path) -> None:
    last = max(directory.iterdir())
    content = bytearray(last.read_bytes())
    content[3 * UNIT_SIZE :] = bytes(len(content) - 3 * UNIT_SIZE)
    last.write_bytes(content)


LOSSES = [lose_directory, lose_all_files, lose_first_file, lose_last_file, lose_last_units]


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("queue_id", [0, 1])
def test_what_a_queue_lost_after_a_clean_stop_is_built_again(
    model: StoreModel, lose: Callable[[Path], None], queue_id: int
) -> None:
    """Queue 1 has the last message of the log, queue 0 has not."""
    for number in range(16):
        model.put("T", number % 2, BIG)
    model.store.dispatch()
    assert trio.run(model.store.close)
    lose(queue_directory(model, queue_id))
    _, recovery = reopen(model)
    assert (recovery.clean, recovery.rebuilt_queues) == (True, 1)
    model.check_store()
    assert model.put("T", queue_id, BIG).queue_offset == 28
    model.check_store()
    model.stop()
    check_directory(model.root)
    assert model.recovery.rebuilt_queues == 0


def test_a_queue_whose_messages_are_gone_goes_on_with_its_numbers(model: StoreModel) -> None:
    """Of queue 7 the log has nothing any more: nothing to build, but its numbers are used."""
    for _ in range(3):
        model.store.put(draft(queue_id=7))
    for _ in range(20):
        model.put("T", 0, BIG)
    model.store.dispatch()
    assert trio.run(model.store.close)
    for path in sorted((model.root / "commitlog").iterdir())[:-2]:
        path.unlink()
    store, _ = reopen(model)
    assert (store.min_offset("T", 7), store.max_offset("T", 7)) == (3, 3)
    assert trio.run(store.close)
    shutil.rmtree(queue_directory(model, 7))
    for _ in range(2):
        store, recovery = reopen(model)
        assert recovery.rebuilt_queues == 0
        assert (store.min_offset("T", 7), store.max_offset("T", 7)) == (3, 3)
        assert trio.run(store.close)
    newest = queue_directory(model, 7) / segment_name(0)
    newest.parent.mkdir(exist_ok=True)
    unit = UNIT.pack(0, 100, 0)
    newest.write_bytes(unit.ljust(QUEUE_BYTES, b"\0"))
    store, recovery = reopen(model)
    assert recovery.rebuilt_queues == 1, "what is there does not say how far it went"
    assert store.put(draft(queue_id=7)).queue_offset == 3
    store.dispatch()
    assert store.get("T", 7, 3, 1).count == 1
    assert trio.run(store.close)
    check_directory(model.root)


def test_after_a_broker_that_stored_something_the_last_stop_says_nothing(
    model: StoreModel,
) -> None:
    """Java's brokers let our file lie; what they lost is theirs to say."""
    stop = model.root / LAST_STOP
    model.stop()
    said = stop.read_bytes()
    model.put("T", 1, BIG)
    model.store.dispatch()
    assert trio.run(model.store.close)
    stop.write_bytes(said)
    shutil.rmtree(queue_directory(model))
    store, recovery = reopen(model)
    assert (recovery.clean, recovery.rebuilt_queues) == (True, 0)
    assert store.max_offset("T", 0) == 0
    model.disk.kill()


def test_after_a_kill_the_last_stop_says_nothing(model: StoreModel) -> None:
    model.stop()
    model.crash()
    assert model.recovery.rebuilt_queues == 0
    model.check_store()


def test_queues_of_a_topic_that_is_gone_are_not_missed(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    shutil.rmtree(queue_directory(model))
    store = MessageStore(
        small_config(model.root),
        disk=model.disk,
        clock=model.clock,
        topics=TopicHistory(known=lambda topic: False),
    )
    assert store.load().rebuilt_queues == 0
    assert store.max_offset("T", 0) == 0


def test_the_queues_of_a_topic_that_is_gone_are_not_searched_for(model: StoreModel) -> None:
    flush_everything(model.store, model.disk)
    model.clock.ms += 10_000
    for _ in range(8):
        model.put("T", 0, BIG)
    flush_everything(model.store, model.disk)
    model.disk.kill()
    shutil.rmtree(queue_directory(model))
    store = MessageStore(
        small_config(model.root),
        disk=model.disk,
        clock=model.clock,
        topics=TopicHistory(known=lambda topic: False),
    )
    assert store.load().rebuilt_queues == 0


@pytest.mark.parametrize("queues_lost", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_what_was_stored_before_a_deletion_gets_no_units(
    model: StoreModel, queues_lost: bool, clean: bool
) -> None:
    """Neither by the walk, nor by a rebuild from the whole log, nor from queues that stayed."""
    flush_everything(model.store, model.disk)
    end = model.store.commit_log.max_offset
    for number in range(3):
        model.put("other", 0, Sent(b"%d" % number, b""))
        model.store.dispatch()
    if clean:
        assert trio.run(model.store.close)
    else:
        model.disk.kill()
    if queues_lost:
        shutil.rmtree(model.root / "consumequeue")
    store = MessageStore(
        small_config(model.root),
        disk=model.disk,
        clock=model.clock,
        topics=TopicHistory(
            known=lambda topic: topic != "T",
            removed=lambda topic, offset: topic == "T" and offset < end,
        ),
    )
    store.load()
    assert set(store.queues.table) == {("other", 0)}
    assert store.max_offset("other", 0) == 3
    assert store.commit_log.max_offset > end
    trio.run(store.close)


def test_a_page_lost_from_an_older_queue_file_is_written_again(model: StoreModel) -> None:
    """Several files of a queue can be dirty at once: a power cut may take a page of any of them."""
    flush_everything(model.store, model.disk)
    model.clock.ms += 10_000
    for number in range(120):
        model.put("T", 0, BIG)
        model.store.dispatch()
        if number == 20:
            flush_everything(model.store, model.disk)
    model.store.queues.write_all(sync=False)
    model.disk.kill()
    files = sorted(queue_directory(model).iterdir())
    assert len(files) > 10
    torn = files[7]
    torn.write_bytes(bytes(9 * UNIT_SIZE) + torn.read_bytes()[-UNIT_SIZE:])
    _, recovery = reopen(model)
    assert recovery.start_offset > 0
    assert recovery.rebuilt_queues == 0
    model.check_store()
    model.disk.kill()
    reopen(model)
    check_directory(model.root)


def test_units_are_on_disk_when_an_abnormal_start_ends(model: StoreModel) -> None:
    """The next checkpoint vouches for them."""
    for _ in range(2):
        flush_everything(model.store, model.disk)
        model.clock.ms += 10_000
        for _ in range(13):
            model.put("T", 0, BIG)
        model.store.dispatch()
    model.crash()
    assert model.recovery.start_offset > 0
    after = model.disk.power_cut(model.root.parent / "after", Random(1), keep=0)
    assert queue_files(after) == queue_files(model.root)
    check_directory(after)


def test_the_first_message_still_in_the_log_is_the_first_of_its_queue(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    for path in sorted((model.root / "commitlog").iterdir())[:3]:
        path.unlink()
    store, _ = reopen(model)
    first, _ = log_records(model.root)[0]
    for queue_id in (0, 1):
        queue = store.queues.table["T", queue_id]
        unit = queue.unit(queue.min_offset)
        assert unit is not None
        assert unit.physical_offset >= first
        assert queue.min_offset > 0
        sent = model.queues["T", queue_id]
        assert read_queue(store, "T", queue_id) == sent[queue.min_offset :]


@pytest.mark.parametrize("clean", [True, False])
def test_an_all_zero_queue_file_is_removed(model: StoreModel, clean: bool) -> None:
    assert trio.run(model.store.close)
    phantom = queue_directory(model) / segment_name(2 * QUEUE_BYTES)
    phantom.write_bytes(bytes(QUEUE_BYTES))
    alone = model.root / "consumequeue" / "U" / "0"
    alone.mkdir(parents=True)
    (alone / segment_name(0)).write_bytes(bytes(QUEUE_BYTES))
    if not clean:
        (model.root / "abort").touch()
    store, _ = reopen(model)
    assert store.max_offset("U", 0) == 0
    assert not phantom.exists()
    assert list(alone.iterdir()) == []
    model.check_store()


def misplace(path: Path) -> None:
    path.rename(path.with_name(segment_name(UNIT_SIZE)))


def link_elsewhere(path: Path) -> None:
    path.symlink_to(path.rename(path.parents[4] / "elsewhere"))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("change", [misplace, link_elsewhere])
def test_a_queue_file_in_another_place_is_built_again(
    tmp_path: Path, change: Callable[[Path], None], clean: bool
) -> None:
    model = StoreModel(tmp_path / "d")
    for number in range(6):
        model.put("T", number % 2, BIG)
        model.store.dispatch()
    flush_everything(model.store, model.disk)
    model.put("T", 1, BIG)
    if clean:
        assert trio.run(model.store.close)
    else:
        model.disk.kill()
    change(queue_directory(model) / segment_name(0))
    _, recovery = reopen(model)
    assert recovery.rebuilt_queues == 1
    model.check_store()
    check_directory(model.root)
    model.disk.kill()


def test_units_behind_the_end_of_the_log_are_cut(model: StoreModel) -> None:
    model.store.queues.write_all(sync=False)
    model.disk.kill()
    segments = sorted((model.root / "commitlog").iterdir())
    kept = segments[len(segments) // 2]
    for path in segments:
        if path > kept:
            path.unlink()
    store, recovery = reopen(model)
    model.forget_behind(recovery.end_offset)
    model.check_store()
    assert store.max_offset("T", 0) > 0
    assert trio.run(store.close)
    check_directory(model.root)


def test_without_a_log_that_was_given_up_there_are_no_queues(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    shutil.rmtree(model.root / "commitlog")
    (model.root / "checkpoint").unlink()
    (model.root / "abort").touch()
    store, recovery = reopen(model)
    assert recovery.end_offset == 0
    assert store.max_offset("T", 0) == 0
    assert queue_files(model.root) == {}
    assert store.put(draft()).queue_offset == 0


def test_prepared_records_have_no_unit_and_committed_ones_have(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    store, _ = open_store(tmp_path / "d", disk)
    for sys_flag in (TRANSACTION_PREPARED, 0, TRANSACTION_COMMIT):
        store.put(changed(draft(), sys_flag=sys_flag))
    disk.kill()
    store, recovery = open_store(tmp_path / "d", disk)
    assert recovery.records == 3
    assert store.max_offset("T", 0) == 2
    disk.kill()


def test_a_topic_made_again_begins_at_zero_again(tmp_path: Path) -> None:
    """Its old messages are still in the log; the numbers of the new ones start anew."""
    root = tmp_path / "d"
    model = StoreModel(root)
    for number in range(6):
        model.put("T", 0, Sent(b"old %d" % number, b""))
    end = model.store.commit_log.max_offset
    model.disk.kill()
    segment = root / "commitlog" / segment_name(0)
    content = bytearray(segment.read_bytes())
    for number in range(3):
        record = encode(draft(body=b"new %d" % number), number, end, 1_700_000_001_000)
        content[end : end + len(record)] = record
        end += len(record)
    segment.write_bytes(content)
    store, recovery = open_store(root, model.disk)
    assert recovery.end_offset == end
    assert [sent.body for sent in read_queue(store, "T", 0)] == [b"new 0", b"new 1", b"new 2"]
    model.disk.kill()


def test_a_parked_message_keeps_the_time_when_it_is_due(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    store, _ = open_store(tmp_path / "d", disk)
    for _ in range(2):
        store.put(draft("SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x013\x02"))
    disk.kill()
    store, _ = open_store(tmp_path / "d", disk)
    assert store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 2
    unit = UNIT.read(store.queues.table["SCHEDULE_TOPIC_XXXX", 0].units(0, 1))
    assert unit.tags_code == ManualClock().ms + 10_000
    disk.kill()


# ── The log ──


def test_an_empty_last_segment_is_removed(model: StoreModel) -> None:
    model.disk.kill()
    last = max((model.root / "commitlog").iterdir())
    (model.root / "commitlog" / segment_name(int(last.name) + LOG_BYTES)).touch()
    reopen(model)
    model.check_store()


def test_segments_prepared_ahead_are_dropped(model: StoreModel) -> None:
    model.disk.kill()
    last = max((model.root / "commitlog").iterdir())
    for ahead in (1, 2):
        path = model.root / "commitlog" / segment_name(int(last.name) + ahead * LOG_BYTES)
        path.write_bytes(bytes(LOG_BYTES))
    _, recovery = reopen(model)
    assert recovery.cut_bytes == 0
    model.check_store()
    check_directory(model.root)


def test_the_size_of_a_segment_is_that_of_the_files(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    store, _ = reopen(model, mapped_file_size_commit_log_bytes=1 << 16)
    assert store.commit_log.segment_bytes == LOG_BYTES
    model.check_store()


def test_segments_that_disagree_on_their_size_are_refused(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    first, *_ = sorted((model.root / "commitlog").iterdir())
    first.write_bytes(first.read_bytes() + bytes(10))
    with pytest.raises(StoreDamaged, match=first.name):
        reopen(model)
    assert not (model.root / "abort").exists()


def test_a_missing_segment_is_named(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    segments = sorted((model.root / "commitlog").iterdir())
    segments[2].unlink()
    with pytest.raises(StoreDamaged, match=f"{segments[2].name} is missing"):
        reopen(model)


def damage_second_segment(model: StoreModel) -> Path:
    second = sorted((model.root / "commitlog").iterdir())[1]
    content = bytearray(second.read_bytes())
    content[1_000] ^= 1
    second.write_bytes(content)
    return second


def test_damage_in_front_of_what_was_safe_is_refused_not_cut(model: StoreModel) -> None:
    flush_everything(model.store, model.disk)
    model.put("T", 0, BIG)
    model.disk.kill()
    (model.root / RECOVERY_POINT).unlink()
    segment = damage_second_segment(model)
    before = {path: path.read_bytes() for path in model.root.rglob("0*") if path.is_file()}
    for _ in range(2):
        with pytest.raises(StoreDamaged) as refused:
            reopen(model)
        assert str(segment) in str(refused.value)
        assert "body CRC" in str(refused.value)
        assert "`aerobee store export`" in str(refused.value)
        model.disk.kill()
    logs = {path: data for path, data in before.items() if "commitlog" in str(path)}
    assert logs == {path: path.read_bytes() for path in logs}
    # Without a checkpoint nothing vouches for what is behind it.
    (model.root / "checkpoint").unlink()
    _, recovery = reopen(model)
    assert LOG_BYTES <= recovery.end_offset < 2 * LOG_BYTES
    model.forget_behind(recovery.end_offset)
    model.check_store()


def test_damage_within_the_last_segment_is_refused_too(model: StoreModel) -> None:
    for _ in range(3):
        model.put("T", 0, Sent(b"small", b""))
    flush_everything(model.store, model.disk)
    model.disk.kill()
    (model.root / RECOVERY_POINT).unlink()
    position, _ = log_records(model.root)[-3]
    segment = max((model.root / "commitlog").iterdir())
    content = bytearray(segment.read_bytes())
    content[position % LOG_BYTES + 90] ^= 1
    segment.write_bytes(content)
    with pytest.raises(StoreDamaged, match=f"at physical offset {position} "):
        reopen(model)


@pytest.mark.parametrize("missing", [8, 64, 300])
def test_a_last_record_whose_first_bytes_are_missing_is_cut(
    model: StoreModel, missing: int
) -> None:
    """A kill inside of the copy of a single record leaves that; everything else was on disk."""
    flush_everything(model.store, model.disk)
    model.put("T", 0, BIG)
    model.disk.kill()
    position, _ = log_records(model.root)[-1]
    segment = max((model.root / "commitlog").iterdir())
    content = bytearray(segment.read_bytes())
    at = position % LOG_BYTES
    content[at : at + missing] = bytes(missing)
    segment.write_bytes(content)
    _, recovery = reopen(model)
    assert recovery.end_offset == position
    model.forget_behind(recovery.end_offset)
    model.check_store()
    check_directory(model.root)


class Killed(BaseException):
    """The process ends here."""


class CopiesBackward:
    """Pages into which libc copies from the end, as it does for some addresses, until a kill.

    What a single instruction copies is there or not.
    """

    STEP = 8

    def __init__(self, pages: memoryview, steps: int) -> None:
        self.pages = pages
        self.steps = steps

    def __setitem__(self, place: slice, data: bytes) -> None:
        for end in range(place.stop, place.start, -self.STEP):
            if not self.steps:
                raise Killed
            self.steps -= 1
            begin = max(place.start, end - self.STEP)
            self.pages[begin:end] = data[begin - place.start : end - place.start]


@pytest.mark.parametrize("queues", [1, 3])
def test_a_kill_inside_of_a_copy_in_any_order_is_no_damage(tmp_path: Path, queues: int) -> None:
    """Three messages of one batch, or of three queues in one round."""
    size = len(encode(draft(body=b"x" * 20), 0, 0, 0))
    for steps in range(3 * size // CopiesBackward.STEP):
        model = StoreModel(tmp_path / f"{steps}")
        model.put("T", 0, BIG)
        model.store.dispatch()
        flush_everything(model.store, model.disk)
        end, tail = model.store.commit_log.max_offset, model.store.commit_log.tail
        assert tail is not None
        tail.pages = CopiesBackward(tail.pages, steps)  # type: ignore[assignment]  # as above
        messages = [draft("T", queue, b"x" * 20) for queue in range(3)]
        batch = partial(model.put_batch, "T", 0, [Sent(b"x" * 20, b"")] * 3)
        put = batch if queues == 1 else partial(model.store.writer.put_run, messages)
        with pytest.raises(Killed):
            put()
        model.disk.kill()
        _, recovery = reopen(model)
        kept = 0 if queues == 1 else steps * CopiesBackward.STEP // size
        assert recovery.end_offset == end + kept * size
        check_directory(model.root)
        model.disk.kill()


def test_a_tear_in_front_of_what_was_never_safe_is_cut(model: StoreModel) -> None:
    model.disk.kill()
    (model.root / RECOVERY_POINT).unlink()
    damage_second_segment(model)
    _, recovery = reopen(model)
    assert LOG_BYTES <= recovery.end_offset < 2 * LOG_BYTES
    assert recovery.cut_bytes > 0
    model.forget_behind(recovery.end_offset)
    model.check_store()
    check_directory(model.root)


def test_what_an_earlier_cut_of_another_broker_left_is_no_damage(tmp_path: Path) -> None:
    """Java truncates without erasing, so whole old records may lie behind a clean end."""
    model = StoreModel(tmp_path / "d")
    model.put("T", 0, BIG)
    assert trio.run(model.store.close)
    position, last = log_records(model.root)[-1]
    end = position + len(last)
    segment = max((model.root / "commitlog").iterdir())
    content = bytearray(segment.read_bytes())
    old = encode(draft(properties=b"TAGS\x01A\x02"), 0, end + 40, 1_600_000_000_000)
    at = (end + 40) % LOG_BYTES
    content[at : at + len(old)] = old
    assert len(content) == LOG_BYTES
    segment.write_bytes(content)
    _, recovery = reopen(model)
    assert recovery.end_offset == end
    assert recovery.cut_bytes == 40 + len(old)
    model.check_store()
    check_directory(model.root)
    model.disk.kill()


def test_a_clean_store_whose_queues_reach_too_far_is_cut_back(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    newest = max(queue_directory(model).iterdir())
    content = bytearray(newest.read_bytes())
    used = len(content.rstrip(b"\0")) // UNIT_SIZE + 1
    if used * UNIT_SIZE >= len(content):
        newest = newest.with_name(segment_name(int(newest.name) + QUEUE_BYTES))
        content, used = bytearray(QUEUE_BYTES), 0
    content[used * UNIT_SIZE : (used + 1) * UNIT_SIZE] = UNIT.pack(1 << 40, 100, 0)
    newest.write_bytes(content)
    _, recovery = reopen(model)
    assert recovery.clean
    model.check_store()
    assert recovery.end_offset == model.order[-1][2]


def test_leftovers_of_a_crash_are_removed(model: StoreModel) -> None:
    model.disk.kill()
    leftovers = [
        model.root / f"commitlog.{segment_name(1 << 20)}.new",
        model.root / "consumequeue" / "T" / f"0.{segment_name(200)}.new",
    ]
    for path in leftovers:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    reopen(model)
    assert not any(path.exists() for path in leftovers)
    model.check_store()


def test_a_checkpoint_of_the_future_is_taken_back(model: StoreModel) -> None:
    CheckpointFile(model.disk, model.root / "checkpoint").write(2**60, 2**60)
    model.crash()
    model.check_store()
    flush = model.store
    assert trio.run(flush.close)
    value = CheckpointFile(Disk(), model.root / "checkpoint").load()
    assert value.physic_msg_timestamp == model.clock.ms


@pytest.mark.parametrize("every", [1, 2, 7])
def test_units_leave_the_memory_while_a_long_log_is_walked(
    model: StoreModel, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.recovery.recovery.WRITE_EVERY_RECORDS", every)
    model.disk.kill()
    shutil.rmtree(model.root / "consumequeue")
    reopen(model)
    check_directory(model.root)
    model.check_store()


def test_a_gap_in_front_of_the_walk_has_the_queue_built_again(model: StoreModel) -> None:
    """A file in the middle is gone: the units in front of it are no proof of those behind it."""
    put_around_checkpoint(model, 8)
    model.disk.kill()
    files = sorted(queue_directory(model).iterdir())
    for path in files[1:]:
        path.unlink()
    _, recovery = reopen(model)
    assert recovery.rebuilt_queues == 1
    model.check_store()
    check_directory(model.root)


def test_a_last_unit_that_reaches_behind_the_next_message_has_its_queue_built_again(
    model: StoreModel,
) -> None:
    """Its size was changed on the disk: the log, in which all is right, is not what is damaged."""
    put_around_checkpoint(model, 8)
    model.disk.kill()
    path = max(queue_directory(model).iterdir())
    content = bytearray(path.read_bytes())
    ends = [at for at in range(0, len(content), UNIT_SIZE) if UNIT.unpack_from(content, at)[1]]
    physical_offset, size, code = UNIT.unpack_from(content, ends[-1])
    UNIT.pack_into(content, ends[-1], physical_offset, size + 4_096, code)
    path.write_bytes(content)
    _, recovery = reopen(model)
    assert recovery.rebuilt_queues == 1
    model.check_store()
    check_directory(model.root)


def change_in_log(model: StoreModel, physical_offset: int, data: bytes) -> Path:
    """Write these bytes into the segment that holds the offset, as a disk might."""
    segment = model.root / "commitlog" / segment_name(physical_offset // LOG_BYTES * LOG_BYTES)
    content = bytearray(segment.read_bytes())
    at = physical_offset % LOG_BYTES
    content[at : at + len(data)] = data
    segment.write_bytes(content)
    return segment


@pytest.mark.parametrize("number", [1 << 59, -1])
def test_a_number_that_no_queue_can_have_is_the_damage_that_is_named(
    model: StoreModel, number: int
) -> None:
    put_around_checkpoint(model, 8)
    damaged = model.put("T", 0, BIG).physical_offset
    model.put("T", 0, BIG)
    model.disk.kill()
    field = HEAD.offset["queue_offset"]
    change_in_log(model, damaged + field, number.to_bytes(8, "big", signed=True))
    with pytest.raises(StoreDamaged, match=f"offset {damaged} .* has number {number} in place of"):
        reopen(model)


@pytest.mark.parametrize("number", [1 << 42, 1 << 59, 1])
def test_a_damaged_number_in_the_last_record_of_the_point_is_refused(
    model: StoreModel, number: int
) -> None:
    """The point fits the log no more, but what is behind the record is not given up for that."""
    for _ in range(3):
        model.put("T", 0, BIG)
    damaged = model.put("T", 0, BIG).physical_offset
    flush_everything(model.store, model.disk)
    for _ in range(3):
        model.put("T", 0, BIG)
    model.disk.kill()
    change_in_log(model, damaged + HEAD.offset["queue_offset"], number.to_bytes(8, "big"))
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=f"offset {damaged} .* has number {number} in"):
            reopen(model)
        model.disk.kill()


def test_a_gap_in_the_numbers_names_the_place_of_the_last_good_one(model: StoreModel) -> None:
    """The record between them says that it is of another queue."""
    put_around_checkpoint(model, 8)
    _, _, end = model.order[-1]
    damaged = model.put("T", 0, BIG).physical_offset
    last = model.put("T", 0, BIG).physical_offset
    model.disk.kill()
    path = change_in_log(model, damaged + HEAD.offset["queue_id"], (1 << 20).to_bytes(4, "big"))
    with pytest.raises(StoreDamaged, match=f"at physical offset {last} ") as refused:
        reopen(model)
    segment = path.with_name(segment_name((end - 1) // LOG_BYTES * LOG_BYTES))
    assert f"ends at {end} in {segment}, is damaged" in str(refused.value)


def test_numbers_that_are_nowhere_in_the_log_are_named(tmp_path: Path, logged: Logged) -> None:
    root = tmp_path / "d"
    model = StoreModel(root)
    model.put("T", 0, Sent(b"one", b""))
    end = model.store.commit_log.max_offset
    model.disk.kill()
    segment = root / "commitlog" / segment_name(0)
    content = bytearray(segment.read_bytes())
    record = encode(draft(body=b"three"), 2, end, 1_700_000_001_000)
    content[end : end + len(record)] = record
    segment.write_bytes(content)
    (root / RECOVERY_POINT).unlink()
    logged.clear()
    store, _ = open_store(root, model.disk)
    assert "store.queue_incomplete" in events(logged)
    assert store.max_offset("T", 0) == 1
    model.disk.kill()


def test_a_clean_store_whose_last_unit_leads_nowhere_is_walked_from_its_segment(
    model: StoreModel,
) -> None:
    assert trio.run(model.store.close)
    newest = max(queue_directory(model, 1).iterdir())
    content = bytearray(newest.read_bytes())
    used = len(content.rstrip(b"\0")) - len(content.rstrip(b"\0")) % UNIT_SIZE
    at = used - UNIT_SIZE if used == len(content) else used
    wrong = UNIT.read(content, at)._replace(physical_offset=UNIT.read(content, at)[0] + 7)
    content[at : at + UNIT_SIZE] = UNIT.write(wrong)
    newest.write_bytes(content)
    _, recovery = reopen(model)
    assert recovery.end_offset == model.order[-1][2]
    assert 1 < recovery.records <= 6
    assert recovery.rebuilt_queues == 1
    model.check_store()


# ── Many segments, many queues ──

MiB = 1 << 20
SEGMENTS, TOPICS = 40, 50


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[StoreModel]:
    """40 segments of 1 MiB, 100 queues with units in all of them."""
    model = StoreModel(
        tmp_path / "d",
        mapped_file_size_commit_log_bytes=MiB,
        mapped_file_size_consume_queue_bytes=100_000 * UNIT_SIZE,
        message_index_enable=False,
    )
    for number in range(SEGMENTS):
        for queue in range(2 * TOPICS):
            model.put(f"T{queue % TOPICS}", queue // TOPICS, Sent(b"x" * 10_000, b""))
        model.store.dispatch()
        if number == SEGMENTS // 2:
            flush_everything(model.store, model.disk)
    yield model
    model.disk.kill()


def test_a_clean_start_costs_a_few_reads_per_queue_whatever_the_log_holds(
    wide: StoreModel,
) -> None:
    assert len(wide.store.commit_log.queue.files) >= SEGMENTS - 2
    assert trio.run(wide.store.close)
    wide.disk.calls.clear()
    _, recovery = reopen(wide, **wide.changes)
    assert recovery.clean
    assert recovery.records == 1
    names = [call.name for call in wide.disk.calls]
    assert names.count("mmap") <= 2
    assert names.count("pread") <= 6 * 2 * TOPICS + 20
    assert names.count("fdatasync") + names.count("fsync") <= 8
    wide.check_store()


def test_many_queues_are_built_again_after_a_kill(wide: StoreModel) -> None:
    wide.crash()
    assert wide.store.stats.recovery.step == "sync"
    wide.check_store()
    check_directory(wide.root)


def forget(path: Path, offset: int) -> None:
    """Have the system drop the pages of a file, and at last that of this offset: at the first word
    it may not want to.
    """
    in_memory = ctypes.create_string_buffer(1)
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        with mmap(file.fileno(), 0, flags=MAP_PRIVATE) as mapped:
            page = (ctypes.c_char * len(mapped)).from_buffer(mapped)
            address = ctypes.addressof(page) + offset // PAGESIZE * PAGESIZE

            def dropped() -> bool:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                assert not LIBC.mincore(ctypes.c_void_p(address), ctypes.c_size_t(1), in_memory)
                return not in_memory.raw[0] & 1

            eventually(dropped, within_s=DROPPED_WITHIN_S, what="the page is not in memory")
            del page


@pytest.mark.trio
async def test_a_file_system_that_was_mounted_anew_says_nothing_of_a_kill(tmp_path: Path) -> None:
    async with running_store(tmp_path, Disk(), mapped_file_size_commit_log_bytes=1 << 20) as store:
        # Further than what is read ahead of the first page.
        for _ in range(4):
            store.put(draft(body=bytes(200_000)))
        store.put(draft())
        store.dispatch()
        log, last = store.commit_log, store.dispatcher.last_position
        point = RecoveryPoint(
            number=1,
            owner="o",
            boot="b",
            log_end=log.max_offset,
            queues_end=0,
            queues_units=0,
            units=5,
            last=last,
            last_crc=log.head_crc(last),
        )
    forget(tmp_path / "commitlog" / segment_name(0), last)
    config = small_config(tmp_path, mapped_file_size_commit_log_bytes=1 << 20)
    log = MessageStore(config, disk=Disk(), clock=ManualClock()).commit_log
    log.load()
    assert kind_of(log, point) is StartKind.POWER_CUT
