"""Clean-up of consume queues behind the log: their min offsets rise, files before them are deleted.

In: the first byte of the log. Out: shorter queues, and for each the range of queue offsets whose
messages are deleted, for the listeners. Whole queues are deleted only when an administrator asks;
the counter of a queue is deleted with it, so the next message is number 0.
"""

from __future__ import annotations

import contextlib
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import structlog
import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from aerobee.store.config import StoreConfig
    from aerobee.store.queues.consume_queue import ConsumeQueue
    from aerobee.store.queues.unit_search import UnitSearch
    from aerobee.store.shared import Contents, Runtime

    Follower: TypeAlias = Callable[[int], Awaitable[object]]

BATCH: Final = 100
"""Queues that one thread call searches."""
DISPATCH_WAITS: Final = 40
DISPATCH_WAIT_S: Final = 0.05

log = structlog.get_logger(__name__)


class DeletedRange(NamedTuple):
    """Messages of one queue that were deleted: queue offsets from `begin` to before `end`."""

    topic: str
    queue_id: int
    begin: int
    end: int


class QueueCleanup:
    """Deletes files of consume queues whose messages are gone.

    Source: store format §6.3, §6.4 (CleanConsumeQueueService).
    """

    def __init__(
        self,
        config: StoreConfig,
        contents: Contents,
        runtime: Runtime,
        followers: Sequence[Follower] = (),
    ) -> None:
        """`followers` are called with the new first byte of the log, after the queues."""
        self.config = config
        self._queues = contents.queues
        self._disk = runtime.disk
        self._stats = runtime.stats
        self._between_flushes = contents.between_flushes
        self._one_at_a_time = trio.Lock()
        self.followed = 0
        """The begin of the log when the queues were last corrected; a start does so as well."""
        self._followers = followers
        self.on_deleted: list[Callable[[Sequence[DeletedRange]], Awaitable[object]]] = []
        """Called with the ranges of deleted messages."""

    async def follow(self, min_offset: int) -> None:
        """Follow the new begin of the log; a no-op when it has not changed."""
        if min_offset == self.followed:
            return
        async with self._one_at_a_time:
            ranges, whole = await self._correct(min_offset)
        for follower in self._followers:
            await follower(min_offset)
        if whole:
            self.followed = min_offset
        for deleted in self.on_deleted if ranges else ():
            await deleted(ranges)

    async def _correct(self, min_offset: int) -> tuple[list[DeletedRange], bool]:
        """Correct all queues; False when some of it must be retried."""
        ranges: list[DeletedRange] = []
        whole = True
        for batch in _batches(list(self._queues.table.values())):
            searches = [queue.unit_search() for queue in batch]
            firsts = await self._disk.in_thread(self._search, searches, min_offset)
            unreadable: OSError | None = None
            for queue, search, first in zip(batch, searches, firsts, strict=True):
                begin = queue.min_offset
                try:
                    queue.raise_min_offset(_offset(first), search, min_offset)
                except OSError as error:
                    # The other queues follow all the same.
                    unreadable = error
                    continue
                if queue.min_offset > begin:
                    gone = DeletedRange(queue.topic, queue.queue_id, begin, queue.min_offset)
                    ranges.append(gone)
            if unreadable is not None:
                log.warning("cleanup.queue_unreadable", error=str(unreadable))
                whole = False
            for queue in batch:
                whole = await self._delete_files(queue) and whole
        return ranges, whole

    def _search(self, searches: list[UnitSearch], min_offset: int) -> list[int | OSError]:
        """The first message of each queue that is left, or why that cannot be read. For a
        thread.
        """
        firsts: list[int | OSError] = []
        for search in searches:
            try:
                firsts.append(search.first_at_or_after(min_offset, self._disk))
            except OSError as error:
                firsts.append(error)
        return firsts

    async def _delete_files(self, queue: ConsumeQueue) -> bool:
        paths = queue.take_expired()
        if not paths:
            return True
        left = await self._disk.in_thread(self._remove, paths)
        self._stats.queue_files_deleted += len(paths) - len(left)
        queue.give_back(left)
        await trio.sleep(self.config.delete_consume_queue_files_interval_ms / 1000)
        return not left

    def _remove(self, paths: list[Path]) -> list[Path]:
        """Delete in order; returns the files from the first failure on. For a thread."""
        for number, path in enumerate(paths):
            try:
                self._disk.remove(path, missing_ok=True)
            except OSError as error:
                log.warning("cleanup.delete_failed", path=str(path), error=str(error))
                return paths[number:]
        return []

    # ── Whole queues ──

    async def destroy(self, doomed: Callable[[ConsumeQueue], bool]) -> list[tuple[str, int]]:
        """Delete queues with files and counters; one that dispatch has not finished stays.

        Returns topic and queue id of each.
        """
        gone: list[tuple[str, int]] = []
        async with self._one_at_a_time, self._between_flushes:
            for queues in self._queues.slices():
                for queue in queues:
                    idle = queue.end_offset == queue.next_offset or queue.stopped
                    if idle and doomed(queue):
                        # Counter and units go together: the next message creates a new queue.
                        key = queue.topic, queue.queue_id
                        self._queues.take_out(*key)
                        gone.append(key)
                        paths = queue.take_all()
                        await self._disk.in_thread(self._remove_queue, queue.directory, paths)
                        log.info("cleanup.queue_deleted", topic=key[0], queue_id=key[1])
                await trio.lowlevel.checkpoint()
        self._stats.queues_deleted += len(gone)
        return gone

    async def destroy_expired(
        self, min_offset: int, keep: Callable[[str], bool]
    ) -> list[tuple[str, int]]:
        """Delete queues without messages in the log; not those of topics to `keep`."""
        return await self.destroy(
            lambda queue: 0 <= queue.max_physical_offset <= min_offset and not keep(queue.topic)
        )

    async def destroy_topics(self, topics: Collection[str]) -> list[tuple[str, int]]:
        """Delete the queues of these topics, as `destroy_dispatched`. Raises: TimeoutError."""
        return await self.destroy_dispatched(lambda queue: queue.topic in topics)

    async def destroy_dispatched(
        self, doomed: Callable[[ConsumeQueue], bool]
    ) -> list[tuple[str, int]]:
        """Delete queues that get no more messages. Raises: TimeoutError.

        Waits until dispatch has finished them, unless it has stopped there for good.
        """
        gone: list[tuple[str, int]] = []
        for _ in range(DISPATCH_WAITS):
            gone += await self.destroy(doomed)
            left = [queue for queue in self._queues.table.values() if doomed(queue)]
            if not left:
                return gone
            await trio.sleep(DISPATCH_WAIT_S)
        late = f"queue {left[0].queue_id} of topic {left[0].topic}"
        raise TimeoutError(f"{late} is not dispatched yet")

    def _remove_queue(self, directory: Path, paths: list[Path]) -> None:
        """Files, then the directories if nothing else is in them. For a thread."""
        # The last file first: a crash leaves a shorter queue and not one with a hole.
        for path in reversed(paths):
            try:
                self._disk.remove(path, missing_ok=True)
            except OSError as error:
                log.warning("cleanup.delete_failed", path=str(path), error=str(error))
                return
        for folder in (directory, directory.parent):
            with contextlib.suppress(OSError):
                self._disk.remove_directory(folder)


def _offset(first: int | OSError) -> int:
    """The result of a search. Raises: OSError where it has failed."""
    if isinstance(first, OSError):
        raise first
    return first


def _batches(queues: list[ConsumeQueue]) -> Iterator[list[ConsumeQueue]]:
    rest = iter(queues)
    while batch := list(islice(rest, BATCH)):
        yield batch
