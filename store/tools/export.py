"""Exports the readable messages of a store directory into files that can be sent again.

Each topic has a file of JSON lines, in the order of the log, in the form of `consume --json`, which
`aerobee produce` takes. The passage goes on behind damage; what was left out is reported with its
place. The directory is not changed. Invariant: a file has its name only when the whole export is on
the disk; an export that fails leaves no file. Meanwhile no other export writes there.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from aerobee.store.errors import StoreLocked, StoreUnusable
from aerobee.store.files.disk import Disk
from aerobee.store.format.faults import CRC
from aerobee.store.format.properties import decode
from aerobee.store.tools.directory import opened
from aerobee.store.tools.dump import iso_time, records
from aerobee.store.tools.findings import Findings
from aerobee.store.tools.passage import Passage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.store.files.disk import Handle
    from aerobee.store.format.record import Record
    from aerobee.store.tools.dump import DumpFilter

    Unpack = Callable[[bytes, int], bytes]

BUFFER_BYTES: Final = 8 << 20
"""Lines are written when so much is waiting, over all topics."""
NAME_MAX: Final = 200
SUFFIX: Final = ".jsonl"
DRAFT: Final = ".aerobee-export.tmp"
"""Behind the name of a file that is not whole; no other program gives such names."""
OTHERS: Final = re.compile(r"[^%|A-Za-z0-9_+-]")
"""Signs that no broker has in the name of a topic: there they are damage."""


class Export(Findings):
    """The result of an export; `damage` says where something was left out."""

    path: str = ""
    output: str = ""
    messages: int = 0
    topics: dict[str, int] = msgspec.field(default_factory=dict)
    """The number of messages by name of file."""
    damaged_bodies: int = 0
    """Messages that were left out because their bodies are not what was sent."""
    unreadable_bytes: int = 0
    """The size of the regions of the log where no message can be read."""


def export(
    root: Path,
    output: Path,
    wanted: DumpFilter,
    *,
    unpack: Unpack,
    log: Path | None = None,
) -> Export:
    """Write the wanted messages below `output`, durably.

    `unpack` takes a body and its sysFlag, and raises ValueError where it cannot be unpacked.
    Raises: StoreRefused, StoreLocked where another export writes into `output`, StoreUnusable where
    it has messages already or is part of the store, OSError.
    """
    result = Export(path=str(root), output=str(output))
    disk = Disk()
    target = output.resolve()
    for part in {root, log or root}:
        if target.is_relative_to(part.resolve()):
            raise StoreUnusable(f"{output} is in the store: name a directory outside of {part}")
    with opened(root, result, log) as directory, _Lines(disk, output) as lines:
        passage = Passage(directory, result, crc=False)
        for record, sound in records(passage, wanted):
            try:
                if not sound:
                    raise ValueError("the body is not what its CRC says")
                body = unpack(bytes(record.body), record.sys_flag)
            except ValueError as error:
                result.damaged_bodies += 1
                place = f"{record.topic}-{record.queue_id}"
                text = f"queue offset {record.queue_offset} left out: {error}"
                result.damaged(CRC, place, text, record.physical_offset)
                continue
            lines.add(record.topic, line_of(record, body))
        result.unreadable_bytes = sum(
            end - begin for begin, end in passage.regions if end > wanted.behind
        )
    result.topics = dict(sorted(lines.counts.items()))
    result.messages = sum(lines.counts.values())
    return result


def line_of(record: Record, body: bytes) -> dict[str, Any]:
    """A message as `consume --json` prints it, without the broker."""
    properties = decode(record.properties)
    try:
        shown = {"body": body.decode()}
    except UnicodeDecodeError:
        shown = {"body_base64": base64.b64encode(body).decode()}
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "message_id": properties.get("UNIQ_KEY"),
        "tag": properties.get("TAGS"),
        "keys": properties.get("KEYS", "").split(),
        "properties": properties,
        "born_at": iso_time(record.born_timestamp),
        "stored_at": iso_time(record.store_timestamp),
        **shown,
    }


def file_name(topic: str) -> str:
    """The name of the topic's file, and of no other topic's."""
    name = OTHERS.sub("_", topic)[:NAME_MAX]
    if name != topic:
        # No topic has a dot.
        name += f".{hashlib.sha256(topic.encode()).hexdigest()[:8]}"
    return name + SUFFIX


class _Lines:
    """The files of an export, appended to by turns, so that any number of topics takes one
    descriptor. They get their names at the end, or are removed.
    """

    def __init__(self, disk: Disk, output: Path) -> None:
        self._disk = disk
        self._output = output
        self._waiting: dict[str, list[bytes]] = {}
        self._waiting_bytes = 0
        self._sizes: dict[str, int] = {}
        self._whole: list[Path] = []
        self._lock: Handle | None = None
        self.counts: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._disk.mkdir(self._output)
        try:
            self._lock = self._disk.lock_directory(self._output)
        except BlockingIOError as error:
            text = "another store export writes there: wait until it ends, or name"
            raise StoreLocked(f"{self._output}: {text} another directory") from error
        try:
            self._clear()
        except BaseException:
            self._lock.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._lock is not None, self
        done = False
        with self._lock:
            try:
                if kind is None:
                    self._finish()
                    done = True
            finally:
                if not done:
                    self._remove()

    def _clear(self) -> None:
        """Remove what a killed export left. Raises: StoreUnusable where one has ended."""
        names = self._disk.listdir(self._output)
        if any(name.endswith(SUFFIX) for name in names):
            text = "has exported messages already: name another directory"
            raise StoreUnusable(f"{self._output} {text}")
        for name in names:
            if name.endswith(SUFFIX + DRAFT):
                self._disk.remove(self._output / name)

    def add(self, topic: str, line: dict[str, Any]) -> None:
        """Add a line to the file of its topic."""
        name = file_name(topic)
        data = msgspec.json.encode(line) + b"\n"
        self._waiting.setdefault(name, []).append(data)
        self.counts[name] = self.counts.get(name, 0) + 1
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= BUFFER_BYTES:
            self._write()

    def _finish(self) -> None:
        """Write what waits, make all of it durable, and give it its names."""
        self._write()
        for name in self._sizes:
            with self._disk.open(self._draft(name)) as handle:
                self._disk.sync(handle)
        for name in self._sizes:
            self._disk.rename(self._draft(name), self._output / name)
            self._whole.append(self._output / name)
        self._disk.sync_directory(self._output)

    def _remove(self) -> None:
        for path in (*map(self._draft, self._sizes), *self._whole):
            self._disk.remove(path, missing_ok=True)

    def _write(self) -> None:
        for name, lines in self._waiting.items():
            data, size = b"".join(lines), self._sizes.setdefault(name, 0)
            with self._disk.open(self._draft(name), create=not size) as handle:
                handle.pwrite(data, size)
            self._sizes[name] = size + len(data)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _draft(self, name: str) -> Path:
        return self._output / (name + DRAFT)
