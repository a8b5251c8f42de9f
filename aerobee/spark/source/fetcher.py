"""Fetches one range of a queue over one connection: offsets in, the stored records out, in order.

        Range → fetches of 1024 offsets → pulls in flight → responses in any order → chunks in order

A fetch pulls again from the end of its last response until it is full, so a broker that returns 32
messages at a time works as well as one that returns megabytes. `window` fetches run at once; those
after the first one pull again only while little is buffered. With an expression the broker leaves
offsets out: then there is one fetch, which continues where the broker says.

Invariant: every offset of the range comes out once, in a chunk or in a gap, and `fail_on_data_loss`
decides about gaps; offsets that an expression filters out are no gaps. An offset that one address
does not have is a gap only if the other addresses do not have it either. Failed connections are
replaced and their open pulls repeated; time without progress is bounded. Source: remoting §3.6.
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

from aerobee.client.steps.answers import error_of, header_of
from aerobee.client.steps.effects import Ask
from aerobee.errors import (
    BrokerError,
    DataLossError,
    RecordDamagedError,
    RequestTimeoutError,
    TransportError,
)
from aerobee.remoting.errors import RemotingError
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.pull import PullMessage, PullMessageResponse
from aerobee.spark.rows.decode import starts_of

if TYPE_CHECKING:
    from aerobee.remoting.client.blocking_channel import BlockingChannel
    from aerobee.remoting.wire.command import Command
    from aerobee.spark.source.plan import Range

log = logging.getLogger("aerobee.spark")

Connect: TypeAlias = Callable[[str], "BlockingChannel"]
"""Returns an open connection to an address, cached or new. Raises: AerobeeError, RemotingError."""

FETCH_OFFSETS: Final = 1024
BULK_BYTES: Final = 4_194_304
"""The response size that brokers with bulk pulls are asked for; other brokers ignore it."""
READ_AHEAD_BYTES: Final = 16 << 20
EVERYTHING: Final = "*"
TRIES: Final = 5
"""The read fails after so many pull timeouts without progress."""
PAUSE_S: Final = 0.1
"""The pause before an unanswered pull is repeated."""
RECONNECT_PAUSE_S: Final = 0.5
NOT_ASKED: Final = 0
NONE_THERE: Final = "the broker goes on behind them"
SUBSCRIPTION_INLINE: Final = 4
WITHOUT_MESSAGES: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
GONE: Final = frozenset({"MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL"})
"""Remarks of responses whose next offset skips messages that can no longer be read."""
QUEUE_OFFSET_AT: Final = 20
QUEUE_OFFSET: Final = Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """The settings of pulls. Unless the expression is `*` the broker filters, tags by hash only."""

    group: str
    expression: str = EVERYTHING
    expression_type: str = "TAG"
    batch_size: int = FETCH_OFFSETS
    """The most messages per pull."""
    window: int = 8
    timeout_ms: int = 3000
    bulk_bytes: int | None = BULK_BYTES
    """The largest response of a broker with bulk pulls; None for the broker's default."""
    read_ahead_bytes: int = READ_AHEAD_BYTES
    """Above so many bytes buffered and in flight only the first fetch pulls again."""
    fail_on_data_loss: bool = True

    @property
    def answer_bytes(self) -> int | None:
        """The response size to ask for: the whole window stays within the read-ahead."""
        if self.bulk_bytes is None:
            return None
        fetches = self.window if self.dense else 1
        return max(1, min(self.bulk_bytes, self.read_ahead_bytes // fetches))

    @property
    def dense(self) -> bool:
        """Whether every offset is expected in the responses."""
        return self.expression == EVERYTHING and self.expression_type == "TAG"


class Chunk(NamedTuple):
    """Whole records with ascending offsets from `first_offset`; `starts` are their positions."""

    first_offset: int
    buffer: bytes | memoryview
    starts: list[int]


class Gap(NamedTuple):
    """Offsets from `first_offset` to before `end` that cannot be read."""

    first_offset: int
    end: int
    why: str


@dataclass(slots=True)
class Fetch:
    """Pulls offsets `next` to before `end`; a response with another `ticket` is stale."""

    next: int
    end: int
    ticket: int = NOT_ASKED
    parts: deque[Chunk | Gap] = field(default_factory=deque)

    @property
    def full(self) -> bool:
        return self.next >= self.end


class Outcome(NamedTuple):
    """The result of a pull, as reported by the connection's reader."""

    fetch: Fetch
    ticket: int
    asked: Ask
    answer: Command | None
    error: RemotingError | None


def pulled(what: Range, how: PullSettings, connect: Connect) -> Iterator[Chunk]:
    """Pull the records of the range in the order of their offsets. Starts with the first iteration.

    After an early stop the responses of pulls in flight are dropped on arrival.
    Raises: DataLossError; RequestTimeoutError after five time-outs without progress; BrokerError
    when the broker refuses; TransportError for invalid responses.
    """
    # No cleanup in the generator: it may be closed in any thread, with any lock held.
    yield from _Puller(what, how, connect).chunks()


class _Puller:
    """The state of one `pulled`: fetches in the order of offsets, the connection, and the gaps."""

    def __init__(self, what: Range, how: PullSettings, connect: Connect) -> None:
        self._what = what
        self._how = how
        self._connect = connect
        self._fetches: deque[Fetch] = deque()
        self._begin = what.start
        """The first offset of the next fetch."""
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self._tickets = 0
        self._addresses = deque(what.addresses)
        """The first address is the one in use."""
        self._channel: BlockingChannel | None = None
        self._stuck_s = 0.0
        """The time of all waits since the last progress."""
        self._trouble: Exception | str = ""
        """The last error since the last progress."""
        self._has: dict[str, tuple[int, int]] = {}
        """The offsets that an address has, for each one that lacked the offsets of a pull."""
        self._refusing: set[str] = set()
        self._held_bytes = 0
        self._largest = 0
        """The size of the largest response in bytes."""
        self._missing: Gap | None = None

    # ── Output ──

    def chunks(self) -> Iterator[Chunk]:
        """Yield all chunks; gaps are logged."""
        self._open_fetches()
        while self._fetches:
            head = self._fetches[0]
            while head.parts:
                part = head.parts.popleft()
                if isinstance(part, Gap):
                    self._miss(part)
                else:
                    self._held_bytes -= len(part.buffer)
                    yield part
            if head.full:
                self._fetches.popleft()
                self._open_fetches()
                self._ask_all()
            else:
                self._learn()
        self._log_missing()

    def _miss(self, gap: Gap) -> None:
        """Note a gap that is to be skipped. Raises: DataLossError with `fail_on_data_loss`."""
        if self._how.fail_on_data_loss:
            raise DataLossError(
                f"{self._describe(gap)}. Start at what is there, or let failOnDataLoss=false "
                "skip what is not"
            )
        last = self._missing
        if last is not None and last.end == gap.first_offset and last.why == gap.why:
            self._missing = Gap(last.first_offset, gap.end, gap.why)
            return
        self._log_missing()
        self._missing = gap

    def _log_missing(self) -> None:
        if self._missing is not None:
            log.warning("%s; skipped", self._describe(self._missing))
        self._missing = None

    def _describe(self, gap: Gap) -> str:
        return f"{self._place()}: offsets {gap.first_offset} to {gap.end - 1} are gone: {gap.why}"

    def _place(self) -> str:
        what = self._what
        return f"topic {what.topic}, queue {what.queue_id} of broker {what.broker}"

    # ── Pulls ──

    def _open_fetches(self) -> None:
        length = FETCH_OFFSETS if self._how.dense else self._what.end - self._what.start
        while self._begin < self._what.end and len(self._fetches) < self._how.window:
            fetch = Fetch(self._begin, min(self._begin + length, self._what.end))
            self._begin = fetch.end
            self._fetches.append(fetch)

    def _ask_all(self) -> None:
        """Pull for every fetch without a pull in flight, as far as there is room."""
        under_way = sum(fetch.ticket != NOT_ASKED for fetch in self._fetches)
        for fetch in self._fetches:
            ahead = self._held_bytes + (under_way + 1) * self._largest
            room = fetch is self._fetches[0] or ahead <= self._how.read_ahead_bytes
            if self._channel is not None and fetch.ticket == NOT_ASKED and not fetch.full and room:
                self._ask(self._channel, fetch)
                under_way += 1

    def _ask(self, channel: BlockingChannel, fetch: Fetch) -> None:
        """Pull the rest of a fetch; a failure arrives as its outcome."""
        self._tickets += 1
        ticket = fetch.ticket = self._tickets
        ask = Ask(address=self._addresses[0], header=self._header(fetch), timeout_s=self._timeout_s)

        def done(answer: Command | None, error: RemotingError | None) -> None:
            self._outcomes.put(Outcome(fetch, ticket, ask, answer, error))

        channel.begin(ask.header, b"", done, self._timeout_s)

    def _dial(self) -> None:
        """Connect and send all open pulls; if that fails, switch to the next address."""
        try:
            channel = self._connect(self._addresses[0])
        except (RemotingError, TransportError) as error:
            self._trouble = error
            self._addresses.rotate(-1)
            sleep(RECONNECT_PAUSE_S)
            return
        self._channel = channel

    def _hang_up(self, trouble: str, *, stay: bool = False) -> None:
        """Drop this connection and its pulls, and switch to the next address.

        With `stay` keep the address: a cached connection may have been closed in the meantime.
        """
        self._trouble = trouble
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if not stay:
            self._addresses.rotate(-1)
        for fetch in self._fetches:
            fetch.ticket = NOT_ASKED

    @property
    def _timeout_s(self) -> float:
        return self._how.timeout_ms / 1000

    def _header(self, fetch: Fetch) -> PullMessage:
        how = self._how
        count = min(how.batch_size, fetch.end - fetch.next)
        return PullMessage(
            consumer_group=how.group,
            topic=self._what.topic,
            queue_id=self._what.queue_id,
            queue_offset=fetch.next,
            max_msg_nums=count,
            sys_flag=SUBSCRIPTION_INLINE,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=how.expression,
            sub_version=0,
            expression_type=how.expression_type,
            bulk_bytes=how.answer_bytes,
        )

    # ── Progress ──

    def _learn(self) -> None:
        """Wait for one response and process all that have arrived. Raises: as `pulled`."""
        began = monotonic()
        known = sum(fetch.next for fetch in self._fetches)
        left_s = self._timeout_s * TRIES - self._stuck_s
        if left_s <= 0:
            raise RequestTimeoutError(self._stuck())
        if self._channel is None:
            self._dial()
        else:
            self._ask_all()
            self._listen(min(self._timeout_s, left_s))
        if sum(fetch.next for fetch in self._fetches) > known:
            self._stuck_s, self._trouble = 0.0, ""
        else:
            self._stuck_s += monotonic() - began

    def _listen(self, timeout_s: float) -> None:
        try:
            self._take(self._outcomes.get(timeout=timeout_s))
        except Empty:
            self._hang_up(f"{self._addresses[0]} did not answer in {timeout_s:g} s")
        # Only those that have arrived: the responses of the next pulls must be processed first.
        for _ in range(self._outcomes.qsize()):
            self._take(self._outcomes.get())

    def _stuck(self) -> str:
        fetch = self._fetches[0]
        return (
            f"{self._place()}: no progress at offset {fetch.next} (of {self._what.start} to "
            f"{self._what.end - 1}) within {self._timeout_s * TRIES:g} s, {TRIES} times "
            f"pullTimeoutMs, from {', '.join(self._what.addresses)}; the last trouble: "
            f"{self._trouble or 'no answer'}"
        )

    def _take(self, outcome: Outcome) -> None:
        fetch, answer = outcome.fetch, outcome.answer
        if outcome.ticket != fetch.ticket:
            return
        fetch.ticket = NOT_ASKED
        if answer is None:
            again = bool(self._trouble)
            self._hang_up(str(outcome.error), stay=not again)
            if again:
                sleep(PAUSE_S)
            return
        if answer.code == ResponseCode.SUCCESS:
            self._keep(fetch, outcome.asked, answer)
        elif answer.code in WITHOUT_MESSAGES:
            self._go_on(fetch, outcome.asked, answer)
        else:
            self._refused(fetch, outcome.asked, answer)
        self._ask_all()

    def _refused(self, fetch: Fetch, ask: Ask, answer: Command) -> None:
        """Retry after a temporary refusal, or at another address. Raises: BrokerError."""
        error: BrokerError = error_of(ask, answer, self._what.broker)
        if error.retryable:
            self._elsewhere(str(error))
            return
        self._refusing.add(self._addresses[0])
        if self._refusing | self._has.keys() >= set(self._addresses):
            error.args = (f"{self._place()}, offset {fetch.next}: {error}",)
            raise error
        self._hang_up(str(error))

    def _elsewhere(self, trouble: str) -> None:
        """Switch to the next address, or retry here a little later."""
        if len(self._addresses) > 1:
            self._hang_up(trouble)
        self._trouble = trouble
        sleep(PAUSE_S)

    # ── Responses ──

    def _keep(self, fetch: Fetch, ask: Ask, answer: Command) -> None:
        """Process a response with messages. Raises: TransportError, the errors of the decoder."""
        body = answer.body
        self._largest = max(self._largest, len(body))
        try:
            starts = starts_of(body)
        except RecordDamagedError as error:
            what = f"{ask.address}, asked for offset {fetch.next}, sent {error}"
            raise RecordDamagedError(f"{self._place()}: {what}") from error
        if not starts:
            raise TransportError(f"{self._place()}: {ask.address} answered FOUND without messages")
        read = QUEUE_OFFSET.unpack_from
        first: int = read(body, starts[0] + QUEUE_OFFSET_AT)[0]
        last: int = read(body, starts[-1] + QUEUE_OFFSET_AT)[0]
        self._has.clear()
        self._refusing.clear()
        if first == fetch.next and last - first == len(starts) - 1 and last < fetch.end:
            self._hold(fetch, Chunk(first, body, starts))
        else:
            self._keep_some(fetch, body, starts)
        next_offset = last + 1
        if not self._how.dense:
            next_offset = header_of(ask, answer, PullMessageResponse).next_begin_offset
        fetch.next = max(fetch.next, last + 1, next_offset)

    def _keep_some(self, fetch: Fetch, body: bytes | memoryview, starts: list[int]) -> None:
        """Keep the records inside the fetch, and note the gaps between them if it is dense."""
        offsets = [QUEUE_OFFSET.unpack_from(body, at + QUEUE_OFFSET_AT)[0] for at in starts]
        bounds = [*starts, len(body)]
        begin, end = bisect_left(offsets, fetch.next), bisect_left(offsets, fetch.end)
        if self._how.dense:
            expected = fetch.next
            for index in range(begin, end):
                if offsets[index] > expected:
                    self._keep_run(fetch, body, bounds[begin : index + 1])
                    fetch.parts.append(Gap(expected, offsets[index], NONE_THERE))
                    begin = index
                expected = offsets[index] + 1
        self._keep_run(fetch, body, bounds[begin : end + 1])
        if self._how.dense and end < len(offsets) and expected < fetch.end:
            fetch.parts.append(Gap(expected, fetch.end, NONE_THERE))

    def _keep_run(self, fetch: Fetch, body: bytes | memoryview, bounds: list[int]) -> None:
        """Keep the records between these positions, the last of which is the end, as a chunk."""
        if len(bounds) > 1:
            base = bounds[0]
            buffer = memoryview(body)[base : bounds[-1]]
            first: int = QUEUE_OFFSET.unpack_from(buffer, QUEUE_OFFSET_AT)[0]
            self._hold(fetch, Chunk(first, buffer, [at - base for at in bounds[:-1]]))

    def _hold(self, fetch: Fetch, chunk: Chunk) -> None:
        fetch.parts.append(chunk)
        self._held_bytes += len(chunk.buffer)

    def _go_on(self, fetch: Fetch, ask: Ask, answer: Command) -> None:
        """Process a response without messages: the next offset, and whether a gap precedes it."""
        header = header_of(ask, answer, PullMessageResponse)
        at, least, most = header.next_begin_offset, header.min_offset, header.max_offset
        if not least <= fetch.next < most:
            self._absent(fetch, least, most)
        elif answer.code != ResponseCode.PULL_OFFSET_MOVED and at > fetch.next:
            self._has.clear()
            if self._how.dense or answer.remark in GONE:
                self._gap(fetch, at, NONE_THERE)
            fetch.next = at
        else:
            # A reset of the group, or files that are being deleted: pull again.
            self._elsewhere(f"{ask.address} answered {answer.code}: {answer.remark}")

    def _absent(self, fetch: Fetch, least: int, most: int) -> None:
        """Note the offsets that this address has: a gap, once no other address has this one."""
        self._has[self._addresses[0]] = least, most
        known = self._has.values()
        everywhere = self._has.keys() >= set(self._addresses)
        if not everywhere or any(first <= fetch.next < last for first, last in known):
            self._hang_up(f"{self._addresses[0]} has offsets {least} to before {most} only")
            return
        if later := [first for first, _ in known if first > fetch.next]:
            self._gap(fetch, min(later), f"the queue begins at {min(later)} now (expired)")
            return
        end = max(last for _, last in known)
        self._gap(fetch, fetch.end, f"the queue ends at {end} (lost, or the topic is a new one)")

    def _gap(self, fetch: Fetch, end: int, why: str) -> None:
        fetch.parts.append(Gap(fetch.next, min(end, fetch.end), why))
        fetch.next = end
