"""One range of one queue, pulled over one connection: offsets in, the stored records out, in order.

    Range → lanes of 1024 offsets → pulls in flight → answers in any order → chunks in offset order

A lane asks again from where its last answer ended until it is full, so a broker that answers 32
messages at a time is as good as one that answers megabytes; `window` lanes are under way at once,
and that bounds the memory. With an expression the broker leaves offsets out: then there is one
lane, which goes on where the broker says.

Law: every offset of the range comes out once, in a chunk or in a gap, and gaps are what
`fail_on_data_loss` decides about; an expression makes no gaps by what it leaves out. Connections
that fail are replaced and the open pulls asked again; time without progress is bounded.
Source: remoting §3.6.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from struct import Struct
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aerobee.errors import AerobeeError, DataLossError, RequestTimeoutError, TransportError
from aerobee.spark.arrowdecode import starts_of
from aerobee.steps.answers import error_of, header_of
from aerobee.steps.effects import Ask
from remoting.errors import RemotingError
from remoting.wire.codes import ResponseCode
from remoting.wire.headers.pull import PullMessage, PullMessageResponse

if TYPE_CHECKING:
    from aerobee.spark.plan import Range
    from remoting.client.blocking_channel import BlockingChannel
    from remoting.wire.command import Command

__all__ = ["Chunk", "Connect", "Pulling", "pulled"]

log = logging.getLogger("aerobee.spark")

Connect: TypeAlias = Callable[[str], "BlockingChannel"]
"""An open connection to an address, kept or new. Raises: AerobeeError, RemotingError."""

LANE_OFFSETS: Final = 1024
BULK_BYTES: Final = 4_194_304
"""Asked of a broker that answers as much as that; others ignore it."""
TRIES: Final = 5
"""So many pull time-outs without progress end the read."""
PAUSE_S: Final = 0.1
"""Before a pull that could not be answered is asked again."""
RECONNECT_PAUSE_S: Final = 0.5
NOT_ASKED: Final = 0
NONE_THERE: Final = "the broker goes on behind them"
SUBSCRIPTION_INLINE: Final = 4
WITHOUT_MESSAGES: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
EVERYTHING: Final = "*"
QUEUE_OFFSET_AT: Final = 20
QUEUE_OFFSET: Final = Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulling:
    """How to pull. An expression other than `*` makes the broker filter, tags by hash only."""

    group: str
    expression: str = EVERYTHING
    expression_type: str = "TAG"
    batch_size: int = LANE_OFFSETS
    """The most messages asked for at once."""
    window: int = 8
    timeout_ms: int = 3000
    bulk_bytes: int | None = BULK_BYTES
    fail_on_data_loss: bool = True

    @property
    def dense(self) -> bool:
        """Whether every offset is expected to come."""
        return self.expression == EVERYTHING and self.expression_type == "TAG"


class Chunk(NamedTuple):
    """Whole records with rising offsets, from `first_offset` on; `starts` are their places."""

    first_offset: int
    buffer: bytes | memoryview
    starts: list[int]


class Gap(NamedTuple):
    """Offsets from `first_offset` to before `end` that cannot be read."""

    first_offset: int
    end: int
    why: str


@dataclass(slots=True)
class Lane:
    """Offsets `next` to before `end` are still to be asked for; `ticket` tells late answers."""

    next: int
    end: int
    ticket: int = NOT_ASKED
    parts: deque[Chunk | Gap] = field(default_factory=deque)

    @property
    def full(self) -> bool:
        return self.next >= self.end


class Outcome(NamedTuple):
    """What became of a pull, as the connection's reader told it."""

    lane: Lane
    ticket: int
    asked: Ask
    answer: Command | None
    error: RemotingError | None


def pulled(what: Range, how: Pulling, connect: Connect) -> Iterator[Chunk]:
    """The records of the range in the order of their offsets. Does nothing before the first.

    A consumer that stops early leaves pulls behind whose answers are dropped when they come.
    Raises: DataLossError; RequestTimeoutError after five time-outs without progress; BrokerError
    when the broker refuses; TransportError when its answers make no sense.
    """
    # Nothing is cleaned up when it is dropped: that may happen in any thread, with any lock held.
    yield from _Puller(what, how, connect).chunks()


class _Puller:
    """The state of one `pulled`: lanes in order of offsets, the connection, what is missing."""

    def __init__(self, what: Range, how: Pulling, connect: Connect) -> None:
        self._what = what
        self._how = how
        self._connect = connect
        self._lanes: deque[Lane] = deque()
        self._begin = what.start
        """Where the next lane begins."""
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self._tickets = 0
        self._addresses = deque(what.addresses)
        """The one in use comes first."""
        self._channel: BlockingChannel | None = None
        self._stuck_s = 0.0
        """How long nothing was learned, in all waits since the last progress."""
        self._trouble: Exception | str = ""
        """The last one since the last progress."""
        self._behind = 0
        """Addresses in a row that end before the range does."""
        self._missing: Gap | None = None

    # -- out -------------------------------------------------------------------------------------

    def chunks(self) -> Iterator[Chunk]:
        """All chunks; gaps are told on the way."""
        self._open_lanes()
        while self._lanes:
            head = self._lanes[0]
            while head.parts:
                part = head.parts.popleft()
                if isinstance(part, Gap):
                    self._miss(part)
                else:
                    yield part
            if head.full:
                self._lanes.popleft()
                self._open_lanes()
            else:
                self._learn()
        self._tell_missing()

    def _miss(self, gap: Gap) -> None:
        """Raises: DataLossError, unless losses are to be skipped."""
        if self._how.fail_on_data_loss:
            raise DataLossError(
                f"{self._describe(gap)}. Start at what is there, or let failOnDataLoss=false "
                "skip what is not"
            )
        last = self._missing
        if last is not None and last.end == gap.first_offset and last.why == gap.why:
            self._missing = Gap(last.first_offset, gap.end, gap.why)
            return
        self._tell_missing()
        self._missing = gap

    def _tell_missing(self) -> None:
        if self._missing is not None:
            log.warning("%s; skipped", self._describe(self._missing))
        self._missing = None

    def _describe(self, gap: Gap) -> str:
        return f"{self._place()}: offsets {gap.first_offset} to {gap.end - 1} are gone: {gap.why}"

    def _place(self) -> str:
        what = self._what
        return f"topic {what.topic}, queue {what.queue_id} of broker {what.broker}"

    # -- asking ----------------------------------------------------------------------------------

    def _open_lanes(self) -> None:
        length = LANE_OFFSETS if self._how.dense else self._what.end - self._what.start
        while self._begin < self._what.end and len(self._lanes) < self._how.window:
            lane = Lane(self._begin, min(self._begin + length, self._what.end))
            self._begin = lane.end
            self._lanes.append(lane)
            if self._channel is not None:
                self._ask(self._channel, lane)

    def _ask(self, channel: BlockingChannel, lane: Lane) -> None:
        """Pull the rest of a lane; a failure comes as its outcome."""
        self._tickets += 1
        ticket = lane.ticket = self._tickets
        asked = Ask(
            address=self._addresses[0], header=self._header(lane), timeout_s=self._timeout_s
        )

        def done(answer: Command | None, error: RemotingError | None) -> None:
            self._outcomes.put(Outcome(lane, ticket, asked, answer, error))

        channel.begin(asked.header, b"", done, self._timeout_s)

    def _dial(self) -> None:
        """Connect and ask all that is open; if that fails, the next address is next."""
        try:
            channel = self._connect(self._addresses[0])
        except (RemotingError, TransportError) as error:
            self._trouble = error
            self._addresses.rotate(-1)
            sleep(RECONNECT_PAUSE_S)
            return
        self._channel = channel
        for lane in self._lanes:
            if not lane.full:
                self._ask(channel, lane)

    def _hang_up(self, trouble: str, *, stay: bool = False) -> None:
        """This connection is of no use: give up what it was asked, and turn to the next address.

        Or `stay` at this one: a connection that was kept may have been closed meanwhile.
        """
        self._trouble = trouble
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if not stay:
            self._addresses.rotate(-1)
        for lane in self._lanes:
            lane.ticket = NOT_ASKED

    @property
    def _timeout_s(self) -> float:
        return self._how.timeout_ms / 1000

    def _header(self, lane: Lane) -> PullMessage:
        how = self._how
        count = min(how.batch_size, lane.end - lane.next)
        return PullMessage(
            consumer_group=how.group,
            topic=self._what.topic,
            queue_id=self._what.queue_id,
            queue_offset=lane.next,
            max_msg_nums=count,
            sys_flag=SUBSCRIPTION_INLINE,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=how.expression,
            sub_version=0,
            expression_type=how.expression_type,
            bulk_bytes=how.bulk_bytes,
        )

    # -- learning --------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Wait for one answer and take what else has come. Raises: as `pulled`."""
        began = monotonic()
        known = sum(lane.next for lane in self._lanes)
        left_s = self._timeout_s * TRIES - self._stuck_s
        if left_s <= 0:
            raise RequestTimeoutError(self._stuck())
        if self._channel is None:
            self._dial()
        else:
            self._listen(min(self._timeout_s, left_s))
        if sum(lane.next for lane in self._lanes) > known:
            self._stuck_s, self._trouble = 0.0, ""
        else:
            self._stuck_s += monotonic() - began

    def _listen(self, timeout_s: float) -> None:
        try:
            self._take(self._outcomes.get(timeout=timeout_s))
        except Empty:
            self._hang_up(f"{self._addresses[0]} did not answer in {timeout_s:g} s")
        while not self._outcomes.empty():
            self._take(self._outcomes.get())

    def _stuck(self) -> str:
        lane = self._lanes[0]
        return (
            f"{self._place()}: no progress at offset {lane.next} (of {self._what.start} to "
            f"{self._what.end - 1}) within {self._timeout_s * TRIES:g} s, {TRIES} times "
            f"pullTimeoutMs, from {', '.join(self._what.addresses)}; the last trouble: "
            f"{self._trouble or 'no answer'}"
        )

    def _take(self, outcome: Outcome) -> None:
        lane, answer = outcome.lane, outcome.answer
        if outcome.ticket != lane.ticket:
            return
        if answer is None:
            self._hang_up(str(outcome.error), stay=not self._trouble)
            return
        if answer.code == ResponseCode.SUCCESS:
            self._keep(lane, outcome.asked, answer)
        elif answer.code in WITHOUT_MESSAGES:
            self._go_on(lane, outcome.asked, answer)
        else:
            self._refused(outcome.asked, answer)
        if self._channel is not None and not lane.full:
            self._ask(self._channel, lane)

    def _refused(self, asked: Ask, answer: Command) -> None:
        error: AerobeeError = error_of(asked, answer, self._what.broker)
        if not error.retryable:
            raise error
        self._trouble = error
        sleep(PAUSE_S)

    # -- answers ---------------------------------------------------------------------------------

    def _keep(self, lane: Lane, asked: Ask, answer: Command) -> None:
        """Messages. Raises: TransportError, and what the decoder has against the records."""
        body = answer.body
        starts = starts_of(body)
        if not starts:
            raise TransportError(
                f"{self._place()}: {asked.address} answered FOUND without messages"
            )
        read = QUEUE_OFFSET.unpack_from
        first: int = read(body, starts[0] + QUEUE_OFFSET_AT)[0]
        last: int = read(body, starts[-1] + QUEUE_OFFSET_AT)[0]
        self._behind = 0
        if first == lane.next and last - first == len(starts) - 1 and last < lane.end:
            lane.parts.append(Chunk(first, body, starts))
        else:
            self._keep_some(lane, body, starts)
        next_offset = last + 1
        if not self._how.dense:
            next_offset = header_of(asked, answer, PullMessageResponse).next_begin_offset
        lane.next = max(lane.next, last + 1, next_offset)

    def _keep_some(self, lane: Lane, body: bytes | memoryview, starts: list[int]) -> None:
        """What lies inside the lane, with the gaps between if every offset was expected."""
        offsets = [QUEUE_OFFSET.unpack_from(body, at + QUEUE_OFFSET_AT)[0] for at in starts]
        bounds = [*starts, len(body)]
        begin, end = bisect_left(offsets, lane.next), bisect_left(offsets, lane.end)
        if self._how.dense:
            expected = lane.next
            for index in range(begin, end):
                if offsets[index] > expected:
                    _cut(lane, body, bounds, begin, index)
                    lane.parts.append(Gap(expected, offsets[index], NONE_THERE))
                    begin = index
                expected = offsets[index] + 1
        _cut(lane, body, bounds, begin, end)
        if self._how.dense and end < len(offsets) and expected < lane.end:
            lane.parts.append(Gap(expected, lane.end, NONE_THERE))

    def _go_on(self, lane: Lane, asked: Ask, answer: Command) -> None:
        """No messages at this offset: what comes next, and is there a gap before it?"""
        header = header_of(asked, answer, PullMessageResponse)
        at, least, most = header.next_begin_offset, header.min_offset, header.max_offset
        if answer.code == ResponseCode.PULL_OFFSET_MOVED and least > lane.next:
            self._gap(lane, least, f"the queue begins at {least} now (expired)")
        elif lane.next >= most:
            self._end_early(lane, most)
        elif answer.code != ResponseCode.PULL_OFFSET_MOVED and at > lane.next:
            if self._how.dense:
                self._gap(lane, at, NONE_THERE)
            lane.next = at
        else:
            # A reset of the group, or files that are just being removed: ask again.
            self._trouble = f"{asked.address} answered {answer.code}: {answer.remark}"
            sleep(PAUSE_S)

    def _gap(self, lane: Lane, end: int, why: str) -> None:
        lane.parts.append(Gap(lane.next, min(end, lane.end), why))
        lane.next = end

    def _end_early(self, lane: Lane, most: int) -> None:
        """The queue ends before the range: here, and with replicas perhaps only here."""
        self._behind += 1
        if self._behind < len(self._addresses):
            self._hang_up(f"{self._addresses[0]} has offsets before {most} only")
            return
        self._gap(lane, lane.end, f"the queue ends at {most} (lost, or the topic is a new one)")


def _cut(lane: Lane, body: bytes | memoryview, bounds: list[int], begin: int, end: int) -> None:
    """Keep the records `begin` to before `end` as a chunk of their own."""
    if begin < end:
        base = bounds[begin]
        buffer = memoryview(body)[base : bounds[end]]
        first: int = QUEUE_OFFSET.unpack_from(buffer, QUEUE_OFFSET_AT)[0]
        lane.parts.append(Chunk(first, buffer, [at - base for at in bounds[begin:end]]))
