"""Queries by key: the part of the store that builds the index and searches it.

A query reads files, in threads that are for queries alone: those of the disk make segments and save
tables, and nobody who asks may keep them. Source: store format §7.3
(DefaultMessageStore.queryMessage).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from aerobee.store.format.index import IndexShape, index_key, key_hash
from aerobee.store.index.index_service import IndexService
from aerobee.store.index.indexes import Indexes
from aerobee.store.index.key_search import KeySearch, Question
from aerobee.store.results import QueryResult
from aerobee.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.store.config import StoreConfig
    from aerobee.store.flush.checkpoint_file import CheckpointFile
    from aerobee.store.messages.checked_reads import Damage
    from aerobee.store.results import Recovery
    from aerobee.store.shared import Contents, Runtime

QUERY_THREADS: Final = 2
"""Steps of queries that run at the same time."""


class KeyIndex:
    """The index of one store. `service` builds it, `query` searches it."""

    __slots__ = ("_checkpoint", "_disk", "_limiter", "_log", "_report", "_shape", "service")

    def __init__(
        self,
        config: StoreConfig,
        contents: Contents,
        runtime: Runtime,
        directory: Path,
        checkpoint: CheckpointFile,
        *,
        on_failed: Callable[[OSError], None],
        report: Callable[[Damage], None],
    ) -> None:
        """`on_failed` gets a failed sync, which is final for the run; `report` gets damage."""
        self._log = contents.commit_log
        self._report = report
        self._disk = runtime.disk
        self._checkpoint = checkpoint
        self._limiter = trio.CapacityLimiter(QUERY_THREADS)
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

    async def fresh(self) -> None:
        """Wait a little until a query finds what was stored before it."""
        await self.service.fresh()

    def search(
        self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int
    ) -> KeySearch:
        """A search for the newest messages with the key that were stored in that time, both ends
        included. It finds no more than `maxMsgsNumBatch`.
        """
        service = self.service
        config, value = service.config, key_hash(index_key(topic, key))
        most = min(max_messages, config.max_msgs_num_batch)
        walk = service.files.walk(value, begin_ms, end_ms, service.recent(value))
        entries = config.max_index_entries_of_query
        question = Question(topic, key, most, begin_ms, end_ms, entries)
        return KeySearch(self._log, self._disk, walk, question)

    async def step(self, search: KeySearch) -> None:
        """One step of a search, in one of the threads that queries have for themselves.

        A cancellation does not wait for the disk. Raises: OSError.
        """
        if not search.done:
            await in_thread(search.step, limiter=self._limiter, abandon_on_cancel=True)

    def result(self, search: KeySearch) -> QueryResult:
        """The messages that a search has found, and how far the index has come; reports damage,
        once.
        """
        damaged, search.damaged = search.damaged, []
        for record in damaged:
            self._report(record)
        return QueryResult(search.records, *self.service.end)

    async def query(
        self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """All steps of a search, one behind the other. Raises: OSError."""
        await self.fresh()
        search = self.search(topic, key, max_messages, begin_ms, end_ms)
        while not search.done:
            await self.step(search)
        return self.result(search)
