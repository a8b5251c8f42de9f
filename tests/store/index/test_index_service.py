"""The index follows the log: live, after losing the hand-over, after stops and crashes."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from aerobee.store.files.disk import Disk
from aerobee.store.flush.checkpoint_file import CheckpointFile
from aerobee.store.format.index import INDEX_ENTRY, INDEX_SLOT, index_key, key_hash, keys_of
from aerobee.store.format.names import CHECKPOINT
from aerobee.store.format.properties import encode
from aerobee.store.format.record import TRANSACTION_MASK, TRANSACTION_ROLLBACK, queue_offsets
from aerobee.store.index import index_service
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.index_candidates import candidates
from tests.kit.quick_disk import WornDisk
from tests.kit.running_store import running_store
from tests.kit.store_model import ManualClock, Sent, batch_body, draft, flush_everything, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.store.index.index_file import IndexFile
    from aerobee.store.message_store import MessageStore

FOR_EVER = 1 << 62
MANY: dict[str, Any] = {"max_hash_slot_num": 50, "max_index_num": 4_000}
LONG: dict[str, Any] = {"mapped_file_size_commit_log_bytes": 1 << 20}


def put(store: MessageStore, keys: str = "", unique: str = "", **changes: Any) -> int:
    """Physical offset of a message that is dispatched, too."""
    properties = encode({"UNIQ_KEY": unique, "KEYS": keys}).encode()
    message = draft(properties=properties)
    for name, value in changes.items():
        setattr(message, name, value)
    at = store.put(message).physical_offset
    store.dispatch()
    return at


async def settle(store: MessageStore) -> None:
    """Build all there is, in place of the service's own task, and write it."""
    service = store.index.service
    while await service.step():
        pass
    assert service.behind_bytes == 0
    await service.write()


def index_promise(store: MessageStore) -> int:
    """Up to which store time the checkpoint says that the index is on disk."""
    return CheckpointFile(Disk(), store.root / CHECKPOINT).load().index_msg_timestamp


def contents(store: MessageStore) -> list[bytes]:
    directory = store.index.service.files.directory
    return [path.read_bytes() for path in sorted(directory.glob("*"))]


def places(store: MessageStore, key: str, topic: str = "T") -> list[int]:
    """Where the log has messages with the key, read message by message."""
    return [
        at
        for at, header in store.commit_log.walk(store.commit_log.min_offset)
        if header.topic == topic
        and key.encode() in keys_of(header.properties)
        and header.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
    ]


def check_index(store: MessageStore) -> None:
    """Heads agree with a recount, chains fall to 0, every key of every message is found."""
    files = store.index.service.files
    for file in files.files:
        check_file(file)
    for at, header in store.commit_log.walk(store.commit_log.min_offset):
        if header.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            continue
        for key in keys_of(header.properties):
            value = key_hash(index_key(header.topic, key.decode()))
            assert at in candidates(
                files.walk(value, header.store_timestamp, header.store_timestamp)
            ), (
                at,
                key,
            )


def check_file(file: IndexFile) -> None:
    data, shape, head = file.path.read_bytes(), file.shape, file.head
    assert len(data) == shape.size
    entries = list(
        INDEX_ENTRY.rows(data[shape.entry_position(0) : shape.entry_position(head.index_count)])
    )
    slots = [slot for (slot,) in INDEX_SLOT.iter_unpack(data[40 : shape.entry_position(0)])]
    assert sum(slot > 0 for slot in slots) == head.hash_slot_count
    assert not any(data[shape.entry_position(head.index_count) :])
    seen = 0
    for number, slot in enumerate(slots):
        while slot:
            entry = entries[slot]
            assert entry.key_hash % shape.slots == number
            assert entry.previous < slot
            slot = entry.previous
            seen += 1
    assert seen == head.index_count - 1, "every entry hangs on a chain"


KEYS = st.sampled_from(["", "k", "k l", "Aa", "BB Aa", "ключ", "k k"])
MESSAGES = st.lists(st.tuples(KEYS, st.booleans(), st.sampled_from([0, 4, 8, 12])), max_size=60)


@settings(max_examples=25, deadline=None)
@given(messages=MESSAGES, batch=st.integers(1, 25))
def test_every_key_is_found_and_an_index_from_the_log_has_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[tuple[str, bool, int]],
    batch: int,
) -> None:
    root = tmp_path_factory.mktemp("store")

    async def live() -> None:
        store, _ = open_store(root, Disk())
        for number, (keys, unique, sys_flag) in enumerate(messages):
            put(store, keys, f"{number:032X}" if unique else "", sys_flag=sys_flag)
            if number % batch == 0:
                await settle(store)
        await settle(store)
        check_index(store)
        built = contents(store)
        service = store.index.service
        for file in service.files.files:
            file.path.unlink()
        service.files.files.clear()
        service.abandon()
        service.indexed = 0
        await settle(store)
        assert contents(store) == built
        assert await store.close()

    trio.run(live)


@pytest.mark.trio
@pytest.mark.parametrize(("hurry", "pauses"), [(10_000, 4), (1_000, 2), (0, 0)])
async def test_a_long_queue_is_taken_without_pauses(
    tmp_path: Path,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    hurry: int,
    pauses: int,
) -> None:
    """Five slices: 2,000 messages wait, then 1,600, 1,200, 800 and 400."""
    monkeypatch.setattr(index_service, "HURRY", hurry)
    store, _ = open_store(tmp_path, Disk(), mapped_file_size_commit_log_bytes=1 << 20)
    put(store, unique="first")
    await settle(store)
    for number in range(2_000):
        put(store, unique=f"{number:032X}")
    began = trio.current_time()
    await store.index.service.build()
    assert store.index.service.behind_bytes == 0
    assert trio.current_time() - began == pytest.approx(pauses * index_service.PAUSE_S)
    await store.close()


@pytest.mark.trio
async def test_what_the_hand_over_forgot_is_parsed_from_the_log(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk(), **MANY)
    service = store.index.service
    for number in range(300):
        put(store, f"k{number}")
        if number == 200:
            service.pending.clear()
    await settle(store)
    assert store.stats.index_parsed >= 201
    assert store.stats.keys_indexed == 300
    check_index(store)
    assert await store.close()


@pytest.mark.trio
@pytest.mark.parametrize("how", ["handed over", "parsed", "put at once"])
async def test_messages_with_very_many_keys_are_indexed_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """R8: 128 messages with 16,000 keys each, a batch of 4 MiB, stopped the loop for 1.6 s."""
    monkeypatch.setattr(index_service, "KEYS_STEP", 50)
    store, _ = open_store(
        tmp_path,
        Disk(),
        mapped_file_size_commit_log_bytes=1 << 20,
        max_message_size_bytes=1 << 18,
        **MANY,
    )
    service = store.index.service
    texts = [
        " ".join(f"k{number}-{key}" for key in range(40 if number else 160)) for number in range(20)
    ]
    if how == "put at once":
        batch = batch_body([Sent(b"", encode({"KEYS": text}).encode()) for text in texts])
        assert store.put_batch(draft(), batch).count == 20
        store.dispatch()
    else:
        for text in texts:
            put(store, text)
    if how == "parsed":
        service.pending.clear()
    collected = indexed = 0
    while await service.step():
        took, indexed = store.stats.keys_indexed - indexed, store.stats.keys_indexed
        assert took <= 50
        collected = max(collected, took + len(service.collected))
    assert collected == 160, "those of one message, however many, or one more than a step's worth"
    await settle(store)
    assert store.stats.keys_indexed == 160 + 19 * 40
    check_index(store)
    assert await store.close()


@pytest.mark.trio
async def test_long_messages_are_indexed_in_steps_of_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R8: to find one key among 8,000 names takes time as well."""
    monkeypatch.setattr(index_service, "SLICE_BYTES", 2_000)
    store, _ = open_store(tmp_path, Disk(), **MANY)
    for number in range(20):
        put(store, f"k{number}", body=bytes(900))
    steps = 1
    while await store.index.service.step():
        steps += 1
    assert 7 <= steps <= 20
    await settle(store)
    check_index(store)
    assert await store.close()


@pytest.mark.trio
async def test_what_waits_to_be_indexed_keeps_no_more_properties_than_a_part_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R10: 16,384 messages with 32 KB of keys took 512 MB, and their keys take their time."""
    monkeypatch.setattr(index_service, "PENDING_BYTES", 10_000)
    monkeypatch.setattr(index_service, "KEYS_STEP", 50)
    store, _ = open_store(tmp_path, Disk(), **MANY)
    service = store.index.service
    for number in range(60):
        put(store, " ".join(f"k{number}-{key}" for key in range(100)))
        await service.step()
        assert sum(len(one.properties) for one in service.pending) < 12_000
    await settle(store)
    assert store.stats.keys_indexed == 6_000
    assert store.stats.index_parsed
    check_index(store)
    assert await store.close()


@pytest.mark.trio
async def test_messages_put_at_once_are_indexed_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.index.handed_over.SLICE", 7)
    monkeypatch.setattr(index_service, "PENDING_BYTES", 8_000)
    store, _ = open_store(tmp_path, Disk(), mapped_file_size_commit_log_bytes=1 << 20, **MANY)
    service = store.index.service
    parsed = 0
    for runs in (2, 40):
        for number in range(runs):
            put(store, f"single{number}")
            batch = [Sent(b"x", b"KEYS\x01r%d\x02" % n if n % 3 else b"") for n in range(10)]
            assert store.put_batch(draft(), batch_body(batch)).count == 10
            store.put_batch(draft(), batch_body([Sent(b"x", b"")] * 10))
            store.dispatch()
        span = store.dispatcher.dispatched - service.pending[0].physical_offset
        assert span < 8_000 + 4_000, "what waits for the index is bounded"
        before = parsed
        await settle(store)
        parsed = store.stats.index_parsed
        assert (parsed > before) == (runs == 40)
    assert store.stats.keys_indexed == 42 * 7
    check_index(store)
    assert await store.close()


@pytest.mark.trio
async def test_a_record_longer_than_a_chunk_is_parsed(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk(), mapped_file_size_commit_log_bytes=1 << 20)
    put(store, "a")
    at = put(store, "b", body=bytes(200_000))
    put(store, "c", body=bytes(900_000))
    store.index.service.pending.clear()
    await settle(store)
    assert (await store.index.query("T", "b", 9, 0, FOR_EVER)).records == [bytes(store.read(at))]  # type: ignore[arg-type]  # it is there
    check_index(store)
    assert await store.close()


@pytest.mark.trio
async def test_behind_a_record_that_is_none_any_more_all_others_are_indexed(tmp_path: Path) -> None:
    """Its segment has more of them, and nothing else looks at it again."""
    store, _ = open_store(tmp_path / "d", Disk(), **MANY, **LONG)
    offsets = [put(store, f"k{number}") for number in range(20)]
    assert await store.close()
    segment = next((tmp_path / "d" / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[offsets[5] + 4] ^= 1
    segment.write_bytes(data)
    shutil.rmtree(tmp_path / "d" / "index")
    store, _ = open_store(tmp_path / "d", Disk(), **MANY, **LONG)
    await settle(store)
    assert found_of(store, offsets) == [*range(5), *range(6, 20)]
    assert await store.close()


@pytest.mark.trio
async def test_a_sector_that_cannot_be_read_costs_the_keys_of_its_messages(tmp_path: Path) -> None:
    """It is tried twice; behind it all others are indexed."""
    disk, clock = WornDisk(), ManualClock()
    store, _ = open_store(tmp_path / "d", disk, clock=clock, **MANY, **LONG)
    bodies = [b"worn" * (number == 5) + bytes(9_000) for number in range(20)]
    offsets = [put(store, f"k{number}", body=body) for number, body in enumerate(bodies)]
    assert await store.close()
    shutil.rmtree(tmp_path / "d" / "index")
    store, _ = open_store(tmp_path / "d", disk, clock=clock, **MANY, **LONG)
    disk.bad = b"worn"
    for _ in range(3):
        while await store.index.service.step():
            pass
        clock.ms += 10_001
    await settle(store)
    assert {*range(4), *range(6, 20)} <= {*found_of(store, offsets)}
    assert await store.close()


@pytest.mark.trio
async def test_a_query_has_the_messages_of_its_milliseconds(tmp_path: Path) -> None:
    clock = ManualClock()
    store, _ = open_store(tmp_path / "d", Disk(), clock=clock)
    for _ in range(3):
        put(store, "k")
        clock.ms += 1
    await settle(store)
    second = clock.now_ms() - 2
    answer = await store.index.query("T", "k", 9, second, second)
    assert queue_offsets(answer.records) == [1]
    assert await store.close()


@pytest.mark.trio
async def test_a_query_leaves_out_what_the_disk_cannot_read(tmp_path: Path) -> None:
    disk = WornDisk()
    store, _ = open_store(tmp_path / "d", disk, clock=ManualClock(), **MANY, **LONG)
    for number in range(20):
        put(store, "k", body=b"worn" * (number == 5) + bytes(9_000))
    await settle(store)
    disk.bad = b"worn"
    answer = await store.index.query("T", "k", 32, 0, FOR_EVER)
    assert queue_offsets(answer.records) == [*range(5), *range(6, 20)]
    assert store.stats.records_damaged == 1
    assert await store.close()


def found_of(store: MessageStore, offsets: list[int]) -> list[int]:
    """The numbers of the messages that the index leads to by their keys."""
    files = store.index.service.files
    return [
        number
        for number, at in enumerate(offsets)
        if at in candidates(files.walk(key_hash(index_key("T", f"k{number}")), 0, FOR_EVER))
    ]


@pytest.mark.trio
async def test_a_clean_stop_leaves_nothing_to_do_and_the_last_file_goes_on(tmp_path: Path) -> None:
    for run in range(3):
        store, recovery = open_store(tmp_path, Disk())
        assert recovery.clean
        assert store.index.behind_bytes == 0
        for number in range(10):
            put(store, f"k{run} {number}")
        put(store)
        assert await store.close()
    store, _ = open_store(tmp_path, Disk())
    assert len(contents(store)) == 3, "60 keys, 29 in a file"
    check_index(store)
    assert store.stats.index_parsed == 0
    assert await store.close()


async def crash(root: Path, count: int, *, wrote: bool = True) -> None:
    """A run that is killed behind `count` keys."""
    disk = FaultyDisk(root)
    store, _ = open_store(root, disk)
    for number in range(count):
        put(store, f"k{number % 7}", f"{number:032X}")
    service = store.index.service
    while await service.step():
        pass
    if wrote:
        await service.write()
    flush_everything(store, disk)
    disk.kill()


@pytest.mark.trio
@pytest.mark.parametrize("wrote", [True, False])
async def test_after_a_crash_the_index_is_built_again_with_the_same_bytes(
    tmp_path: Path, wrote: bool
) -> None:
    whole, _ = open_store(tmp_path / "whole", Disk())
    for number in range(40):
        put(whole, f"k{number % 7}", f"{number:032X}")
    assert await whole.close()
    await crash(tmp_path / "killed", 40, wrote=wrote)
    store, recovery = open_store(tmp_path / "killed", Disk())
    assert not recovery.clean
    assert store.index.behind_bytes == store.commit_log.max_offset
    await settle(store)
    check_index(store)
    assert contents(store) == contents(whole)
    assert await store.close()


@pytest.mark.trio
async def test_a_full_file_that_is_vouched_for_survives_a_crash(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    store, _ = open_store(tmp_path, disk)
    last_of_first = [put(store, f"a{number}") for number in range(30)][-2]
    await settle(store)
    flush_everything(store, disk)
    checkpoint = CheckpointFile(disk, tmp_path / CHECKPOINT)
    times = checkpoint.load()
    assert store.index.service.durable_timestamp == times.physic_msg_timestamp
    checkpoint.write(*[times.physic_msg_timestamp] * 3)
    disk.kill()
    store, recovery = open_store(tmp_path, Disk())
    assert not recovery.clean
    (first,) = store.index.service.files.files
    assert first.full
    assert store.index.service.indexed == last_of_first
    await settle(store)
    check_index(store)
    assert store.stats.keys_indexed == 1
    assert await store.close()


@pytest.mark.trio
async def test_behind_a_file_of_java_no_key_is_missing(tmp_path: Path) -> None:
    """It has more entries of its last message than we make: 5.4 indexes the tags, too."""
    disk = FaultyDisk(tmp_path)
    store, _ = open_store(tmp_path, disk)
    for number in range(13):
        put(store, f"a{number} b{number}")
    last = put(store, "c d")
    store.index.service.pending[-1].properties = encode({"KEYS": "c d T#t"}).encode()
    await settle(store)
    flush_everything(store, disk)
    stored = store.commit_log.last_store_timestamp
    CheckpointFile(disk, tmp_path / CHECKPOINT).write(stored, stored, stored)
    put(store, "e f")
    disk.kill()
    store, recovery = open_store(tmp_path, Disk())
    assert not recovery.clean
    (file,) = store.index.service.files.files
    assert file.full
    assert file.entries_of(last) == 3
    await settle(store)
    check_index(store)
    assert store.stats.keys_indexed == 2
    assert await store.close()


@pytest.mark.trio
@pytest.mark.parametrize("count", [1, 28, 29, 30])
async def test_a_stop_says_of_the_index_what_is_in_full_files_as_java_does(
    tmp_path: Path, count: int
) -> None:
    """A Java broker that goes on here and is killed deletes the file that is not full, and with
    `messageIndexSafe` indexes again what was stored after the time in the checkpoint.
    """
    clock = ManualClock()
    store, _ = open_store(tmp_path, Disk(), clock=clock)
    for number in range(count):
        put(store, f"k{number}")
        clock.ms += 1
    assert await store.close()
    full = [file for file in store.index.service.files.files if file.full]
    assert len(full) == (count >= 29)
    assert index_promise(store) == (full[0].head.end_timestamp if full else 0)


@pytest.mark.trio
async def test_a_checkpoint_of_a_stop_that_covers_a_file_that_is_not_full_is_set_right(
    tmp_path: Path,
) -> None:
    """As versions before wrote it."""
    store, _ = open_store(tmp_path, Disk())
    put(store, "a")
    assert await store.close()
    stored = store.commit_log.last_store_timestamp
    CheckpointFile(Disk(), tmp_path / CHECKPOINT).write(stored, stored, stored)
    disk = FaultyDisk(tmp_path)
    store, _ = open_store(tmp_path, disk)
    assert not store.index.behind_bytes
    assert index_promise(store) == stored - 1
    assert store.index.service.durable_timestamp == stored - 1
    disk.kill()
    store, recovery = open_store(tmp_path, Disk())
    assert not recovery.clean
    assert store.index.service.files.files == []
    assert index_promise(store) == 0
    await settle(store)
    check_index(store)
    assert await store.close()


@pytest.mark.trio
async def test_without_room_for_a_file_messages_wait_in_the_log(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    store, _ = open_store(tmp_path, disk)
    put(store, "a")
    disk.faults.append(Fault(name="posix_fallocate", path="index", error=errno.ENOSPC, times=1))
    service = store.index.service
    assert not await service.step()
    assert service.behind_bytes > 0
    assert not store.flags.refusing
    assert not await service.step(), "not tried again at once"
    assert await store.close(), "a stop tries again"
    assert store.stats.keys_indexed == 1


@pytest.mark.trio
@pytest.mark.parametrize("count", [1, 40, 100])
async def test_what_a_stop_cannot_index_the_next_start_does(tmp_path: Path, count: int) -> None:
    disk = FaultyDisk(tmp_path)
    store, _ = open_store(tmp_path, disk)
    for number in range(count // 2):
        put(store, f"k{number}")
    await settle(store)
    for number in range(count // 2, count):
        # All in the same millisecond, as messages of a burst are.
        put(store, f"k{number}", f"{number:032X}")
    disk.faults.append(Fault(name="posix_fallocate", path="index", error=errno.ENOSPC, times=99))
    with capture_logs() as lines:
        assert await store.close()
    assert "index.unfinished" in [line["event"] for line in lines]
    disk.faults.clear()
    store, recovery = open_store(tmp_path, Disk())
    assert recovery.clean
    assert store.index.behind_bytes
    await settle(store)
    check_index(store)
    assert await store.close()
    store, _ = open_store(tmp_path, Disk())
    assert not store.index.behind_bytes
    check_index(store)
    assert await store.close()


@pytest.mark.trio
async def test_an_index_that_cannot_be_written_leaves_the_stop_unclean(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    store, _ = open_store(tmp_path, disk)
    put(store, "a")
    while await store.index.service.step():
        pass
    disk.faults.append(Fault(name="pwrite", path="index", error=errno.EIO, times=99))
    assert not await store.close()
    store, recovery = open_store(tmp_path, Disk())
    assert not recovery.clean
    await settle(store)
    check_index(store)
    assert await store.close()


@pytest.mark.trio
async def test_a_failed_sync_of_an_index_file_is_final(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    store, _ = open_store(tmp_path, disk)
    for number in range(31):
        put(store, f"k{number}")
    disk.faults.append(Fault(name="fdatasync", path="index", times=1))
    service = store.index.service
    assert not await service.step()
    assert store.flags.refusing
    assert service.durable_timestamp == 0
    assert not await store.close()


@pytest.mark.trio
async def test_turned_off_nothing_is_built_and_turned_on_again_nothing_is_missing(
    tmp_path: Path,
) -> None:
    import dataclasses

    store, _ = open_store(tmp_path, Disk(), message_index_enable=False)
    put(store, "a")
    service = store.index.service
    assert not await service.step()
    assert store.index.behind_bytes == 0
    assert not service.pending
    store.reconfigure(dataclasses.replace(store.config, message_index_enable=True))
    put(store, "b")
    await settle(store)
    store.reconfigure(dataclasses.replace(store.config, message_index_enable=False))
    put(store, "c")
    assert await store.close()
    store, recovery = open_store(tmp_path, Disk())
    assert recovery.clean
    await settle(store)
    check_index(store)
    assert store.stats.keys_indexed == 1
    assert await store.close()


@pytest.mark.trio
async def test_files_go_with_the_log_and_what_is_gone_is_not_indexed(tmp_path: Path) -> None:
    async with running_store(tmp_path, Disk()) as store:
        first = put(store, "old", body=bytes(3_000))
        for number in range(60):
            put(store, f"k{number}", body=bytes(300))
        while store.index.behind_bytes:
            await store.index.service.fresh()
        files = store.index.service.files.files
        assert len(files) == 3
        oldest = files[0].path
        assert await store.flush_queues()
        while files[0].head.end_physical_offset >= store.commit_log.min_offset:
            store.commit_log.queue.take_first().path.unlink()
        await store.space.queues.follow(store.commit_log.min_offset)
        assert not oldest.exists()
        assert len(files) == 2
        assert first < store.commit_log.min_offset
        assert (await store.index.query("T", "old", 9, 0, FOR_EVER)).records == []
        found = await store.index.query("T", "k59", 9, 0, FOR_EVER)
        assert len(found.records) == 1


@pytest.mark.trio
async def test_a_query_sees_what_was_dispatched_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may need longer for a file of the index than a query waits.
    monkeypatch.setattr("aerobee.store.index.index_service.FRESH_S", 60.0)
    async with running_store(tmp_path, Disk(), **MANY) as store:
        for number in range(50):
            put(store, f"k{number % 10} x")
            found = await store.index.query("T", f"k{number % 10}", 64, 0, FOR_EVER)
            assert len(found.records) == number // 10 + 1
        assert len((await store.index.query("T", "x", 99, 0, FOR_EVER)).records) == 50
        assert places(store, "k3") == [
            int.from_bytes(record[28:36])
            for record in (await store.index.query("T", "k3", 64, 0, FOR_EVER)).records
        ]


@pytest.mark.trio
async def test_a_query_does_not_wait_for_an_index_that_waits_itself(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """It asked again and again without a pause, and nothing else ran."""
    disk = FaultyDisk(tmp_path)
    disk.faults.append(Fault(name="posix_fallocate", path="index", error=errno.ENOSPC, times=99))
    store, _ = open_store(tmp_path, disk)
    put(store, "k")
    assert not await store.index.service.step()
    asked = autojump_clock.current_time()
    await store.index.service.fresh()
    assert autojump_clock.current_time() == asked
    assert store.index.behind_bytes
    disk.faults.clear()
    assert await store.close()


@pytest.mark.trio
async def test_a_query_finds_what_is_only_in_memory_and_writes_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, **MANY) as store:
        places = []
        for number in range(60):
            places.append(put(store, f"k{number % 3}"))
            if number == 30:
                while store.index.behind_bytes:
                    await store.index.service.fresh()
                await store.index.service.write()
        while store.index.behind_bytes:
            await store.index.service.fresh()
        before = sum(call.name == "pwrite" and "index" in str(call.path) for call in disk.calls)
        for key in range(3):
            found = await store.index.query("T", f"k{key}", 64, 0, FOR_EVER)
            wanted = places[key::3]
            assert [int.from_bytes(record[28:36]) for record in found.records] == wanted
        after = sum(call.name == "pwrite" and "index" in str(call.path) for call in disk.calls)
        assert after == before
        assert store.index.service.unwritten
