"""What must hold of a store directory after every test that used one.

`check_closed` for a store that was closed, `check_running` for one whose services still run. The
files are walked by `store_model.check_directory`, with nothing but the format's words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.files.disk import Disk
from aerobee.store.flush.checkpoint_file import CheckpointFile
from aerobee.store.format.names import ABORT, CHECKPOINT, is_spare
from aerobee.store.format.record import NOT_QUEUED
from aerobee.store.format.unit import UNIT_SIZE
from tests.kit.records import header_of
from tests.kit.store_model import check_directory, log_records

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.message_store import MessageStore


def check_closed(root: Path, *, clean: bool = True) -> None:
    """Log and queues agree, nothing is left over, the checkpoint promises no more than there is.

    Without a clean stop the abort file is there; what is behind it is for recovery.
    """
    names = {path.name for path in root.iterdir()}
    assert (ABORT in names) is not clean
    if clean:
        check_directory(root)
    assert not any(is_spare(name) for name in names), names
    times = [stored for _, stored, _ in _headers(root)]
    checkpoint = CheckpointFile(Disk(), root / CHECKPOINT).load()
    last = max(times, default=0)
    assert checkpoint.physic_msg_timestamp <= last
    assert checkpoint.logics_msg_timestamp <= last
    if clean and times:
        assert checkpoint.min_timestamp >= last - 3_000


def check_running(store: MessageStore) -> None:
    """The laws of a store at any instant of the loop."""
    log = store.commit_log
    assert log.min_offset <= log.flushed <= log.max_offset
    assert store.dispatcher.dispatched <= log.max_offset
    pending = store.dispatcher.pending
    if pending and not store.dispatch_behind_bytes:
        raise AssertionError("handed over twice")
    for file in log.queue.files:
        assert 0 <= file.flushed <= file.wrote <= file.size
    counters = _counters(store)
    for key, queue in store.queues.table.items():
        assert queue.min_offset <= queue.end_offset <= queue.next_offset
        assert queue.tail_position <= queue.written <= queue.end_offset * UNIT_SIZE
        assert queue.synced <= queue.written
        assert queue.tail_position + len(queue.tail) == queue.end_offset * UNIT_SIZE
        assert counters.get(key, queue.next_offset) == queue.next_offset
        _check_units(store, *key)


def _counters(store: MessageStore) -> dict[tuple[str, int], int]:
    """The next queue offset of every queue, from the log."""
    found: dict[tuple[str, int], int] = {}
    for _, header in store.commit_log.walk(store.commit_log.min_offset, crc=True):
        topic, queue_id, queue_offset = header.topic, header.queue_id, header.queue_offset
        if not header.sys_flag & NOT_QUEUED:
            # Zero again: the queue was deleted in between.
            assert queue_offset in (0, found.get((topic, queue_id), queue_offset)), "dense"
            found[topic, queue_id] = queue_offset + 1
    return found


def _check_units(store: MessageStore, topic: str, queue_id: int) -> None:
    """Units lead to records of that queue and number, in rising places."""
    queue = store.queues.table[topic, queue_id]
    last = -1
    for queue_offset in range(queue.min_offset, queue.end_offset):
        unit = queue.unit(queue_offset)
        assert unit is not None
        record = store.commit_log.record(unit.physical_offset, unit.size)
        assert record is not None
        header = header_of(record, 0, unit.physical_offset)
        assert (header.topic, header.queue_id) == (topic, queue_id)
        assert header.queue_offset == queue_offset
        assert unit.physical_offset > last
        last = unit.physical_offset


def _headers(root: Path) -> list[tuple[int, int, str]]:
    found = []
    for position, data in log_records(root):
        header = header_of(data, 0, position, crc=True)
        found.append((position, header.store_timestamp, header.topic))
    return found
