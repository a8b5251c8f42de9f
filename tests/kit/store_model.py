"""A store to play with, what it should hold as plain lists, and a checker of the files.

`StoreModel` drives a real `MessageStore` on small files and remembers every message it took;
`check_store` compares, `check_directory` walks the files with nothing but the format's words.
"""

from __future__ import annotations

import os
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import trio

from aerobee.store.config import StoreConfig
from aerobee.store.flush.checkpoint_file import CheckpointFile
from aerobee.store.format.faults import BLANK
from aerobee.store.format.names import (
    CHECKPOINT,
    COMMIT_LOG,
    CONSUME_QUEUE,
    QUEUE_EXTENTS,
    segment_start,
)
from aerobee.store.format.properties import closed
from aerobee.store.format.record import (
    NOT_QUEUED,
    MessageDraft,
    encode,
    read,
)
from aerobee.store.format.tags import tags_code_of
from aerobee.store.format.unit import UNIT, UNIT_SIZE, DelayLevels, code_of, is_blank
from aerobee.store.format.walk import Walk
from aerobee.store.message_store import MessageStore
from aerobee.store.results import GetStatus, PutStatus
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.records import header_of, kind_or_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.results import PutResult, Recovery

HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
LOG_BYTES = 4_096
QUEUE_BYTES = 10 * UNIT_SIZE
INDEX_SLOTS = 20
INDEX_ENTRIES = 30
_LEVELS = DelayLevels()


class ManualClock:
    """Time that passes when the test says so."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1_000


class Sent(NamedTuple):
    """A message as it was put."""

    body: bytes
    properties: bytes

    @property
    def stored(self) -> Sent:
        """As records have it."""
        return self._replace(properties=closed(self.properties))


def small_config(root: Path, **changes: object) -> StoreConfig:
    """Segments of 4 KiB, queue files of ten units, index files of 29 keys: borders come often."""
    settings: dict[str, object] = {
        "store_path_root_dir": str(root),
        "mapped_file_size_commit_log_bytes": LOG_BYTES,
        "mapped_file_size_consume_queue_bytes": QUEUE_BYTES,
        "max_hash_slot_num": INDEX_SLOTS,
        "max_index_num": INDEX_ENTRIES,
    }
    return StoreConfig(**(settings | changes))  # type: ignore[arg-type]  # checked by its tests


def draft(
    topic: str = "T",
    queue_id: int = 0,
    body: bytes = b"hello",
    properties: bytes = b"",
    *,
    sys_flag: int = 0,
) -> MessageDraft:
    """A message from this machine to itself."""
    tags_code = tags_code_of(properties)
    return MessageDraft(
        topic, queue_id, body, properties, HOST, HOST, sys_flag=sys_flag, tags_code=tags_code
    )


def batch_body(messages: Sequence[Sent]) -> bytes:
    """The body of a batch request."""
    return b"".join(
        (22 + len(body) + len(properties)).to_bytes(4, "big")
        + bytes(12)
        + len(body).to_bytes(4, "big")
        + body
        + len(properties).to_bytes(2, "big")
        + properties
        for body, properties in messages
    )


def open_store(
    root: Path, disk: Disk, clock: ManualClock | None = None, **changes: object
) -> tuple[MessageStore, Recovery]:
    """A loaded store; what recovery said."""
    store = MessageStore(small_config(root, **changes), disk=disk, clock=clock or ManualClock())
    return store, store.load()


def flush_everything(store: MessageStore, disk: Disk) -> None:
    """One thorough round of the flush services, here and now, checkpoint included."""
    store.commit_log.sync_all()
    store.queues.write_all(sync=True)
    at = store.commit_log.last_store_timestamp
    CheckpointFile(disk, store.root / CHECKPOINT).write(at, at)
    if not store.dispatch_behind_bytes:
        store.points.write_now()


def read_queue(store: MessageStore, topic: str, queue_id: int, most: int = 7) -> list[Sent]:
    """Every message of a queue, paged as a consumer pages."""
    found: list[Sent] = []
    at = store.min_offset(topic, queue_id)
    while True:
        result = store.get(topic, queue_id, at, most)
        if result.status is GetStatus.FOUND:
            for view in result.views:
                position = 0
                while position < len(view):
                    record = read(view, position)
                    assert (record.topic, record.queue_id) == (topic, queue_id)
                    assert record.queue_offset == store.min_offset(topic, queue_id) + len(found)
                    assert kind_or_size(view, position, record.physical_offset) == record.size
                    found.append(Sent(bytes(record.body), record.properties))
                    position += record.size
        elif result.status is not GetStatus.OFFSET_FOUND_NULL:
            assert result.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE)
            return found
        assert result.next_begin_offset > at
        at = result.next_begin_offset


class StoreModel:
    """A store and, beside it, what was put into it, in log order and by queue."""

    def __init__(self, root: Path, **changes: object) -> None:
        self.root = root
        self.changes = changes
        self.clock = ManualClock()
        self.disk = FaultyDisk(root)
        self.queues: dict[tuple[str, int], list[Sent]] = defaultdict(list)
        self.order: list[tuple[str, int, int]] = []
        """(topic, queue id, end in the log) of every message, in log order."""
        self.store, self.recovery = open_store(root, self.disk, self.clock, **changes)

    def put(self, topic: str, queue_id: int, sent: Sent) -> PutResult:
        """One message; it is in the model iff the store took it."""
        self.clock.ms += 1
        result = self.store.put(draft(topic, queue_id, sent.body, sent.properties))
        if result.status is PutStatus.PUT_OK:
            assert result.queue_offset == len(self.queues[topic, queue_id])
            self.queues[topic, queue_id].append(sent.stored)
            self.order.append((topic, queue_id, result.end_offset))
        return result

    def put_batch(self, topic: str, queue_id: int, messages: Sequence[Sent]) -> PutResult:
        """Several messages, all or none."""
        self.clock.ms += 1
        result = self.store.put_batch(draft(topic, queue_id), batch_body(messages))
        if result.status is PutStatus.PUT_OK:
            end = result.physical_offset
            for number, sent in enumerate(messages):
                message = draft(topic, queue_id, sent.body, sent.properties)
                end += len(encode(message, number, 0, 0))
                self.queues[topic, queue_id].append(sent.stored)
                self.order.append((topic, queue_id, end))
        return result

    def save_extents(self) -> None:
        """As behind a thorough round, some time after the newest change of a queue file."""
        flush_everything(self.store, self.disk)
        trio.run(self.store.points.extents.save)
        self.store.points.write_now()
        path = self.root / QUEUE_EXTENTS
        if path.exists():
            files = (self.root / CONSUME_QUEUE).glob("*/*/*")
            newest = max(file.stat().st_ctime for file in files)
            os.utime(path, (newest + 1, newest + 1))

    def crash(self) -> None:
        """kill -9: the page cache stays."""
        self.disk.kill()
        self._reopen()
        assert not self.recovery.clean

    def stop(self) -> None:
        """A clean stop and the next start."""
        assert trio.run(self.store.close)
        self._reopen()
        assert self.recovery.clean
        assert self.recovery.cut_bytes == 0

    def _reopen(self) -> None:
        self.store, self.recovery = open_store(self.root, self.disk, self.clock, **self.changes)

    def forget_behind(self, end_offset: int) -> None:
        """What a power cut took: the model keeps the messages that end at or before this byte."""
        while self.order and self.order[-1][2] > end_offset:
            topic, queue_id, _ = self.order.pop()
            self.queues[topic, queue_id].pop()

    def check_store(self) -> None:
        """Every queue holds what was put, dispatched or not."""
        self.store.dispatch()
        for (topic, queue_id), sent in self.queues.items():
            assert self.store.max_offset(topic, queue_id) == len(sent)
            assert read_queue(self.store, topic, queue_id) == sent
        for key, queue in self.store.queues.table.items():
            assert queue.end_offset == len(self.queues[key])


# ── The files, read without the store ──


def _segments(directory: Path) -> list[tuple[int, bytes]]:
    found = []
    for path in sorted(directory.iterdir()) if directory.exists() else []:
        start = segment_start(path.name)
        assert start is not None, f"{path} does not belong here"
        found.append((start, path.read_bytes()))
    for (start, data), (following, other) in pairwise(found):
        assert start + len(data) == following
        assert len(data) == len(other)
    return found


def log_records(root: Path) -> list[tuple[int, bytes]]:
    """(physical offset, bytes) of every record; behind the last one there are only zeros."""
    found = []
    segments = _segments(root / COMMIT_LOG)
    for index, (start, data) in enumerate(segments):
        walk = Walk(data, start, start, start + len(data), crc=True)
        found += [(begin, data[begin - start :][: header.size]) for begin, header in walk]
        at = walk.stop.physical_offset - start
        if walk.stop.kind == BLANK:
            assert int.from_bytes(data[at : at + 4], "big") == len(data) - at
        else:
            assert not data[at:].strip(b"\0"), f"old bytes behind {start + at}"
            assert not any(later.strip(b"\0") for _, later in segments[index + 1 :])
            break
    return found


def queue_files(root: Path) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """The files of every queue that has any."""
    directory = root / CONSUME_QUEUE
    return {
        (path.parent.name, int(path.name)): _segments(path)
        for path in sorted(directory.glob("*/*"))
        if path.is_dir() and any(path.iterdir())
    }


def check_directory(root: Path) -> None:
    """Log and queues agree, unit by unit; sizes, names and ends are as they must be.

    For a store that is closed, or was just recovered.
    """
    expected: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = defaultdict(dict)
    last_time = 0
    for position, data in log_records(root):
        header = header_of(data, 0, position, crc=True)
        topic, queue_id, queue_offset = header.topic, header.queue_id, header.queue_offset
        stored = header.store_timestamp
        assert stored >= last_time
        last_time = stored
        if not header.sys_flag & NOT_QUEUED:
            units = expected[topic, queue_id]
            if queue_offset == 0:
                # The queue was deleted in between, if there was one.
                units.clear()
            assert not units or queue_offset == max(units) + 1, "offsets are dense"
            code = code_of(topic, header.properties, stored, _LEVELS)
            units[queue_offset] = (position, header.size, code)
    files = queue_files(root)
    begin = min((start for start, _ in _segments(root / COMMIT_LOG)), default=0)
    assert set(files) >= set(expected)
    assert begin or set(files) == set(expected)
    for key, segments in files.items():
        _check_queue(segments, expected[key], begin)


def _check_queue(
    segments: list[tuple[int, bytes]], expected: dict[int, tuple[int, int, int]], begin: int
) -> None:
    """`begin` is where the log begins: units of deleted messages may be left."""
    found: dict[int, tuple[int, ...]] = {}
    end = segments[0][0]
    for start, data in segments:
        assert data.strip(b"\0"), "an all-zero file is a phantom message to other brokers"
        for index, unit in enumerate(UNIT.iter_unpack(data)):
            if unit[1] > 0:
                assert start + index * UNIT_SIZE == end, "units lie side by side"
                end += UNIT_SIZE
                if not is_blank(unit[0], unit[1]) and unit[0] >= begin:
                    found[start // UNIT_SIZE + index] = unit
            else:
                assert unit == (0, 0, 0)
    assert found == expected
