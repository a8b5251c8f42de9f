"""A slave has the tables of its master: topics, groups, offsets, progress of delay levels, modes.

They are copied as soon as the master answers, then periodically, and at once when a message of an
unknown topic has come: the log is copied within milliseconds, and its topic must not be a minute
behind. An entry that the master has dropped is dropped. Offsets are merged, since consumers commit
here as well. In a group any slave may be the master at any time. So it asks each second for what
changes, and has the progress that its master has, no more: what it had as the master itself may
refer to a log that was cut. Source: semantics §0, §17.4 (SlaveSynchronize).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol

import structlog
import trio

from aerobee.broker.consumers.consumer_offsets import OWN_GROUPS
from aerobee.broker.consumers.offset_answer import offsets_in_parts
from aerobee.broker.errors import first_reason
from aerobee.broker.replication.following import SEARCH_S, STUCK_S
from aerobee.broker.replication.master_calls import (
    UNANSWERED,
    MasterRefused,
    answered,
    log_of_followed,
    pages,
    table_of,
)
from aerobee.broker.replication.other_masters import status_of
from aerobee.remoting.errors import RemotingError
from aerobee.remoting.server.turns import in_slices
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers import group, offset, pop, topic
from aerobee.remoting.wire.headers.admin import GetTimerCheckPoint
from aerobee.store.format.timer import TIMER_CHECK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aerobee.broker.consumers.consumer_offsets import Offsets
    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.delay.delay_offsets import DelayOffsetTable
    from aerobee.broker.replication.master_calls import Connect, MasterAddress, MasterLink
    from aerobee.broker.timers.timers_done import TimersDone
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.wire.header import Header
    from aerobee.store.format.timer import TimerCheck

AGAIN_S: Final = 5.0
"""The pause after a failure."""
UNKNOWN_S: Final = 1.0
"""The least pause between two copies for messages of topics that even the master does not know."""
REACH_S: Final = 1.0
"""How long the log may take to what the master had when it told its progress."""
REACH_LOOK_S: Final = 0.01
CHANGES_S: Final = 1.0
"""The pause between two copies of what has changed, in a group."""
CHANGES_PART: Final = 20
"""A slave spends at most one part of its time in so many on these copies."""

UNREADABLE: Final = (ValueError, TypeError, AttributeError, OverflowError)
"""The errors of a table of another shape; BodyError is one of the remoting."""

WITHOUT_TIMERS: Final = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR)
"""The answers of RocketMQ 4.9, and of a broker with timerWheelEnable=false, about timers."""

log = structlog.stdlib.get_logger(__name__)


class Modes(Protocol):
    """The table that says which groups pop which topics."""

    def copy(self, document: Mapping[str, Any]) -> None: ...


class Copies(NamedTuple):
    """The tables of this broker that are those of its master."""

    topics: TopicTable
    consumers: ConsumerTables
    delays: DelayOffsetTable
    modes: Modes
    timers: TimersDone | None = None


class Progress(NamedTuple):
    """How far consumers and the services of a master are, and where its log ended then."""

    offsets: dict[str, dict[int, int]]
    delays: Mapping[str, Any]
    timers: TimerCheck | None
    end: int


class MasterTables:
    """The service. `master` says where the master is now; None: nobody knows."""

    def __init__(
        self,
        core: Core,
        tables: Copies,
        master: Callable[[], MasterAddress | None],
        connect: Connect,
    ) -> None:
        self._core = core
        self._tables = tables
        self._master = master
        self._connect = connect
        self._period_s = core.config.replication.slave_tables_period_ms / 1000
        self._offsets: Offsets = {}
        """The master's, as they were last copied."""
        self._late: Progress | None = None
        """The offsets that count once the log of this slave is there."""
        self._renewals = 0
        """How often a topic was made anew: progress that was asked for before may be of the old."""
        self._versions: dict[str, Any] = {}
        """Of the tables with a version, as they were last copied."""
        self._whole = self._progressed = False
        """Whether all tables of the master were copied once, and its progress was taken."""
        self._origin: tuple[MasterAddress, int] | None = None
        """Whose tables these are about, and since which epoch."""
        self._unknown = trio.Event()
        self._one = trio.Lock()
        self._copied: bool | None = None
        self.copied_at = float("-inf")
        """When the last copy was complete, by the loop's clock."""
        self._failing_since = float("inf")
        """When a copy failed first, of those since the master was heard without one."""
        self._problem = ""
        """Why the last copy failed."""
        self.when_topic_gone: list[Callable[[str], None]] = []
        """Called with each topic that the master has dropped."""
        self.when_group_gone: list[Callable[[str], None]] = []
        """Called with each group that the master has dropped."""

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Copy until cancelled."""
        log_in = self._core.store.log_in
        self._note("", 0.0)
        log_in.after_begin.add(self._queue_begins)
        log_in.after_renewal.add(self._topic_renewed)
        task_status.started()
        try:
            while True:
                master = self._master()
                if master is None:
                    await trio.sleep(SEARCH_S)
                    continue
                copied = await self.copied(master)
                await trio.sleep(UNKNOWN_S)
                wait_s = max(0.0, (self._period_s if copied else AGAIN_S) - UNKNOWN_S)
                if self._core.store.waits_for_group and copied:
                    await self._copy_changes_for(wait_s, master)
                else:
                    with trio.move_on_after(wait_s):
                        await self._unknown.wait()
        finally:
            log_in.after_begin.remove(self._queue_begins)
            log_in.after_renewal.remove(self._topic_renewed)

    def _queue_begins(self, name: str, queue_id: int) -> None:
        """A queue gets its first message; that of an unknown topic asks for the topics."""
        if not self._tables.topics.is_known(name):
            self._unknown.set()

    def _topic_renewed(self, name: str) -> None:
        """A topic was deleted and made again between two copies. As the greater ones, its offsets
        would outlast what consumers commit now.
        """
        self._late = None
        self._renewals += 1
        self._forget_topic(name)

    def _forget_topic(self, name: str) -> None:
        self._tables.consumers.offsets.delete_topic(name)
        self._core.stats.forget_topic(name)
        for forget in self.when_topic_gone:
            forget(name)

    async def _copy_changes_for(self, wait_s: float, master: MasterAddress) -> None:
        """Copy what changes until it is time for all tables, or the master is another one."""
        ends = trio.current_time() + wait_s
        try:
            async with self._connect(master.address) as link:
                while self._master() == master and not self._unknown.is_set():
                    began = trio.current_time()
                    async with self._one:
                        self._are_of(master)
                        await self.copy(link, whole=False)
                    now = trio.current_time()
                    if now >= ends:
                        break
                    pause_s = max(CHANGES_S, (now - began) * CHANGES_PART)
                    with trio.move_on_at(min(ends, now + pause_s)):
                        await self._unknown.wait()
        except* (*UNANSWERED, *UNREADABLE):
            pass  # the next copy of all tables comes at once, and says why

    async def copy_now(self) -> str:
        """Copy all tables of the master as they are now; why not, empty when that is done."""
        master = self._master()
        return "nobody knows the master" if master is None else await self._copied_from(master)

    def _are_of(self, master: MasterAddress) -> None:
        """Forget the tables of an earlier master: those that are copied now are of this one."""
        origin = master, self._core.role.epoch
        if origin != self._origin:
            self._origin, self._offsets, self._late, self._versions = origin, {}, None, {}
            self._whole = self._progressed = False

    @property
    def all_of(self) -> int:
        """The epoch of the master of which all tables and some progress are here; 0: of none."""
        complete = self._whole and self._progressed
        return self._origin[1] if self._origin is not None and complete else 0

    @property
    def late_s(self) -> float:
        """For how long the log of the master has come, and its tables have not; 0: both do."""
        return max(0.0, self._core.store.log_in.heard_at - self._failing_since)

    def trouble(self) -> str | None:
        """The reason why a master whose log comes has old tables here, in words; None: none has."""
        if self.late_s <= STUCK_S:
            return None
        return (
            f"the master's topics, groups and offsets have not come for {self.late_s:.0f} s:"
            f" {self._problem}"
        )

    def _note(self, reason: str, began: float) -> None:
        """Note how a copy has ended."""
        self._problem = reason
        if not reason:
            self._failing_since = float("inf")
        elif self._core.store.log_in.heard_at <= self._failing_since:
            # Until now it may be the master that is away.
            self._failing_since = began

    async def _copied_from(self, master: MasterAddress, *, whole: bool = True) -> str:
        reason, began = "", trio.current_time()
        try:
            async with self._one, self._connect(master.address) as link:
                self._are_of(master)
                await self.copy(link, whole=whole)
        except* (MasterRefused, RemotingError, OSError) as errors:
            reason = first_reason(errors)
        except* UNREADABLE as errors:
            reason = f"a table cannot be read: {first_reason(errors)}"
        self._note(reason, began)
        return reason

    async def copied(self, master: MasterAddress, *, whole: bool = True) -> bool:
        """Copy all tables once, or what has changed; whether that succeeded. A table that fails is
        logged once.
        """
        reason = await self._copied_from(master, whole=whole)
        copied = not reason
        if copied is not self._copied:
            self._copied = copied
            if copied:
                log.info("replication.tables_copied", master=master.address)
            else:
                log.warning("replication.tables_late", master=master.address, reason=reason)
        return copied

    async def copy(self, link: MasterLink, *, whole: bool = True) -> None:
        """Copy all tables once, in the order in which each needs the one before; unless `whole`,
        topics and groups only where their version is another one.

        Raises: MasterRefused, RemotingError, ValueError, TypeError, AttributeError.
        """
        self._unknown = trio.Event()
        if whole or await self._differs(link, topic.GetAllTopicConfig(0, "", 1)):
            await self._copy_topics(link)
        if whole or await self._differs(link, group.GetAllGroupConfig(0, "", 1)):
            await self._copy_groups(link)
        await self._copy_progress(link)
        try:
            modes = await self._document(link, pop.GetAllMessageRequestMode())
        except MasterRefused as refused:
            # RocketMQ 4.9 has no such table.
            if refused.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        else:
            self._tables.modes.copy(modes)
        self._whole = self._whole or whole
        self.copied_at = trio.current_time()

    async def _differs(self, link: MasterLink, header: Header) -> bool:
        """Whether a table of the master has another version than the one that is here.

        `header` asks for its first entry: the version comes with it.
        """
        page = await self._document(link, header)
        return bool(page.get("dataVersion") != self._versions.get(type(header).__name__))

    async def _copy_topics(self, link: MasterLink) -> None:
        # Asked first: what comes here meanwhile may be of a topic made anew.
        log_end = self._core.store.dispatcher.dispatched
        complete = await self._has_all_topics(link)
        document = await pages(
            link,
            "topicConfigTable",
            lambda first, version, most: topic.GetAllTopicConfig(
                topic_seq=first, data_version=version, max_topic_num=most
            ),
            "totalTopicNum",
        )
        self._versions[topic.GetAllTopicConfig.__name__] = document.get("dataVersion")
        unnamed = self._unnamed(log_end)
        for name in self._tables.topics.copy(document, log_end, unnamed, complete=complete):
            log.info("topic.deleted", topic=name, address="master")
            self._forget_topic(name)

    async def _has_all_topics(self, link: MasterLink) -> bool:
        """Whether a topic that the table of the broker there lacks was deleted.

        The next master of a group adds topics that have messages in its log and no config, before
        it serves. A master that has served and given its lease back has had all of them.

        Raises: MasterRefused, RemotingError.
        """
        if not self._core.store.waits_for_group:
            return True
        status = await status_of(link)
        if status is None or status.master or (record := status.record) is None:
            return True
        return record.master == record.member and record.served and not record.held

    def _unnamed(self, log_end: int) -> Iterator[str]:
        """Topics that have messages here, all of them before that place of the log, and no config.
        Where their master has none either it has deleted them, before this slave had its tables.
        """
        topics, ends = self._tables.topics, dict[str, int]()
        for (name, _), queue in self._core.store.queues.table.items():
            if not topics.is_known(name):
                ends[name] = max(ends.get(name, 0), queue.max_physical_offset)
        for name, end in ends.items():
            if 0 < end <= log_end and not topics.deleted.covers(name, end - 1):
                yield name

    async def _copy_groups(self, link: MasterLink) -> None:
        document = await pages(
            link,
            "subscriptionGroupTable",
            lambda first, version, most: group.GetAllGroupConfig(
                group_seq=first, data_version=version, max_group_num=most
            ),
            "totalGroupNum",
        )
        self._versions[group.GetAllGroupConfig.__name__] = document.get("dataVersion")
        for name in self._tables.consumers.groups.copy(document):
            log.info("group.deleted", group=name, address="master")
            if name not in OWN_GROUPS:
                self._tables.consumers.offsets.delete_group(name)
            self._core.stats.forget_group(name)
            for forget in self.when_group_gone:
                forget(name)

    async def _copy_progress(self, link: MasterLink) -> None:
        """Copy how far consumers are, and the master's own services.

        A service that is done with a message has put a copy of it, and a pop its check point. So
        progress counts once this log has all that the master had then: promoted before, this broker
        would lose them. A slave that is always behind takes it late.
        """
        if self._late is not None and self._has(self._late.end):
            late, self._late = self._late, None
            await self._take(late)
        renewals = self._renewals
        progress = await self._progress_at(link)
        reached = await self._reach(progress.end)
        if renewals != self._renewals:
            return
        if reached:
            self._late = None
            await self._take(progress)
        else:
            self._late = self._late or progress
            await self._took(self._tables.consumers.offsets.add(progress.offsets))

    async def _progress_at(self, link: MasterLink) -> Progress:
        offsets = await self._offsets_at(link)
        delays = await self._document(link, offset.GetAllDelayOffset())
        check = await self._timer_check(link)
        theirs = await log_of_followed(link, self._core.store)
        return Progress(offsets, delays, check, theirs.end)

    async def _take(self, progress: Progress) -> None:
        """Have the progress of the master; outside of a group that of this broker, where it is
        further: consumers commit here as well.
        """
        offsets, delays = self._tables.consumers.offsets, self._tables.delays
        timers, check = self._tables.timers, progress.timers
        in_group = self._core.store.waits_for_group
        if in_group:
            if not await self._took(offsets.replace(progress.offsets)):
                return
            delays.replace(progress.delays)
        else:
            if not await self._took(offsets.merge(progress.offsets, self._offsets)):
                return
            delays.merge(progress.delays)
        if timers is not None and check is not None:
            (timers.replace if in_group else timers.take)(check)
        self._offsets = progress.offsets
        self._progressed = True

    async def _took(self, taking: Iterator[None]) -> bool:
        """Take offsets; False where a topic was made anew meanwhile: the rest is for the next
        copy.
        """
        renewals = self._renewals

        def until_renewed() -> Iterator[None]:
            for _ in taking:
                yield
                if renewals != self._renewals:
                    return

        await in_slices(until_renewed())
        return renewals == self._renewals

    async def _offsets_at(self, link: MasterLink) -> dict[str, dict[int, int]]:
        body = bytes((await answered(link, offset.GetAllConsumerOffset())).body)
        theirs: dict[str, dict[int, int]] = {}

        def take() -> Iterator[None]:
            for key, queues in offsets_in_parts(body):
                theirs.setdefault(key, {}).update(queues)
                yield

        await in_slices(take())
        return theirs

    async def _reach(self, end: int) -> bool:
        """Whether the log of this slave is there soon."""
        with trio.move_on_after(REACH_S):
            while not self._has(end):  # noqa: ASYNC110  (nothing signals it)
                await trio.sleep(REACH_LOOK_S)
        return self._has(end)

    def _has(self, end: int) -> bool:
        return self._core.store.commit_log.max_offset >= end

    async def _timer_check(self, link: MasterLink) -> TimerCheck | None:
        """The check point of the master's timers; None of one that has no timers, as 4.9."""
        try:
            body = bytes((await answered(link, GetTimerCheckPoint())).body)
        except MasterRefused as refused:
            if refused.code not in WITHOUT_TIMERS:
                raise
            return None
        if len(body) < TIMER_CHECK.size:
            raise MasterRefused(f"a check point of timers has {len(body)} bytes")
        return TIMER_CHECK.read(body[: TIMER_CHECK.size])

    async def _document(self, link: MasterLink, header: Header) -> Mapping[str, Any]:
        return table_of((await answered(link, header)).body)
