"""The state at a clean stop: begin and end of log and queues, and the newest file of the index.

After a clean stop nothing else tells how far a queue went, so one whose files are gone would begin
again at number 0; nor that the messages behind the last key in the index have none. The file is
ours alone; other brokers ignore it. If the log is as written here, the rest can be trusted: a
broker that was here in between and stored something moved its end. A file that does not match its
CRC is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.log.commit_log import CommitLog
    from aerobee.store.queues.consume_queues import ConsumeQueues


class QueueEnds(NamedTuple):
    """The first queue offset that could be read, and the number of the next message."""

    begin: int
    end: int


class LastStop(msgspec.Struct, frozen=True):
    """A log from its first byte to its end, and the queues that ever had a message."""

    log_begin: int
    log_end: int
    queues: dict[str, dict[int, QueueEnds]]
    """By topic and queue id."""
    index_file: str | None = None
    """The name of the newest index file, "" without one; None when the index lacks a message."""

    @classmethod
    def of(cls, log: CommitLog, queues: ConsumeQueues, index_file: str | None) -> LastStop:
        """The state of queues that are completely in their files."""
        topics: dict[str, dict[int, QueueEnds]] = {}
        for (topic, queue_id), queue in queues.table.items():
            if queue.end_offset:
                ends = QueueEnds(queue.min_offset, queue.end_offset)
                topics.setdefault(topic, {})[queue_id] = ends
        return cls(log.min_offset, log.max_offset, topics, index_file)


class _Document(msgspec.Struct):
    """The file: JSON, and its CRC."""

    crc: int
    stop: msgspec.Raw


class LastStopFile:
    """Read at a clean start, written at the end of a clean stop. Blocking."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def load(self) -> LastStop | None:
        """The saved state; None without a valid file. Raises: OSError."""
        if not self._disk.exists(self.path):
            return None
        try:
            document = msgspec.json.decode(self._disk.read(self.path), type=_Document)
            if crc32(document.stop) != document.crc:
                return None
            return msgspec.json.decode(document.stop, type=LastStop)
        except msgspec.DecodeError:
            return None

    def write(self, stop: LastStop) -> None:
        """Replace it, durably. Raises: OSError."""
        body = msgspec.json.encode(stop)
        document = _Document(crc32(body), msgspec.Raw(body))
        self._disk.write_atomically(self.path, msgspec.json.encode(document), backup=False)
