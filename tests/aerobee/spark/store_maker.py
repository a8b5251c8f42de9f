"""Store directories made record by record, as a broker makes them: small segments, queues, blanks.

What a broker would refuse to write can be written too, and bytes can be changed afterwards.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.spark.options import StoreOptions, store_options
from aerobee.store.format import properties as property_string
from aerobee.store.format.names import segment_name
from aerobee.store.format.record import BLANK_BYTES, MessageDraft, blank, encode
from aerobee.store.format.tags import tags_code_of
from aerobee.store.format.unit import UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HOST = bytes((127, 0, 0, 1)) + (10_911).to_bytes(4, "big")
HOST_V6 = bytes(15) + b"\x01" + (10_911).to_bytes(4, "big")
NOON = 1_700_000_000_000
"""Store time of the first record, in ms; each further one is a millisecond younger."""


@dataclass(frozen=True)
class Put:
    """A record that was written."""

    place: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    stored: int
    body: bytes


@dataclass
class StoreMaker:
    """One directory; `write` puts it on disk as it stands."""

    root: Path
    segment_bytes: int = 4_096
    queue_units: int = 20
    """Units per file of a queue."""
    start: int = 0
    segments: dict[int, bytearray] = field(default_factory=dict, repr=False)
    units: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict, repr=False)
    puts: list[Put] = field(default_factory=list, repr=False)
    at: int = 0
    next_time: int = NOON

    def __post_init__(self) -> None:
        self.at = self.start

    def put(
        self,
        body: bytes = b"hello",
        topic: str = "orders",
        queue_id: int = 0,
        *,
        properties: Mapping[str, str] | None = None,
        stored: int | None = None,
        queue_offset: int | None = None,
        v6: bool = False,
        sys_flag: int = 0,
        unit: bool = True,
    ) -> Put:
        """Append a record, in the next segment when this one is full, and its unit."""
        text = property_string.encode(properties or {}).encode()
        host = HOST_V6 if v6 else HOST
        draft = MessageDraft(topic, queue_id, body, text, host, host, sys_flag=sys_flag)
        size = len(encode(draft, 0, 0, 0))
        position = self.at % self.segment_bytes
        if position + size + BLANK_BYTES > self.segment_bytes:
            rest = self.segment_bytes - position
            self._bytes(self.at)[position : position + BLANK_BYTES] = blank(rest)
            self.at += rest
            position = 0
        stored = self.next_time if stored is None else stored
        self.next_time = stored + 1
        queue = self.units.setdefault((topic, queue_id), {})
        if queue_offset is None:
            queue_offset = max(queue, default=-1) + 1
        data = encode(draft, queue_offset, self.at, stored)
        self._bytes(self.at)[position : position + size] = data
        if unit:
            queue[queue_offset] = UNIT.pack(self.at, size, tags_code_of(text))
        done = Put(self.at, size, topic, queue_id, queue_offset, stored, body)
        self.puts.append(done)
        self.at += size
        return done

    def _bytes(self, place: int) -> bytearray:
        start = place - place % self.segment_bytes
        return self.segments.setdefault(start, bytearray(self.segment_bytes))

    def write(self, *, clean: bool = True) -> Path:
        """The directory on disk; without `clean` it looks like that of a broker that was killed."""
        log = self.root / "commitlog"
        log.mkdir(parents=True, exist_ok=True)
        for start, data in self.segments.items():
            (log / segment_name(start)).write_bytes(data)
        for (topic, queue_id), units in self.units.items():
            self._write_queue(self.root / "consumequeue" / topic / str(queue_id), units)
        (self.root / "config").mkdir(exist_ok=True)
        topics = {topic: {"topicName": topic} for topic, _ in self.units}
        table = json.dumps({"topicConfigTable": topics})
        (self.root / "config" / "topics.json").write_text(table)
        if not clean:
            (self.root / "abort").touch()
        return self.root

    def _write_queue(self, directory: Path, units: dict[int, bytes]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        files: dict[int, bytearray] = {}
        size = self.queue_units * UNIT_SIZE
        for number, unit in units.items():
            at = number * UNIT_SIZE
            data = files.setdefault(at - at % size, bytearray(size))
            data[at % size : at % size + UNIT_SIZE] = unit
        for start, data in files.items():
            (directory / segment_name(start)).write_bytes(data)

    def change(self, place: int, data: bytes) -> None:
        """Other bytes in the log on disk."""
        start = place - place % self.segment_bytes
        path = self.root / "commitlog" / segment_name(start)
        with path.open("r+b") as file:
            file.seek(place - start)
            file.write(data)

    def change_unit(self, topic: str, queue_id: int, queue_offset: int, data: bytes) -> None:
        """Another unit in a queue on disk."""
        size = self.queue_units * UNIT_SIZE
        at = queue_offset * UNIT_SIZE
        name = segment_name(at - at % size)
        path = self.root / "consumequeue" / topic / str(queue_id) / name
        with path.open("r+b") as file:
            file.seek(at % size)
            file.write(data)


def store_options_of(root: Path, **given: object) -> StoreOptions:
    """Options of a read, by their names in docs/spark/options.md."""
    raw = {"path": str(root)} | {name: _text(value) for name, value in given.items()}
    return store_options(raw)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
