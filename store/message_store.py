"""The interface of the store: load, put, get, queries by offset and time, close.

One writer, the loop: between taking a queue offset and advancing the end of the log nothing awaits,
so offsets and records always match. A put is encoded with its offsets, copied into the mapping and
handed to dispatch; `when_durable` tells when it is on disk. The store knows nothing of clients.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
import trio

from aerobee.store.files.lock_file import LockFile, LogLock
from aerobee.store.files.sync_thread import SyncThread
from aerobee.store.flags import Flag, RunningFlags
from aerobee.store.flush.checkpoint import CheckpointService
from aerobee.store.flush.checkpoint_file import CheckpointFile
from aerobee.store.flush.log_flush import LogFlush, LogFlushHooks
from aerobee.store.flush.queue_flush import QueueFlush, QueueFlushHooks
from aerobee.store.flush.recovery_points import RecoveryPoints
from aerobee.store.format import names
from aerobee.store.format.unit import DelayLevels
from aerobee.store.index.key_index import KeyIndex
from aerobee.store.listeners import Listeners
from aerobee.store.log.commit_log import CommitLog
from aerobee.store.messages.reader import SCAN_UNITS, MessageReader
from aerobee.store.messages.writer import Writer
from aerobee.store.queues.consume_queues import ConsumeQueues
from aerobee.store.queues.dispatch import Dispatcher, DispatchService
from aerobee.store.recovery import cut, start_check
from aerobee.store.recovery.abort_file import AbortFile
from aerobee.store.recovery.last_stop import LastStop, LastStopFile
from aerobee.store.recovery.recovery import recover
from aerobee.store.recovery.recovery_start import ALL_TOPICS, LastRun, TopicHistory
from aerobee.store.replication.group import Group
from aerobee.store.replication.log_in import LogIn
from aerobee.store.replication.log_out import LogOut
from aerobee.store.replication.membership import Membership
from aerobee.store.replication.replica_waits import ReplicaWaits
from aerobee.store.results import GetResult, GetStatus, PutOutcome
from aerobee.store.set_aside import SetAside
from aerobee.store.shared import Contents, Runtime
from aerobee.store.space.store_space import StoreSpace
from aerobee.store.stats import StoreStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aerobee.store.clock import Clock
    from aerobee.store.config import StoreConfig
    from aerobee.store.files.disk import Disk
    from aerobee.store.format.tags import TagFilter
    from aerobee.store.queues.consume_queue import ConsumeQueue
    from aerobee.store.results import Recovery

DELETE_AGAIN_S: Final = 1.0
"""The pause before queues are deleted that could not be."""

log = structlog.get_logger(__name__)


class MessageStore:
    """Everything below one data directory, for one owner (DefaultMessageStore).

    Use: `load`, then `run` in a nursery while `put`, `get` and `dispatch` are called from the same
    loop, then `close`. `dispatch` is called at the end of every round of the reactor.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        disk: Disk,
        clock: Clock,
        topics: TopicHistory = ALL_TOPICS,
        in_group: bool = False,
    ) -> None:
        """`topics` are for the recovery.

        `in_group`: `join_group` follows the load. Such a directory opens in no other way.
        """
        self.root = root = Path(config.store_path_root_dir).expanduser()
        log_directory = Path(config.store_path_commit_log or root / names.COMMIT_LOG).expanduser()
        segment_bytes = config.mapped_file_size_commit_log_bytes
        self.config = config
        self._disk = disk
        self.clock = clock
        self._topics = topics
        self._in_group = in_group
        self._made_anew = False
        """Whether the directory had nothing of a store when it was loaded."""
        self.stats = StoreStats()
        aside = self.aside = SetAside(self.stats, clock)
        self.flags = RunningFlags()
        self.flags.set(Flag.SHUT_DOWN, "the store is not loaded")
        self.after_flush: Listeners[[]] = Listeners()
        """Called after each group of `when_durable` callbacks, and when dispatch advanced by
        itself."""
        self.after_growth: Listeners[[]] = Listeners()
        """Called ahead of a dispatch: what counts of the log may have grown."""
        self._confirming: Group | None = None
        """Of a member of a group: what says how far consumers may see."""
        self.commit_log = CommitLog(
            disk, log_directory, segment_bytes, setting="mappedFileSizeCommitLog"
        )
        self.queues = ConsumeQueues(
            disk, root / names.CONSUME_QUEUE, config.mapped_file_size_consume_queue_bytes
        )
        levels = self.levels = DelayLevels(config.message_delay_level)
        self.dispatcher = Dispatcher(self.commit_log, self.queues, levels, self.stats, aside, clock)
        self.arrivals = self.dispatcher.arrivals
        self.reader = MessageReader(config, self.commit_log, disk, clock, self.stats)
        cold = self.reader.cold
        self.complete, self.reading = cold.complete, cold.reading
        """`await complete(call)`: the result of a reading call that raises NotInMemory."""
        self.complete_some = cold.complete_some
        self.message = partial(self.reader.message, self.queues)
        self._lock = LockFile(disk, root / names.LOCK)
        self._log_lock = LogLock(disk, log_directory)
        self._abort = AbortFile(disk, root / names.ABORT)
        self._checkpoint_file = CheckpointFile(disk, root / names.CHECKPOINT)
        self._last_stop = LastStopFile(disk, root / names.LAST_STOP)
        self._make_services(
            Contents(self.commit_log, self.queues, self.dispatcher, trio.Lock()),
            Runtime(disk, clock, self.stats),
        )

    def _make_services(self, contents: Contents, runtime: Runtime) -> None:
        config, log = self.config, self.commit_log
        self.sync_thread = SyncThread()
        """Runs while the store runs, and once more for its close."""
        self.index = KeyIndex(
            config,
            contents,
            runtime,
            self.root / names.INDEX,
            self._checkpoint_file,
            on_failed=self._sync_failed,
            report=self.reader.checked.report,
        )
        self.space = StoreSpace(
            config,
            contents,
            runtime,
            self.flags,
            root=self.root,
            followers=(self.index.service.files.delete_before,),
            on_failed=self._sync_failed,
        )
        log.new_segment = self.space.allocator.new_segment
        self.after_wait = self.space.allocator.after_wait
        """Called when a put that was answered with SEGMENT_LATE may be tried again."""
        self.writer = Writer(config, contents, self.space.allocator, self.flags, runtime)
        self.put = self.writer.put
        self.put_batch = self.writer.put_batch
        answered = LogFlushHooks(self._advance, self._flushed, self._sync_failed)
        self._log_flush = LogFlush(config, log, self.sync_thread, runtime, answered)
        self.when_on_disk = self._log_flush.when_durable
        self.when_durable: Callable[[int, Callable[[PutOutcome], None]], None] = self.when_on_disk
        """Its sync begins with the next `dispatch`."""
        self.after_stall = self._log_flush.after_stall
        self._make_replication(runtime)
        self.points = RecoveryPoints(contents, self._checkpoint_file, self._lock, self._disk)
        self._checkpoint = CheckpointService(
            self._checkpoint_file,
            contents,
            self._log_flush,
            runtime,
            index_timestamp=lambda: self.index.service.durable_timestamp,
        )
        self._queue_flush = QueueFlush(
            config,
            contents,
            self._log_flush,
            self._checkpoint,
            self.points,
            runtime,
            QueueFlushHooks(self._sync_failed, self._queues_stuck),
        )
        self._dispatch_service = DispatchService(
            self._advance,
            lambda: self.dispatcher.behind(self.confirm_offset),
            self._flushed,
        )

    def _make_replication(self, runtime: Runtime) -> None:
        self.log_out = LogOut(self.commit_log, self._log_flush, self.reader, self.stats)
        """Sends the log to slaves; without a connection it costs nothing."""
        self.replicas = ReplicaWaits(self.log_out, self._log_flush, runtime.clock, self._flushed)
        """Senders that wait for slaves, where `wait_for_slaves` was called."""
        self.log_in = LogIn(
            self.commit_log,
            self.space.allocator,
            self._log_flush,
            self.stats,
            self._queue_begins,
            self.dispatcher.offer_headers,
        )
        """Takes the log of a master; nothing else may put anything then."""

    # ── Life ──

    def lock(self) -> None:
        """Refuse what is not ours, then make the directory ours alone; `unlock` or `load` follows.

        Raises: StoreRefused with file and remedy in the text; nothing on disk has changed then.
        """
        start_check.refuse_foreign(self._disk, self.root, in_group=self._in_group)
        start_check.refuse_no_directory(self._disk, self.root, self.commit_log.queue.directory)
        start_check.make_directory(self._disk, self.root)
        self._lock.acquire()
        try:
            with start_check.refusing(self._log_lock.path):
                self._log_lock.acquire()
        except BaseException:
            self.unlock()
            raise

    def unlock(self) -> None:
        """Give up a directory that was locked and not loaded."""
        self._log_lock.release()
        self._lock.release()

    def load(self) -> Recovery:
        """Lock the directory unless that is done, load, recover. A full disk is given the reserve.

        Raises: StoreRefused with file and remedy, when nothing else has changed; OSError: no room.
        """
        if not self._lock.held:
            self.lock()
        try:
            recovery = self._load_locked()
        except BaseException:
            self.let_go()
            raise
        self.flags.clear(Flag.SHUT_DOWN)
        self.log_out.opened()
        log.info(
            "store.recovered" if not recovery.clean else "store.loaded",
            path=str(self.root),
            cut_bytes=recovery.cut_bytes,
            end_offset=recovery.end_offset,
            records=recovery.records,
            elapsed_ms=recovery.elapsed_ms,
        )
        newest, now = self.commit_log.last_store_timestamp, self.clock.now_ms()
        start_check.warn_of_clock(self.root, newest, now)
        return recovery

    def _load_locked(self) -> Recovery:
        segment, index = self.config.mapped_file_size_commit_log_bytes, self.index.file_bytes
        where = self.commit_log.queue.directory
        with start_check.refusing(self.root):
            cut.finish(self._disk, self.root, where)
        self._made_anew = start_check.is_made_anew(self._disk, self.root)
        start_check.refuse_small_disk(self._disk, self.root, where, segment, index)
        with start_check.refusing(self.root):
            folders = (self.commit_log.queue.directory, self.queues.directory)
            with start_check.opening(self._disk, self._abort, folders, self.space.reserve) as clean:
                self._log_lock.acquire()  # Of a directory that was not there before.
                self._checkpoint_file.load()
                self.commit_log.load()
                self.queues.load(self.points.load_extents())
                last_stop = self._last_stop.load() if clean else None
                recovery = recover(
                    self.commit_log,
                    self.queues,
                    LastRun(clean, self._checkpoint_file.value, last_stop, self.points.load()),
                    self._topics,
                    levels=self.levels,
                    crc=self.config.check_crc_on_recover,
                    clock=self.clock,
                    progress=self.stats.recovery,
                )
            start_check.remove_leftovers(self._disk, self.root, where)
            same_log = last_stop is not None and last_stop.log_end == recovery.end_offset
            self.index.load(recovery, last_stop.index_file if last_stop and same_log else None)
            self._disk.descriptors.hold((self.root, self.commit_log.queue.directory))
            start_check.say_footprint(self._disk, self.commit_log, index, self.space.reserve.size)
            self._begin_at(recovery)
        return recovery

    def _begin_at(self, recovery: Recovery) -> None:
        last = recovery.last_store_timestamp
        known = self._checkpoint_file.value.clamped(last)
        self._log_flush.physic_timestamp = known.physic_msg_timestamp
        self._checkpoint.logics_timestamp = known.logics_msg_timestamp
        if not recovery.clean:  # Recovery has synced all of the log.
            self._log_flush.physic_timestamp = last
            if recovery.queues_end == recovery.end_offset:
                self._checkpoint.logics_timestamp = last
        self.dispatcher.dispatched = self.commit_log.mapped_from = self.commit_log.max_offset
        self.dispatcher.last_store_timestamp = last
        self.dispatcher.last_position = recovery.last_position
        self.points.begin(recovery, f"{self._disk.process_id()} {self.clock.now_ms()}")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """All services of the store, until cancelled. Started means: syncs are done.

        From then on a reading call raises NotInMemory instead of waiting for the disk.
        """
        self.sync_thread.start()
        self.reader.cold.waits = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._log_flush.run)
            nursery.start_soon(self._queue_flush.run)
            nursery.start_soon(self.space.run)
            nursery.start_soon(self._dispatch_service.run)
            nursery.start_soon(self.index.service.run)
            if self.replicas.is_on:
                nursery.start_soon(self.replicas.run)
            task_status.started()

    async def close(self) -> bool:
        """Everything on disk, checkpoint written, then the abort file removed; `run` has ended.

        The abort file stays, and False is returned, when any of it failed or dispatch is behind:
        the next start repairs that. Source: store format §3.4.
        """
        if not self._lock.held:
            return True
        self.flags.set(Flag.SHUT_DOWN, "the store is shut down")
        # Nobody is served any more, and the next start has all of the log in its queues.
        self._confirming = None
        self.reader.cold.waits = True
        self._log_flush.stopping = True
        self.sync_thread.start()
        await self.space.make_room()
        durable = await self._log_flush.reach(self.commit_log.max_offset)
        await self._dispatch_service.catch_up(self.clock)
        durable = await self.index.service.close() and durable
        durable = await self._queue_flush.round(thorough=True, final=True) and durable
        self.sync_thread.stop()
        clean = durable and not self._damage() and await self._took_back()
        try:
            await self._disk.in_thread(self._finish, clean)
        except OSError as error:
            log.error("store.close_failed", error=str(error))
            clean = False
        # To unmap a segment takes milliseconds for each GiB that was touched.
        await self._disk.in_thread(self.let_go)
        log.info("store.closed", clean=clean)
        return clean

    async def _took_back(self) -> bool:
        """Whether nothing is left of messages that were refused for want of room: the next start
        would count them.
        """
        try:
            await self._disk.in_thread(self.commit_log.take_back_tried)
        except OSError as error:
            log.error("store.close_failed", error=str(error))
            return False
        return True

    def _damage(self) -> bool:
        """Whether the next start must look closer."""
        return (
            bool(self.dispatch_behind_bytes or self.stats.queues_stopped)
            or bool(self.flags.bits & ~int(Flag.SHUT_DOWN | Flag.DISK_FULL | Flag.SLAVE))
            or self._log_flush.failure is not None
        )

    async def flush_queues(self) -> bool:
        """A thorough round now: log, queues and checkpoint on disk. False when that failed."""
        return await self._queue_flush.round(thorough=True)

    def _finish(self, clean: bool) -> None:
        self.space.allocator.discard()
        self._disk.sync_directory(self.root)
        if clean:
            index_file = self.index.service.whole
            self._last_stop.write(LastStop.of(self.commit_log, self.queues, index_file))
            self._abort.remove()

    def let_go(self) -> None:
        """Give back the files and the lock, and nothing else: `close` is the way to stop."""
        self.queues.close()
        self.commit_log.close()
        self._log_lock.release()
        self.space.close()
        self._lock.release()

    async def _queue_begins(self, topic: str, queue_id: int) -> bool:
        """Delete what a slave has of a queue that begins anew in its master's log; whether the
        master has deleted the topic, and made it again since. It may have deleted this queue alone.
        """
        queue = self.queues.find(topic, queue_id)
        if queue is None or not queue.next_offset:
            return False
        if (group := self._confirming) is not None:
            # Its last messages have to leave dispatch, confirmed or not: no heartbeat of the master
            # is read while this waits. Nobody reads here before they are, see `shows_confirmed`.
            group.dispatch_to(self.commit_log.max_offset)
        while True:
            await self._log_flush.reach(self.commit_log.max_offset)
            await self._dispatch_service.catch_up(self.clock)
            renewed = queue.max_physical_offset > self._begin_of_both
            try:
                gone = await self.complete(partial(self._begun_before, queue)) if renewed else ()
                await self.space.queues.destroy_dispatched({queue, *gone}.__contains__)
            except OSError as error:
                log.warning("queue.not_deleted", topic=topic, error=str(error))
                await trio.sleep(DELETE_AGAIN_S)
            else:
                break
        # A recovery walks the log from behind this: older records get no units in the new queue.
        await self.flush_queues()
        return renewed

    @property
    def _begin_of_both(self) -> int:
        """In front of this byte either this log has nothing, or that of the master."""
        return max(self.commit_log.min_offset, self.log_in.master_ends[0])

    def _begun_before(self, queue: ConsumeQueue) -> list[ConsumeQueue]:
        """The queues of its topic whose first message is older than its last one: the others begin
        with the topic that was made again. Raises: NotInMemory, OSError.
        """
        units = self.reader.cold.units
        firsts = (
            (other, other.unit(other.min_offset, units))
            for other in self.queues.all()
            if other.topic == queue.topic
        )
        last = queue.max_physical_offset
        return [other for other, unit in firsts if unit is None or unit.physical_offset < last]

    # ── Dispatch and durability ──

    @property
    def confirm_offset(self) -> int:
        """How far consumers may see: under SYNC_FLUSH no further than the disk, and in a group no
        further than its sync set.
        """
        group = self._confirming
        own = self._log_flush.counted_end
        return own if group is None else min(own, group.visible)

    def dispatch(self) -> bool:
        """End of a round: begin a sync, feed queues and arrivals; returns if some is left. Hot."""
        if self._log_flush.answers_wait or self._log_flush.waiting:
            self._log_flush.finish_round()
        self._advance()
        self._queue_flush.look()
        return self.dispatcher.dispatched < self.confirm_offset

    def _advance(self) -> None:
        if self.log_out.followers:
            self.log_out.appended()
        if (tell := self.after_growth.tell) is not None:
            tell()
        confirm = self.confirm_offset
        if self.dispatcher.advance(confirm):
            self._dispatch_service.go_on()

    def be_slave(self) -> None:
        """From now on only `log_in` writes to the log: every put is refused."""
        self.flags.set(Flag.SLAVE, "this broker is a slave: its log is a copy of the master's")

    async def end_copy(self) -> bool:
        """Bring all that was copied to the disk and into the queues; False when that cannot be.

        Nothing may be copied meanwhile.
        """
        if not await self._log_flush.reach(self.commit_log.max_offset):
            return False
        while self.dispatch():
            await trio.lowlevel.checkpoint()
        return not self.dispatch_behind_bytes

    def stay_master(self) -> None:
        """Take puts again after `be_slave`, with nothing copied since."""
        self.flags.clear(Flag.SLAVE)

    def be_master(self) -> None:
        """Take puts again, behind what was copied, all of which was dispatched."""
        assert not self.dispatch_behind_bytes, self.dispatch_behind_bytes
        # Other slaves have got from their common master what this log has from there.
        self.log_out.opened()
        self.flags.clear(Flag.SLAVE)

    # ── A group in failover mode ──

    def join_group(self, member: int, members: Iterable[int] | None) -> Membership:
        """Replicate by epochs from now on, as a slave at first; loaded, and not connected.

        Raises: StoreDamaged, OSError.
        """
        assert self._in_group, "the directory would open alone"
        self.be_slave()
        membership = Membership(
            self._disk,
            self.root,
            self.commit_log,
            partial(Group, member, members),
            self._begin_cut,
            partial(cut.forget, self._disk, self.root),
            made_anew=self._made_anew,
        )
        self.log_in.membership = membership
        self.log_in.wire = self.log_out.wire = membership.wire
        return membership

    async def lead_group(self, epoch: int) -> None:
        """Be the master of the group with this epoch, after `end_copy`: slaves may copy from now
        on. Puts are taken after `be_master`. Raises: OSError.
        """
        assert self.flags.bits & Flag.SLAVE, "the log may not grow meanwhile"
        membership = self.log_in.membership
        assert membership is not None
        self.log_out.opened()
        await membership.lead(epoch)

    def leave_lead(self) -> None:
        """Be a slave of the group: no put, no connection of a slave."""
        membership = self.log_in.membership
        assert membership is not None
        membership.group.leads = False
        self.be_slave()
        self.log_out.close()

    def _begin_cut(self, offset: int, name: str) -> str:
        directory, kept = self.commit_log.queue.directory, self.root / names.CUT / name
        return cut.begin(self._disk, self.root, directory, offset, keep_in=kept).kept_in

    def wait_for_group(self, group: Group, held: Callable[[], int], timeout_s: float) -> None:
        """From now on `when_durable` is about what the group holds, see `ReplicaWaits`, and
        consumers see what is confirmed there; before `run`.
        """
        self._confirming = group
        self.replicas.configure_group(held, timeout_s)
        self.when_durable = self.replicas.when_in_group

    @property
    def counted_end(self) -> int:
        """The end of the log as far as it counts for this broker."""
        return self._log_flush.counted_end

    @property
    def sync_takes_s(self) -> float:
        """How long the sync of the log that runs has taken so far; 0 without one."""
        return self._log_flush.sync_takes_s

    @property
    def waits_for_group(self) -> bool:
        """Whether senders wait for what a group holds."""
        return self._confirming is not None

    @property
    def shows_confirmed(self) -> bool:
        """Whether all that consumers could see here is confirmed by the group."""
        group = self._confirming
        return group is None or group.confirmed >= self.dispatcher.dispatched

    def wait_for_slaves(self, needed: int, timeout_s: float) -> None:
        """From now on `when_durable` is about so many slaves as well; before `run`."""
        self.replicas.configure(needed, timeout_s)
        self.when_durable = self.replicas.when_kept

    def _flushed(self) -> None:
        if (tell := self.after_flush.tell) is not None:
            tell()

    # ── Reading ──

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        matches: TagFilter | None = None,
        *,
        max_bytes: int | None = None,
        max_count: int | None = None,
    ) -> GetResult:
        """Messages of a queue from `queue_offset` on; the limits replace those of the config. Hot.

        A queue that was never written answers as an empty one. Raises: NotInMemory, OSError.
        """
        queue = self.queues.table.get((topic, queue_id))
        if queue is None:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        result = self.reader.get(queue, queue_offset, max_messages, matches, max_bytes, max_count)
        stats = self.stats
        stats.messages_got += result.count
        stats.bytes_got += result.size
        return result

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First queue offset that can be read; 0 for an unknown queue."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset behind the last readable message of a queue; 0 for an unknown queue."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.end_offset

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False
    ) -> int:
        """First queue offset stored at or after the time, or with `upper` the last not after it.

        Raises: NotInMemory, OSError.
        """
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else self.reader.offset_by_time(queue, timestamp_ms, upper=upper)

    def first_wanted(self, topic: str, queue_id: int, queue_offset: int, matches: TagFilter) -> int:
        """The first message from there on that passes, by its unit; the offset itself without one.

        Raises: NotInMemory, OSError.
        """
        queue = self.queues.find(topic, queue_id)
        codes = [] if queue is None else self.reader.tags_codes(queue, queue_offset, SCAN_UNITS)
        passing = (at for at, code in enumerate(codes, queue_offset) if matches.matches(code))
        return next(passing, queue_offset)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of one message in ms; −1 when there is none. Raises: NotInMemory, OSError."""
        queue = self.queues.find(topic, queue_id)
        return -1 if queue is None else self.reader.store_time(queue, queue_offset)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """Store time of the first message of a queue in ms, as `store_time`."""
        return self.store_time(topic, queue_id, self.min_offset(topic, queue_id))

    def is_hot(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether that message is probably in memory; True where there is none.

        Raises: NotInMemory, OSError.
        """
        queue = self.queues.find(topic, queue_id)
        unit = None if queue is None else queue.unit(queue_offset, self.reader.cold.units)
        return unit is None or self.reader.is_hot(unit.physical_offset)

    def read(self, physical_offset: int, size: int | None = None) -> memoryview | None:
        """The record that begins there; None for any other offset. Raises: NotInMemory, OSError."""
        return self.reader.record(physical_offset, size)

    def last_record(self) -> tuple[int, bytes] | None:
        """The last record that has a unit: where it begins, and its bytes; None without one.

        Raises: NotInMemory, OSError.
        """
        at = self.dispatcher.last_position
        if at < 0:
            units = self.reader.cold.units
            last = (
                queue.unit(queue.end_offset - 1, units)
                for queue in self.queues.table.values()
                if queue.end_offset > queue.min_offset
            )
            at = max((unit.physical_offset for unit in last if unit is not None), default=-1)
        record = None if at < 0 else self.read(at)
        return None if record is None else (at, bytes(record))

    def stored_message(self, physical_offset: int) -> memoryview | None:
        """The stored bytes of the message that begins there; None for any other offset.

        The bytes of a record inside a body are not a message: a unit of its queue leads to one.
        Raises: NotInMemory, OSError.
        """
        known = self.message(physical_offset)
        return None if known is None else self.read(physical_offset)

    # ── State ──

    def reconfigure(self, config: StoreConfig) -> None:
        """Apply settings that may change while running."""
        self.config = config
        self.reader.configure(config)
        self.space.reconfigure(config)
        self.index.service.configure(config)
        self.writer.config = config
        self._log_flush.reconfigure(config)
        self._queue_flush.reconfigure(config)

    @property
    def flush_behind_bytes(self) -> int:
        """Bytes of the log that a power cut may take."""
        return self.commit_log.unflushed_bytes

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that consumers cannot see yet."""
        return self.dispatcher.behind(self.commit_log.max_offset)

    def _sync_failed(self, error: OSError) -> None:
        self.flags.set(Flag.NOT_WRITEABLE, f"a sync to disk failed: {error}")

    def _queues_stuck(self, error: OSError | None) -> None:
        cause = "" if error is None else f"consume queues cannot be written: {error}"
        self.flags.tell(Flag.LOGIC_DISK_FULL, cause)
