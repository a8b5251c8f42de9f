"""One query by key, in steps: the index has candidates, the log decides.

Hashes collide, and entries outlive messages. A query is bounded by what it has looked at, whatever
was found: entries of the index, records, and bytes of records. Source: store format §7.3
(DefaultMessageStore.queryMessage).
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.store.errors import Unreadable
from aerobee.store.format.faults import NoRecord
from aerobee.store.format.index import keys_of
from aerobee.store.format.record import parse
from aerobee.store.messages.checked_reads import Damage, damage_of

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk, Handle
    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.index.index_walk import IndexWalk
    from aerobee.store.log.commit_log import CommitLog, ReadLog

QUERY_BYTES_MAX: Final = 8 << 20
"""Bytes of messages in one answer; the first is always in it."""
EXAMINED_MAX: Final = 10_000
"""Records that one query examines: more with one hash are no coincidence."""
EXAMINED_BYTES: Final = 64 << 20
"""Bytes of records that one query examines."""
STEP_ENTRIES: Final = 1_000
"""Entries of the index of one step: about a millisecond, as with the next two."""
STEP_RECORDS: Final = 32
STEP_BYTES: Final = 1 << 20


class Question(NamedTuple):
    """The question of a query. Times in ms."""

    topic: str
    key: str
    max_messages: int
    begin_ms: int
    end_ms: int
    most_entries: int
    """Entries of the index that may be looked at."""


class KeySearch:
    """The search of one query. `step` is for a thread, one call at a time.

    A search may be given up between any two steps: it keeps no file open.
    """

    __slots__ = (
        "_bytes",
        "_disk",
        "_found",
        "_key",
        "_log",
        "_question",
        "_seen",
        "_size",
        "complete",
        "damaged",
        "done",
        "walk",
    )

    def __init__(self, log: CommitLog, disk: Disk, walk: IndexWalk, question: Question) -> None:
        self._log = log
        self._disk = disk
        self.walk = walk
        self._question = question
        self._key = question.key.encode("utf-8", "replace")
        self._found: dict[int, bytes] = {}
        self._seen: set[int] = set()
        self._size = 0  # of what was found
        self._bytes = 0  # of what was examined
        self.damaged: list[Damage] = []
        """Damaged messages: they are not in the answer."""
        self.done = question.max_messages <= 0
        self.complete = True
        """False where the search ended because of what it had looked at."""

    @property
    def records(self) -> list[bytes]:
        """The messages that were found, oldest first."""
        return [self._found[physical_offset] for physical_offset in sorted(self._found)]

    def step(self) -> None:
        """Look at some entries and records more. Raises: OSError."""
        walk, most = self.walk, self._question.most_entries
        if not walk.found and not walk.ended:
            walk.step(min(STEP_ENTRIES, most - walk.looked))
        until = self._bytes + STEP_BYTES
        with ExitStack() as stack:
            handles: dict[Path, Handle] = {}

            def read(file: MappedFile, position: int, size: int) -> memoryview:
                if size <= 0:
                    return memoryview(b"")
                if (handle := handles.get(file.path)) is None:
                    handle = stack.enter_context(self._disk.open(file.path, writable=False))
                    handles[file.path] = handle
                self._bytes += size
                return memoryview(handle.pread(size, position))

            for _ in range(STEP_RECORDS):
                if self.done or not walk.found or self._bytes > until:
                    break
                if len(self._seen) >= EXAMINED_MAX or self._bytes > EXAMINED_BYTES:
                    self._give_up()
                    break
                self._examine(walk.found.popleft(), read)
        if not walk.found:
            if walk.ended:
                self.done = True
            elif walk.looked >= most:
                self._give_up()

    def _give_up(self) -> None:
        self.done, self.complete = True, False

    def _examine(self, physical_offset: int, read: ReadLog) -> None:
        """Take a message if it is an answer."""
        if physical_offset in self._seen or physical_offset < self._log.min_offset:
            return
        self._seen.add(physical_offset)
        try:
            view = self._log.record(physical_offset, None, read)
        except FileNotFoundError:
            # Its segment was just deleted.
            return
        except Unreadable as error:
            # The other messages with the key are an answer all the same.
            self.damaged.append(Damage(physical_offset, "", -1, -1, str(error)))
            return
        if view is None:
            return
        record = bytes(view)
        if not self._answers(record, physical_offset):
            return
        if (damage := damage_of(record, physical_offset)) is not None:
            self.damaged.append(damage)
            return
        self._size += len(record)
        if self._found and self._size > QUERY_BYTES_MAX:
            self.done = True
            return
        self._found[physical_offset] = record
        self.done = len(self._found) >= self._question.max_messages

    def _answers(self, record: bytes, physical_offset: int) -> bool:
        """Whether the record has the key, and not only its hash."""
        header = parse(record, 0, physical_offset)
        if isinstance(header, NoRecord):
            return False
        question = self._question
        # The index has times to the second.
        if not question.begin_ms <= header.store_timestamp <= question.end_ms:
            return False
        return header.topic == question.topic and self._key in keys_of(header.properties)
