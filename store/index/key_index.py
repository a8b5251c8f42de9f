"""Queries by key: the part of the store that builds the index and searches it.

The index has candidates, the log decides: hashes collide, and deleted messages are skipped. A query
reads files, in a thread. Source: store format §7.3 (DefaultMessageStore.queryMessage).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from aerobee.store.format.faults import NoRecord
from aerobee.store.format.index import IndexShape, index_key, key_hash, keys_of
from aerobee.store.format.record import parse
from aerobee.store.index.index_service import IndexService
from aerobee.store.index.indexes import Indexes
from aerobee.store.messages.checked_reads import damage_of
from aerobee.store.results import QueryResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.store.config import StoreConfig
    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.flush.checkpoint_file import CheckpointFile
    from aerobee.store.index.index_file import Recent
    from aerobee.store.messages.checked_reads import Damaged
    from aerobee.store.results import Recovery
    from aerobee.store.shared import Contents, Runtime

__all__ = ["QUERY_BYTES_MAX", "KeyIndex"]

QUERY_BYTES_MAX: Final = 8 << 20
"""Bytes of messages in one answer; the first is always in it."""
EXAMINED_MAX: Final = 10_000
"""Records that one query examines: more with one hash are no coincidence."""


class KeyIndex:
    """The index of one store. `service` builds it, `query` searches it."""

    __slots__ = ("_checkpoint", "_disk", "_log", "_report", "_shape", "service")

    def __init__(
        self,
        config: StoreConfig,
        contents: Contents,
        runtime: Runtime,
        directory: Path,
        checkpoint: CheckpointFile,
        *,
        on_failed: Callable[[OSError], None],
        report: Callable[[Damaged], None],
    ) -> None:
        """`on_failed` gets a failed sync, which is final for the run; `report` gets damage."""
        self._log = contents.commit_log
        self._report = report
        self._disk = runtime.disk
        self._checkpoint = checkpoint
        self._shape = IndexShape(config.max_hash_slot_num, config.max_index_num)
        files = Indexes(runtime.disk, directory, self._shape)
        self.service = IndexService(config, contents, files, runtime, on_failed=on_failed)

    @property
    def file_bytes(self) -> int:
        """The size of an index file of a new store."""
        return self._shape.size if self.service.config.message_index_enable else 0

    @property
    def behind_bytes(self) -> int:
        """Bytes of the log that consumers see and queries do not yet."""
        return self.service.behind_bytes

    def load(self, recovery: Recovery, whole: str | None) -> None:
        """Load the files; the log is recovered. `whole`: see Indexes. Blocking. Raises: OSError."""
        known = self._checkpoint.value.clamped(recovery.last_store_timestamp)
        self.service.load(
            clean=recovery.clean,
            vouched_ms=known.index_msg_timestamp,
            whole=whole,
            promise=lambda timestamp: self._checkpoint.write(
                known.physic_msg_timestamp, known.logics_msg_timestamp, timestamp
            ),
        )

    async def query(
        self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """The newest messages with the key that were stored in that time, oldest first.

        No more than `maxMsgsNumBatch`. Messages stored up to a second after `end_ms` may be among
        them, as with other brokers. Raises: OSError.
        """
        service = self.service
        await service.fresh()
        most = min(max_messages, service.config.max_msgs_num_batch)
        damaged: list[Damaged] = []
        recent = service.recent(key_hash(index_key(topic, key)))
        search = partial(self._search, topic, key, most, begin_ms, end_ms, damaged, recent)
        records = await self._disk.in_thread(search)
        for one in damaged:
            self._report(one)
        return QueryResult(records, *service.end)

    def _search(
        self,
        topic: str,
        key: str,
        max_messages: int,
        begin_ms: int,
        end_ms: int,
        damaged: list[Damaged],
        recent: Recent | None = None,
    ) -> list[bytes]:
        """For a thread. Damaged messages are not in the answer."""
        wanted = key.encode("utf-8", "replace")
        value = key_hash(index_key(topic, key))
        found: dict[int, bytes] = {}
        seen: set[int] = set()
        size = 0
        for physical_offset in self.service.files.candidates(value, begin_ms, end_ms, recent):
            if len(found) >= max_messages or len(seen) >= EXAMINED_MAX:
                break
            if physical_offset in seen:
                continue
            seen.add(physical_offset)
            record = self._record(physical_offset)
            if record is None or not _answers(record, physical_offset, topic, wanted, begin_ms):
                continue
            if (damage := damage_of(record, physical_offset)) is not None:
                damaged.append(damage)
                continue
            size += len(record)
            if found and size > QUERY_BYTES_MAX:
                break
            found[physical_offset] = record
        return [found[physical_offset] for physical_offset in sorted(found)]

    def _record(self, physical_offset: int) -> bytes | None:
        try:
            record = self._log.record(physical_offset, None, self._read)
        except FileNotFoundError:
            # Its segment was just deleted.
            return None
        return None if record is None else bytes(record)

    def _read(self, file: MappedFile, position: int, size: int) -> memoryview:
        if size <= 0:
            return memoryview(b"")
        with self._disk.open(file.path, writable=False) as handle:
            return memoryview(handle.pread(size, position))


def _answers(record: bytes, physical_offset: int, topic: str, key: bytes, begin_ms: int) -> bool:
    """Whether the record has the key, and not only its hash."""
    found = parse(record, 0, physical_offset)
    if isinstance(found, NoRecord):
        return False
    if found.topic != topic or found.store_timestamp < begin_ms:
        return False
    return key in keys_of(found.properties)
