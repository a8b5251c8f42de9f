"""Takes the log of a master into this one: over a connection that somebody else has made.

The decision what may be appended is made in `arriving`; here it is appended, and reported. Nothing
behind a wrong byte is taken, and the log stays as it was in front of it. Under SYNC_FLUSH only what
is on disk is reported: then a master that waits for this slave waits for two disks.
Source: store format §8 (DefaultHAClient).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from aerobee.store.errors import FrameIllegal, ReplicationRefused, SegmentLate
from aerobee.store.format.ha import NEVER_COUNTS
from aerobee.store.listeners import Listeners
from aerobee.store.replication.arriving import (
    STEP_RECORDS,
    Arriving,
    Begin,
    EpochsBegin,
    Filler,
    QueueBegin,
    Records,
    SegmentEnd,
)
from aerobee.store.replication.log_out import Pace
from aerobee.store.replication.wires import Classic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aerobee.store.flush.log_flush import LogFlush
    from aerobee.store.format.record import RecordHeader
    from aerobee.store.log.allocate import Allocator
    from aerobee.store.log.commit_log import CommitLog
    from aerobee.store.replication.arriving import Step
    from aerobee.store.replication.membership import Membership
    from aerobee.store.replication.wires import SlaveEnd, Wire
    from aerobee.store.stats import StoreStats


RECEIVE_LEAST_BYTES: Final = 64 << 10
"""For a little more than that the C library asks the kernel for memory, and gives it back."""
RECEIVE_MOST_BYTES: Final = 1 << 20
"""From a master that has more."""
SEGMENT_AGAIN_S: Final = 1.0
"""The longest pause before a segment is asked for again that cannot be made."""

log = structlog.get_logger(__name__)


def _log_failure(error: OSError) -> None:
    log.error("replication.not_saved", error=str(error))


class LogIn:
    """The log on its way from a master; one connection at a time.

    Invariant: what is reported is a prefix of the master's log, and never becomes less.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        allocator: Allocator,
        flush: LogFlush,
        stats: StoreStats,
        queue_begins: Callable[[str, int], Awaitable[bool]],
        offer: Callable[[int, list[RecordHeader]], None],
    ) -> None:
        """`queue_begins` empties a queue before its first message comes, and all queues of its
        topic if the master has made that again, which it says; `offer` tells dispatch of records
        that were appended.
        """
        self._log = commit_log
        self._allocator = allocator
        self._flush = flush
        self._stats = stats
        self.queue_begins = queue_begins
        self.after_begin: Listeners[[str, int]] = Listeners()
        """Called with topic and queue id ahead of the first message of a queue."""
        self.after_renewal: Listeners[[str]] = Listeners()
        """Called with a topic whose queues were emptied: its master has deleted it, and made it
        again."""
        self._offer = offer
        self.pace = Pace()
        self.wire: Wire = Classic()
        self.membership: Membership | None = None
        """In failover mode: what settles with a master where this log goes on."""
        self.shadow = False
        """Whether no master may count this copy: it reports where to begin, and then nothing that
        is an acknowledgement."""
        self.master_offset = 0
        """The offset behind the last byte that the master has sent or announced, whether it is here
        or not.
        """
        self.master_ends = (0, 0)
        """Where the log of the master that is followed begins and ends, as it last said it when it
        was asked: it may have more than it could send."""
        self.heard_at = float("-inf")
        """When the master was heard last, by the loop's clock."""
        self._wanted = trio.Event()
        """There may be more to report."""
        self._heard = trio.Event()
        """The master has sent a frame over this connection."""

    @property
    def awaits_cut(self) -> bool:
        """Whether the next start ends this log earlier."""
        return self.membership is not None and self.membership.cut_at is not None

    async def follow(self, stream: trio.abc.Stream, appended: Callable[[], object]) -> str:
        """Take what the master sends until it leaves, breaks off or is silent; returns why.

        In failover mode the reason can be `outdated`, where a later master is known, and `cut`:
        this store must be closed and loaded, and its log ends earlier then.

        `appended` is called when the log has grown, or more of it is confirmed, so that consumers
        see it. Raises:
        ReplicationRefused with the offset, when these bytes cannot be part of this log.
        """
        wire = self.wire.slave_end()
        reason: str | ReplicationRefused = "closed"
        try:
            async with stream:
                # Bytes that are not on disk yet were reported before, or would be at once.
                await self._flush.reach(self._log.max_offset)
                end = self._log.max_offset
                arriving = Arriving(end, self._log.segment_bytes, empty=not end)
                async with trio.open_nursery() as nursery:
                    try:
                        reason = await self._settle(stream, wire)
                        if not reason:
                            nursery.start_soon(self._report, stream, wire, nursery.cancel_scope)
                            reason = await self._take(stream, wire, arriving, appended)
                    except ReplicationRefused as refused:
                        # Out of a nursery it would come in a group.
                        reason = refused
                    nursery.cancel_scope.cancel()
        finally:
            # The filled part comes again, and a start would find more than the log has.
            try:
                self._log.take_back_fill()
            except OSError as error:
                _log_failure(error)
        if isinstance(reason, ReplicationRefused):
            raise reason
        return reason

    # ── From the master ──

    async def _settle(self, stream: trio.abc.Stream, wire: SlaveEnd) -> str:
        """Have the epochs of both logs compared, before anything is reported, where they have any.

        Returns why the log may not flow; empty: it may. Raises: ReplicationRefused.
        """
        membership = self.membership
        if membership is None:
            return ""
        if membership.cut_at is not None:
            return "cut"
        try:
            await stream.send_all(wire.opening())
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return "broken"
        while (greeting := wire.greeting) is None:
            data = await self._receive(stream, RECEIVE_LEAST_BYTES)
            if isinstance(data, str):
                return data
            list(wire.feed(data))
        if wire.data_bytes:
            raise FrameIllegal("the master sends data ahead of the first report")
        try:
            return await membership.settle(greeting)
        except OSError as error:
            log.error("replication.not_saved", error=str(error))
            return "disk"

    async def _receive(self, stream: trio.abc.Stream, most: int) -> bytes | bytearray | str:
        """The next bytes of the master, or why there are none."""
        data = None
        with trio.move_on_after(self.pace.silence_s):
            try:
                data = await stream.receive_some(most)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return "broken"
        if data is None:
            return "silent"
        if not data:
            return "closed"
        if self._flush.failure is not None:
            return "disk"
        self.heard_at = trio.current_time()
        return data

    async def _take(
        self,
        stream: trio.abc.Stream,
        wire: SlaveEnd,
        arriving: Arriving,
        appended: Callable[[], object],
    ) -> str:
        """Append what comes. Raises: ReplicationRefused."""
        most = RECEIVE_LEAST_BYTES
        while True:
            data = await self._receive(stream, most)
            if isinstance(data, str):
                return data
            most = min(max(RECEIVE_LEAST_BYTES, 2 * len(data)), RECEIVE_MOST_BYTES)
            for step in arriving.take(wire.feed(data)):
                # Ahead of the step, which waits for as long as the disk has no room.
                self.master_offset = arriving.expected
                if not isinstance(step, Records):
                    self._wanted.set()
                await self._do(step)
                appended()
                self._wait_for_disk()
                if isinstance(step, Records) and len(step.headers) == STEP_RECORDS:
                    # Others have their turn, as they have with each receive.
                    await trio.lowlevel.checkpoint()
            self.master_offset = arriving.expected
            # One report for all that came together takes half of the system calls.
            self._wanted.set()
            if wire.appended(self._log.max_offset):
                appended()
            self._stats.replicated_in_bytes += wire.data_bytes
            wire.data_bytes = 0
            if wire.frames:
                self._heard.set()

    def _wait_for_disk(self) -> None:
        if self._flush.answers_wait:
            end = self._log.max_offset
            self._flush.when_durable(end, lambda _: self._wanted.set(), background=True)
            self._flush.request()

    async def _do(self, step: Step) -> None:
        match step:
            case Records(physical_offset, data, store_timestamp, headers):
                stored = max(store_timestamp, self._log.last_store_timestamp)
                if self._log.tail is None or physical_offset >= self._log.tail.end:
                    await self._roll(len(data))
                assert physical_offset == self._log.max_offset, (physical_offset, self._log.tail)
                await self._saved(
                    lambda: self._log.append_each(_each(data, headers), stored),
                    self._allocator.unwritable,
                )
                self._offer(physical_offset, headers)
            case Filler(physical_offset, data):
                if self._log.tail is None or physical_offset >= self._log.tail.end:
                    await self._roll(0)
                fill = partial(self._log.fill, physical_offset, data)
                await self._saved(fill, self._allocator.unwritable)
            case SegmentEnd(size):
                await self._roll(size)
            case QueueBegin(topic, queue_id):
                if await self.queue_begins(topic, queue_id) and (
                    renewed := self.after_renewal.tell
                ):
                    renewed(topic)
                if (tell := self.after_begin.tell) is not None:
                    tell(topic, queue_id)
            case Begin(physical_offset):
                # A segment that has nothing may have to be removed.
                await self._saved(partial(self._log.begin_at, physical_offset))
            case EpochsBegin(epochs):
                assert self.membership is not None
                # Without them a cut could miss the bytes that follow.
                await self._saved(partial(self.membership.begins, epochs))

    async def _saved(
        self,
        save: Callable[[], Awaitable[None] | None],
        failed: Callable[[OSError], None] = _log_failure,
    ) -> None:
        """Go on as soon as the disk has taken this; the master waits. `failed`: not yet."""
        while True:
            try:
                if (saving := save()) is not None:
                    await saving
            except OSError as error:
                failed(error)
                await trio.sleep(SEGMENT_AGAIN_S)
            else:
                return

    async def _roll(self, size: int) -> None:
        """Go on in the next segment, as soon as there is one; the master waits."""
        while True:
            late = trio.Event()
            self._allocator.after_wait.add(late.set)
            try:
                self._allocator.roll(size)
            except SegmentLate:
                with trio.move_on_after(SEGMENT_AGAIN_S):
                    await late.wait()
            except OSError:
                await trio.sleep(SEGMENT_AGAIN_S)
            else:
                return
            finally:
                self._allocator.after_wait.remove(late.set)

    # ── To the master ──

    async def _report(
        self, stream: trio.abc.Stream, wire: SlaveEnd, scope: trio.CancelScope
    ) -> None:
        """Report the end of the log at once, whenever it has moved, and as a heartbeat."""
        reported = -1
        try:
            if self.shadow:
                await self._report_nothing(stream, wire)
            while True:
                self._wanted = trio.Event()
                reported = max(reported, self._flush.counted_end)
                await stream.send_all(wire.report(reported))
                with trio.move_on_after(self.pace.heartbeat_s):
                    while self._flush.counted_end <= reported:
                        await self._wanted.wait()
                        self._wanted = trio.Event()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            scope.cancel()

    async def _report_nothing(self, stream: trio.abc.Stream, wire: SlaveEnd) -> NoReturn:
        """Report where to begin; when the master has answered, that this copy never counts.

        The first of two reports that a Java master reads at once would be lost as the second.
        Raises: BrokenResourceError, ClosedResourceError.
        """
        self._heard = trio.Event()
        report = self._flush.counted_end
        while True:
            await stream.send_all(wire.report(report))
            with trio.move_on_after(self.pace.heartbeat_s):
                if report == NEVER_COUNTS:
                    await trio.sleep_forever()
                await self._heard.wait()
                report = NEVER_COUNTS


def _each(data: bytes | memoryview, headers: list[RecordHeader]) -> Iterator[bytes | memoryview]:
    """The records with these headers, which lie side by side. Hot."""
    end = 0
    for header in headers:
        begin, end = end, end + header.size
        yield data[begin:end]
