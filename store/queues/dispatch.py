"""Dispatch (reput): follows the log and feeds consume queues, other followers and arrivals.

The appender hands over what it knows of each message, and so does the copy of a master's log: so
nothing is parsed twice. When these requests (`pending`) become too many they are dropped, and the
log itself is parsed until dispatch has caught up. Under SYNC_FLUSH only messages on disk are
dispatched. Never stops at an unreadable record.

Invariant: `pending` describes every record of the log from its first entry to the end, without a
gap.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

import structlog
import trio

from aerobee.store.errors import CONTENT_ERRORS
from aerobee.store.format.faults import BLANK, END
from aerobee.store.format.record import NOT_QUEUED
from aerobee.store.format.unit import UNIT, UNIT_SIZE, DelayLevels, can_have_unit, code_of
from aerobee.store.format.walk import fault_at, resumes_at
from aerobee.store.listeners import Listeners
from aerobee.store.queues.dispatch_request import DispatchRequest, in_runs
from aerobee.store.results import Location, UnitStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.clock import Clock
    from aerobee.store.format.faults import Stop
    from aerobee.store.format.record import RecordHeader
    from aerobee.store.log.commit_log import CommitLog
    from aerobee.store.queues.consume_queues import ConsumeQueues
    from aerobee.store.set_aside import SetAside
    from aerobee.store.stats import StoreStats

    Arrival: TypeAlias = Callable[[str, int, int, int, int, bytes], object]

Arrivals: TypeAlias = Listeners[[str, int, int, int, int, bytes]]
"""Called with topic, queue id, max offset, tags code, store timestamp in ms, properties; a true
value says that nobody waits for later messages of the queue.
"""

PENDING_MAX = 65_536
PARSE_BATCH = 2_000
"""Records parsed in one step, about 5 ms."""
PARSE_BYTES = 4 << 20
"""Bytes parsed in one step: the properties of long records take their time, too."""
HAND_OVER_BATCH = 4_096
"""Records that need no parsing, in one step: about 2 ms; the last may be a run of as many. A sync
may release many times as many."""
STEP_S = 0.005
"""After so long a step ends: what arrivals cost depends on those who wait."""
LOOK_MESSAGES = 64
"""Messages between two looks at the clock; at the begin of a step it is looked at sooner."""
RUN_PIECE = 8
"""Messages of a run that are handed over between two looks at least, while somebody waits."""
TICK_S = 0.05
CATCH_UP_S = 5.0
"""How long a stop waits for dispatch."""
LAGGING_BYTES = 64 << 20

_GAP = UnitStatus.GAP
_HIGH = 1 << 32
"""Queue offsets below are possible in every queue; others are checked."""

log = structlog.get_logger(__name__)


class Dispatcher:
    """Follows the log: consume queue units, then index entries, then arrivals.

    Source: store format §4 (ReputMessageService, CommitLogDispatcher).
    """

    __slots__ = (
        "_clock",
        "_ends",
        "_levels",
        "_log",
        "_queues",
        "_stats",
        "arrivals",
        "aside",
        "dispatched",
        "first_gap_timestamp",
        "followers",
        "last_position",
        "last_store_timestamp",
        "pending",
        "run_followers",
    )

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueues,
        levels: DelayLevels,
        stats: StoreStats,
        aside: SetAside,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._ends = 0.0
        """When the step should end."""
        self._log = commit_log
        self._queues = queues
        self._levels = levels
        self._stats = stats
        self.aside = aside
        self.pending: deque[DispatchRequest] = deque()
        self.dispatched = 0
        """Everything in the log before this byte was dispatched (reputFromOffset)."""
        self.last_store_timestamp = 0
        """Store time of the last dispatched record, in ms."""
        self.last_position = -1
        """Where the last dispatched record begins; −1 before the first."""
        self.first_gap_timestamp: int | None = None
        """Store time of the first record that found a gap in its queue."""
        self.followers: list[Callable[[DispatchRequest], None]] = []
        """Called after the consume queue and before the arrival; the index is one."""
        self.run_followers: list[Callable[[DispatchRequest], None]] = []
        """Followers of runs, called with a whole run."""
        self.arrivals: Arrivals = Listeners()
        """Called for each message that consumers can see from now on."""

    def behind(self, confirm: int) -> int:
        """Bytes up to `confirm` that were not dispatched."""
        return max(0, confirm - self.dispatched)

    def offer(self, request: DispatchRequest) -> None:
        """Take what the appender knows of what it has just appended. Hot."""
        pending = self.pending
        if len(pending) >= PENDING_MAX:
            self._fall_back()
        pending.append(request)

    def offer_all(self, requests: list[DispatchRequest]) -> None:
        """Take what the appender knows of records that it appended side by side. Hot."""
        if len(self.pending) + len(requests) > PENDING_MAX:
            self._fall_back()
        self.pending.extend(requests)

    def offer_headers(self, physical_offset: int, headers: list[RecordHeader]) -> None:
        """Take the headers of records that were copied from another log, side by side. Hot."""
        requests = []
        for header in headers:
            request = self._request_of(header, physical_offset)
            if request is None:
                # Such a record is noted when its turn comes, so it is parsed then.
                self._fall_back()
                return
            requests.append(request)
            physical_offset += header.size
        self.offer_all(in_runs(requests))

    def _fall_back(self) -> None:
        self.pending.clear()
        self._stats.dispatch_fallbacks += 1

    def advance(self, confirm: int) -> bool:
        """Dispatch a batch of records before `confirm`, or those that a step has time for. Hot.

        Returns whether some are left.
        """
        pending = self.pending
        self._ends = self._clock.monotonic() + STEP_S
        # On a slow disk their properties would take gigabytes.
        if pending and pending[-1].physical_offset - pending[0].physical_offset > LAGGING_BYTES:
            self._fall_back()
        if pending:
            head = pending[0].physical_offset
            if self.dispatched < head:
                self._parse_batch(min(head, confirm))
            if self.dispatched == head:
                self._hand_over(confirm)
        elif self.dispatched < confirm:
            self._parse_batch(confirm)
        return self.dispatched < confirm

    def _hand_over(self, confirm: int) -> None:
        pending = self.pending
        popleft = pending.popleft
        arrival = self.arrivals.tell
        followers = self.followers
        count = 0
        look = 1
        end = 0
        last = self.last_position
        while end <= confirm and pending and count < HAND_OVER_BATCH:
            if count >= look:
                if self._late():
                    break
                look = min(count + min(count, LOOK_MESSAGES), HAND_OVER_BATCH)
            try:
                while pending and count < look:
                    request = pending[0]
                    physical = request.physical_offset
                    size = request.size
                    end = physical + size
                    if end > confirm:
                        break
                    popleft()
                    queue = request.queue
                    queue_offset = request.queue_offset
                    self.dispatched = end
                    last = physical
                    self.last_store_timestamp = stored = request.store_timestamp
                    if request.run is not None:
                        count += self._hand_over_run(request, max(look - count, RUN_PIECE))
                        last = self.last_position
                        continue
                    count += 1
                    if not request.sys_flag & NOT_QUEUED:
                        status = queue.append(queue_offset, physical, size, request.tags_code)
                        if status is _GAP:
                            self._stop_queue(request)
                    for follower in followers:
                        follower(request)
                    if arrival is not None:
                        arrival(
                            queue.topic,
                            queue.queue_id,
                            queue_offset + 1,
                            request.tags_code,
                            stored,
                            request.properties,
                        )
            except CONTENT_ERRORS as error:
                # A waiter for this message is notified with the next one.
                location = Location(queue.topic, queue.queue_id, queue_offset, physical)
                self.aside.take("dispatch", location, error)
        self.last_position = last
        self._stats.dispatched += count

    def _late(self) -> bool:
        """Whether the step has taken its time; what it leaves is dispatched by the next one."""
        return self._clock.monotonic() > self._ends

    def _hand_over_run(self, request: DispatchRequest, most: int) -> int:
        """Dispatch messages of a run; returns how many. Hot.

        All of them, unless somebody waits for their queue: then up to `most`, and the others are
        the next request.
        """
        arrival = self.arrivals.tell
        if arrival is None:
            return self._take_run(request)
        assert request.run is not None
        pending = self.pending
        rest = None
        if len(request.run.units) > most * UNIT_SIZE:
            rest = request.rest(most)
            request = request.first(most)
            pending.appendleft(rest)
            self.dispatched = rest.physical_offset
        count = self._take_run(request)
        waited_for = self._tell_each(request, arrival)
        # A put of those who were told may have dropped what was pending.
        if rest is not None and not waited_for and pending and pending[0] is rest:
            pending.popleft()
            self.dispatched = rest.physical_offset + rest.size
            count += self._take_run(rest)
        return count

    def _take_run(self, request: DispatchRequest) -> int:
        """Dispatch the messages of a run, and tell nobody who waits; returns how many. Hot."""
        assert request.run is not None
        units, physical = request.run.units, request.physical_offset
        end = physical + request.size
        if not request.queue.extend(request.queue_offset, physical, end, units):
            for single in request.each():
                unit = single.queue_offset, single.physical_offset, single.size, single.tags_code
                if single.queue.append(*unit) is _GAP:
                    self._stop_queue(single)
        for follower in self.run_followers:
            follower(request)
        self.last_position = UNIT.read(units, len(units) - UNIT_SIZE).physical_offset
        return len(units) // UNIT_SIZE

    def _tell_each(self, run: DispatchRequest, arrival: Arrival) -> bool:
        """Tell those who wait of the messages of a run, until nobody waits for this queue.

        Returns whether somebody still does.
        """
        queue = run.queue
        for message in run.each():
            queue_offset = message.queue_offset
            details = (
                queue_offset + 1,
                message.tags_code,
                message.store_timestamp,
                message.properties,
            )
            try:
                if arrival(queue.topic, queue.queue_id, *details):
                    return False
            except CONTENT_ERRORS as error:
                at = message.physical_offset
                location = Location(queue.topic, queue.queue_id, queue_offset, at)
                self.aside.take("dispatch", location, error)
        return True

    def _stop_queue(self, request: DispatchRequest) -> None:
        """A unit before this one is missing: add no more units until the queue is rebuilt."""
        queue = request.queue
        if queue.stopped:
            return
        queue.stopped = True
        self._stats.queues_stopped += 1
        if self.first_gap_timestamp is None:
            self.first_gap_timestamp = request.store_timestamp
        log.error(
            "dispatch.queue_stopped",
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=request.queue_offset,
            end_offset=queue.end_offset,
            physical_offset=request.physical_offset,
        )

    # ── From the log ──

    def _parse_batch(self, until: int) -> None:
        """Parse and dispatch records before `until`, at most a batch of them."""
        left, ends = PARSE_BATCH, self.dispatched + PARSE_BYTES
        while left and self.dispatched < until:
            walk = self._log.walk(self.dispatched, until)
            for physical_offset, header in walk:
                self.dispatched = physical_offset
                if physical_offset + header.size > until:
                    return
                self._dispatch_parsed(header)
                left -= 1
                if not left or self.dispatched > ends or self._late():
                    return
            if not self._pass_over(walk.stop, until):
                return
            left -= 1

    def _pass_over(self, stop: Stop, until: int) -> bool:
        """Continue behind the blank, or behind unreadable bytes, which are reported.

        False when no segment follows.
        """
        at = self.dispatched = stop.physical_offset
        file = self._log.queue.find(at)
        if file is None or at >= file.max_offset:
            return self._next_file()
        if stop.kind == END:
            return True
        self.dispatched = resumes_at(stop, file.max_offset, file.end)
        if stop.kind != BLANK:
            # A record is known to begin at `until`.
            self.dispatched = min(self.dispatched, until)
            log.error(
                "commit_log.corrupt_record",
                physical_offset=at,
                reason=fault_at(file.readable()[: file.wrote], at - file.start, at).detail,
                continued_at=self.dispatched,
            )
        return True

    def _next_file(self) -> bool:
        """Continue at the begin of the next segment; False when there is none."""
        later = [file.start for file in self._log.queue.files if file.start > self.dispatched]
        if later:
            self.dispatched = later[0]
        return bool(later)

    def _dispatch_parsed(self, header: RecordHeader) -> None:
        """Dispatch the record at `dispatched`."""
        request = self._request_of(header, self.dispatched)
        if request is None:
            location = Location(header.topic, header.queue_id, header.queue_offset, self.dispatched)
            self.aside.note("dispatch", location, "no queue can be of that name or number")
            self.dispatched += header.size
            return
        self.pending.appendleft(request)
        self._stats.dispatch_parsed += 1
        self._hand_over(self.dispatched + header.size)

    def _request_of(self, header: RecordHeader, physical_offset: int) -> DispatchRequest | None:
        """The request for a record that is in the log; None when no queue can have it. Hot.

        Its queue counts it: nobody has counted a record that came from a master.
        """
        topic, queue_id, queue_offset = header.topic, header.queue_id, header.queue_offset
        queue = self._queues.find(topic, queue_id)
        # Topic and queue id of an existing queue were checked when it was created.
        if queue is None or not 0 <= queue_offset < _HIGH:
            if not can_have_unit(topic, queue_id, queue_offset):
                return None
            queue = queue or self._queues.obtain(topic, queue_id)
        if not header.sys_flag & NOT_QUEUED and queue.next_offset <= queue_offset:
            queue.next_offset = queue_offset + 1
        stored, properties = header.store_timestamp, header.properties
        return DispatchRequest(
            queue,
            physical_offset,
            header.size,
            code_of(topic, properties, stored, self._levels),
            queue_offset,
            stored,
            header.sys_flag,
            properties,
        )


class DispatchService:
    """Runs dispatch where no round of the reactor does. Source: store format §4."""

    __slots__ = ("_advance", "_behind", "_moved", "_wanted")

    def __init__(
        self, advance: Callable[[], None], behind: Callable[[], int], moved: Callable[[], None]
    ) -> None:
        self._advance = advance
        self._behind = behind
        self._moved = moved
        self._wanted = trio.Event()

    def go_on(self) -> None:
        """Continue: others have left a rest that may be dispatched."""
        self._wanted.set()

    async def catch_up(self, clock: Clock) -> None:
        """Dispatch the rest, for a stop, unless that takes too long."""
        deadline = clock.monotonic() + CATCH_UP_S
        while (before := self._behind()) and clock.monotonic() < deadline:
            self._advance()
            if self._behind() == before:
                break
            await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        """Dispatch what is left, until cancelled."""
        lagging = False
        while True:
            behind = self._behind()
            if behind:
                self._advance()
                self._moved()
            self._wanted = trio.Event()
            if lagging != (behind > LAGGING_BYTES):
                lagging = not lagging
                log.warning(
                    "dispatch.lagging" if lagging else "dispatch.caught_up", behind_bytes=behind
                )
            if behind and self._behind() < behind:
                await trio.lowlevel.checkpoint()
            else:
                with trio.move_on_after(TICK_S):
                    await self._wanted.wait()
