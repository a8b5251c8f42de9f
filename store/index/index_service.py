"""Builds the index behind dispatch, in small batches, and answers queries by key.

Dispatch hands over the keys of each message. The hand-over is a bounded queue that drops its oldest
entries; then, and after a start, the missing messages are parsed from the log, in threads, until
they reach the queue. Building yields to all other work of the loop after each slice, so under load
the index lags and catches up by itself. It waits while the disk is full.

Invariant: every key of the messages before `indexed` is in a file or its builder, in the order of
the log, and once. The checkpoint has a file's end time only when the file is full and on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
import trio

from aerobee.store.errors import CONTENT_ERRORS, SyncFailed, Unreadable
from aerobee.store.files.read_around import read_around
from aerobee.store.format.faults import BLANK, END, MORE
from aerobee.store.format.index import KeyHasher
from aerobee.store.format.record import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from aerobee.store.format.walk import (
    CANDIDATE_BYTES,
    Walk,
    candidates,
    claimed_size,
    resumes_at,
)
from aerobee.store.index.handed_over import PENDING_MAX, HandOver, set_aside
from aerobee.store.index.index_file import IndexBuilder, Key
from aerobee.store.results import Location

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.store.config import StoreConfig
    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.format.faults import Stop
    from aerobee.store.index.index_file import RecentChain
    from aerobee.store.index.indexes import Indexes
    from aerobee.store.shared import Contents, Runtime

PENDING_BYTES: Final = 64 << 20
"""Bytes of the log that queued messages are from: their properties may be most of it."""
SLICE_BYTES: Final = 1 << 20
"""Bytes of the log that one step takes: with odd properties each takes six times as long."""
PARSE_SLICE: Final = 200
"""Messages that are parsed in one step."""
KEYS_STEP: Final = 4_000
"""Keys that are collected, but for the last message, and put into a file in one step: each takes
a millisecond or two. One message may have 16,000."""
PAUSE_S: Final = 0.002
"""The pause between two slices, so that the loop's other work comes first."""
HURRY: Final = PENDING_MAX // 4
"""Requests that wait to be taken, beyond which there is no pause but a turn of the loop: what is
dropped from the queue has to be parsed from the log, which takes more than twice as long."""
CHUNK_BYTES: Final = 64 << 10
"""The size of one read from the log."""
TICK_S: Final = 0.1
WRITE_S: Final = 5.0
"""The longest time that entries are only in memory. After a crash they are parsed from the log."""
UNWRITTEN_MAX: Final = 262_144
"""Entries in memory, of 20 bytes, that are written before their time."""
RETRY_S: Final = 10.0
"""The pause before a file is created, or an unreadable part of the log is read, again."""
FRESH_S: Final = 0.2
"""How long a query waits for messages stored just before it."""
CLOSE_S: Final = 5.0
"""How long a stop waits for the index."""

log = structlog.get_logger(__name__)


class IndexService:
    """Puts the keys of new messages into the index files.

    Source: store format §1.4, §4 (IndexService.buildIndex).
    """

    def __init__(
        self,
        config: StoreConfig,
        contents: Contents,
        files: Indexes,
        runtime: Runtime,
        *,
        on_failed: Callable[[OSError], None],
    ) -> None:
        """`on_failed` gets the error of a failed sync, which is final for the run."""
        self._log = contents.commit_log
        self._dispatcher = contents.dispatcher
        self.files = files
        self._disk = runtime.disk
        self._clock = runtime.clock
        self._stats = runtime.stats
        self._on_failed = on_failed
        self._hasher = KeyHasher()
        self._handed_over = HandOver(contents.dispatcher, self._hasher, PENDING_BYTES)
        self.pending = self._handed_over.pending
        self.indexed = 0
        """Every message before this byte of the log is in the index."""
        self.durable_timestamp = 0
        """Up to this store time, in ms, the index is in full files on disk: for the checkpoint."""
        self._known_keys = 0
        self.collected: list[tuple[int, int, int]] = []
        """Keys that are in no file yet: hash, physical offset, store time; they end at
        `_keys_end` of the log."""
        self._keys_end = 0
        self._builder: IndexBuilder | None = None
        self._retry_at = 0.0
        self._unreadable_at = -1
        """Where the disk could not read what is behind, the last time."""
        self._write_at = 0.0
        self._wanted = trio.Event()
        self._moved = trio.Event()
        self.failure: OSError | None = None
        self.configure(config)

    def configure(self, config: StoreConfig) -> None:
        """Apply settings. Switching indexing off and on again in one run leaves no gap."""
        self.config = config
        self._handed_over.follow(config.message_index_enable)

    def load(
        self, *, clean: bool, vouched_ms: int, whole: str | None, promise: Callable[[int], None]
    ) -> None:
        """Load what is on disk; the log is recovered. Blocking. Raises: OSError."""
        log_end = self._log.max_offset
        self.durable_timestamp = vouched_ms

        def promise_less(timestamp: int) -> None:
            promise(timestamp)
            self.durable_timestamp = timestamp

        resume = self.files.load(
            clean=clean,
            vouched_ms=vouched_ms,
            log_end=log_end,
            whole=whole,
            promise=promise_less,
        )
        self.indexed = max(resume.physical_offset, self._log.min_offset)
        self._known_keys = resume.known_keys if self.indexed == resume.physical_offset else 0
        if self.indexed < log_end and self.config.message_index_enable:
            log.info("index.rebuilding", physical_offset=self.indexed, end_offset=log_end)

    @property
    def behind_bytes(self) -> int:
        """Bytes of the log that consumers see and queries by key do not."""
        if not self.config.message_index_enable:
            return 0
        return max(0, self._dispatcher.dispatched - self.indexed)

    @property
    def end(self) -> tuple[int, int]:
        """Store time in ms and physical offset of the last message in the index."""
        if self._builder is not None:
            return self._builder.end_timestamp, self._builder.end_physical_offset
        last = self.files.last
        return (0, 0) if last is None else (last.head.end_timestamp, last.head.end_physical_offset)

    @property
    def whole(self) -> str | None:
        """The name of the newest file if the index has all of the log; None if it has not."""
        return self.files.newest if self.indexed >= self._log.max_offset else None

    def recent(self, key_hash: int) -> RecentChain | None:
        """Keys that are not in a file yet, for a query; for the loop."""
        return None if self._builder is None else self._builder.recent(key_hash)

    # ── Clock ──

    async def run(self) -> None:
        """Build and write until cancelled."""
        self._write_at = self._clock.monotonic() + WRITE_S
        while True:
            self._wanted = trio.Event()
            with trio.move_on_after(TICK_S):
                await self._wanted.wait()
            await self.build()

    async def build(self) -> None:
        """Index what there is, slice by slice, and write what is due."""
        while await self.step():
            await self._write_if_due()
            self._publish()
            await trio.sleep(PAUSE_S if len(self.pending) < HURRY else 0)
        await self._write_if_due()
        self._publish()

    def _publish(self) -> None:
        self._stats.index_behind_bytes = self.behind_bytes
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    async def fresh(self) -> None:
        """Wait a little until a query finds what was dispatched before it.

        Not for an index that waits itself, after an error: it would be asked again without a pause.
        """
        target = self._dispatcher.dispatched
        with trio.move_on_after(FRESH_S):
            while self._may_go_on:
                if self.indexed >= target:
                    return
                self._wanted.set()
                await self._moved.wait()

    async def close(self) -> bool:
        """Index the rest, for some time, and make it durable; `run` has ended.

        False when it cannot be durable: the next start continues where the last file ends.
        """
        deadline = self._clock.monotonic() + CLOSE_S
        self._retry_at = 0.0
        while self._clock.monotonic() < deadline and await self.step():
            await trio.lowlevel.checkpoint()
        durable = await self._finish()
        if self.behind_bytes:
            log.warning("index.unfinished", behind_bytes=self.behind_bytes)
        if durable and self._builder is not None and self._builder.full:
            self.durable_timestamp = self._builder.end_timestamp
        self.abandon()
        return durable

    def abandon(self) -> None:
        """Close the file that is being built; a start builds it again."""
        builder, self._builder = self._builder, None
        if builder is not None:
            builder.close()

    # ── Building ──

    @property
    def _may_go_on(self) -> bool:
        """Whether keys are put into files now: no error keeps them out, for a while or for good."""
        if self.failure is not None or not self.config.message_index_enable:
            return False
        return self._clock.monotonic() >= self._retry_at

    async def step(self) -> bool:
        """Index a slice of messages; whether to continue at once."""
        if not self._may_go_on:
            return False
        if not self.collected and not await self._gather():
            return False
        return await self._add_keys() and self.indexed < self._dispatcher.dispatched

    async def _gather(self) -> bool:
        """Take the keys of the next messages, queued or parsed. False: nothing to do now."""
        dispatched, pending = self._dispatcher.dispatched, self.pending
        if self.indexed < self._log.min_offset:
            self.indexed, self._known_keys = self._log.min_offset, 0
        at = self._keys_end = self.indexed
        first = max(at, dispatched - PENDING_BYTES)
        while pending and pending[0].physical_offset < first:
            pending.popleft()
        if at >= dispatched:
            return False
        head = pending[0].physical_offset if pending else dispatched
        if at < head:
            return await self._parse(head)
        self._keys_end = self._handed_over.take(self.collected, at, KEYS_STEP, SLICE_BYTES)
        self._drop_known()
        return True

    def _drop_known(self) -> None:
        """Drop keys of the first message that are in a file; Java has more there, such as tags."""
        if (count := self._known_keys) and self._keys_end > self.indexed:
            self.collected[:count] = [
                key for key in self.collected[:count] if key[1] != self.indexed
            ]
            self._known_keys = 0

    async def _add_keys(self) -> bool:
        """Put a step's worth of the keys into files. False: no file can be created now."""
        keys, left = self.collected, KEYS_STEP
        while keys and left:
            builder = self._builder
            if builder is None or builder.full:
                if not await self._next_file():
                    return False
                continue
            added = builder.add(keys[:left])
            del keys[:added]
            left -= added
            self._stats.keys_indexed += added
        if not keys:
            self.indexed = self._keys_end
        if self.unwritten >= UNWRITTEN_MAX:
            await self.write()
        return True

    async def _next_file(self) -> bool:
        if self._builder is not None:
            if not await self._finish():
                return False
            self.durable_timestamp = self._builder.end_timestamp
            self.abandon()
        last = self.files.last
        try:
            if last is not None and not last.full:
                self._builder = await self._disk.in_thread(IndexBuilder.resume, last)
                return True
            file = self.files.next_file(self._clock.now_ms())
            self._builder = await self._disk.in_thread(IndexBuilder.create, file)
        except OSError as error:
            self._retry_at = self._clock.monotonic() + RETRY_S
            log.warning("index.no_file", path=str(self.files.directory), error=str(error))
            return False
        self.files.files.append(file)
        begin = Key(*self.collected[0]).physical_offset
        log.info("index.rolled", path=str(file.path), physical_offset=begin)
        return True

    # ── Writing ──

    @property
    def unwritten(self) -> int:
        return 0 if self._builder is None else self._builder.unwritten

    async def _write_if_due(self) -> None:
        if self.unwritten and self._clock.monotonic() >= self._write_at:
            await self.write()

    async def write(self) -> bool:
        """Write entries in memory to the file; a failure is retried with the next round."""
        self._write_at = self._clock.monotonic() + WRITE_S
        if self._builder is None or not self._builder.unwritten:
            return True
        try:
            await self._disk.in_thread(self._builder.write)
        except OSError as error:
            self._retry_at = self._clock.monotonic() + RETRY_S
            log.warning("index.write_failed", path=str(self.files.directory), error=str(error))
            return False
        return True

    async def _finish(self) -> bool:
        """Write and sync the current file; a failed sync is final for the run."""
        builder = self._builder
        if self.failure is not None or builder is None:
            return self.failure is None
        if not await self.write():
            return False
        try:
            await self._disk.in_thread(builder.sync)
        except SyncFailed as error:
            self.failure = error
            log.error("flush.failed", file="index", error=str(error))
            self._on_failed(error)
            return False
        return True

    # ── From the log ──

    async def _parse(self, until: int) -> bool:
        """Take the keys of some records from `indexed` on, none behind `until`."""
        at = self.indexed
        file = self._log.queue.find(at)
        if file is None or at >= file.max_offset:
            later = [other.start for other in self._log.queue.files if other.start > at]
            self._keys_end = min([*later, until])
            return True
        end = min(until, file.max_offset)
        data = await self._read(file, at, min(CHUNK_BYTES, end - at))
        if data and (size := claimed_size(data, 0, at, end)) > len(data):
            data = await self._read(file, at, size)
        if data is None:
            return False
        self._take_parsed(file, data, until)
        return True

    def _resumes_at(self, stop: Stop, data: bytes, readable_end: int, segment_end: int) -> int:
        """Where the next record may begin: behind bytes that are none, at what looks like one."""
        if stop.kind == BLANK or stop.size:
            return resumes_at(stop, readable_end, segment_end)
        begin, at = self._keys_end, stop.physical_offset + 1
        # The next chunk begins where a record may begin that this one cuts off.
        later = max(at, begin + len(data) - CANDIDATE_BYTES + 1)
        later = later if begin + len(data) < readable_end else readable_end
        return next(candidates(data, begin, at - begin), later)

    async def _read(self, file: MappedFile, at: int, size: int) -> bytes | None:
        """Bytes of the log, by a thread: they may be on disk. None: try again later.

        Where the disk cannot read some of them for the second time, zeros stand for these: that
        costs the keys of messages that nobody can read.
        """
        read = self._pread_around if self._unreadable_at == at else self._pread
        try:
            return await self._disk.in_thread(read, file.path, at - file.start, size)
        except OSError as error:
            if self._log.queue.find(at) is not file:
                # Deleted meanwhile.
                return b""
            self._unreadable_at = at if isinstance(error, Unreadable) else -1
            self._retry_at = self._clock.monotonic() + RETRY_S
            log.warning("index.log_unreadable", path=str(file.path), error=str(error))
            return None

    def _pread(self, path: Path, position: int, size: int) -> bytes:
        with self._disk.open(path, writable=False) as handle:
            return handle.pread(size, position)

    def _pread_around(self, path: Path, position: int, size: int) -> bytes:
        with self._disk.open(path, writable=False) as handle:
            around = read_around(handle.pread, position, position + size, size)
            return b"".join(piece for piece, _ in around)

    def _take_parsed(self, file: MappedFile, data: bytes, until: int) -> None:
        """Records of a chunk that begins at `_keys_end`; one cut off is left for the next."""
        begin = end = self._keys_end
        collect, keys = self._hasher.collect, self.collected
        readable_end = min(file.max_offset, until)
        walk = Walk(memoryview(data), begin, begin, until, segment_end=readable_end)
        for number, (at, header) in enumerate(walk, 1):
            if header.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
                topic = header.topic
                try:
                    collect(keys, topic, header.properties, at, header.store_timestamp)
                except CONTENT_ERRORS as error:
                    where = Location(topic, header.queue_id, header.queue_offset, at)
                    set_aside(self._dispatcher.aside, error, where)
            end = at + header.size
            self._stats.index_parsed += 1
            if number == PARSE_SLICE or len(keys) > KEYS_STEP:
                break
        else:
            stop = walk.stop
            # Without data the segment was deleted.
            if data and (stop.kind not in (END, MORE) or end == begin):
                end = min(self._resumes_at(stop, data, readable_end, file.end), until)
        self._keys_end = end
        self._drop_known()
