"""The bytes of a replication that knows of epochs: both sides name themselves before the log flows.

Pure: bytes in any cut ↔ messages. On the port of the classic frames, which look different: a
broker that speaks these must know that its peer does. First comes one handshake from either side,
then reports one way and data the other. Data never crosses the begin of an epoch.
Source: store format §8 (AutoSwitchHAConnection, AutoSwitchHAClient).
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.store.errors import FrameIllegal
from aerobee.store.format.epochs import Epoch, in_order
from aerobee.store.format.ha import FRAME_DATA_BYTES_MAX, OFFSET_MAX, Pieces
from aerobee.store.format.layout import Layout, i16, i32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.store.format.layout import Buffer

HANDSHAKE: Final = 1
TRANSFER: Final = 2
"""The states of a connection that are on the wire; of the five that Java numbers, only these are
sent.
"""
EPOCHS_MAX: Final = 10_000
"""A master has changed so often; the row of its epochs is read into memory."""


class HandshakeHead(NamedTuple):
    """The first bytes of a master; its epochs follow."""

    state: i32
    body_size: i32
    max_offset: i64
    epoch: i32
    """The last of its epochs."""


class EpochRow(NamedTuple):
    """An epoch in that row."""

    epoch: i32
    start: i64


class HelloFields(NamedTuple):
    """The first bytes of a slave."""

    state: i32
    from_last_segment: i16
    learner: i16
    member: i64


class ReportFields(NamedTuple):
    """The reports of a slave behind these."""

    state: i32
    max_offset: i64


class DataHead(NamedTuple):
    """The head in front of the bytes of the log."""

    state: i32
    size: i32
    physical_offset: i64
    epoch: i32
    epoch_start: i64
    confirmed: i64


HANDSHAKE_HEAD = Layout(HandshakeHead, size=20)
EPOCH_ROW = Layout(EpochRow, size=12)
HELLO = Layout(HelloFields, size=16)
REPORT = Layout(ReportFields, size=12)
DATA_HEAD = Layout(DataHead, size=36)
DATA_BYTES_MAX: Final = (4 << 20) - DATA_HEAD.size
"""The most bytes of the log that are sent in a frame: a Java slave reads into 4 MiB."""
START: Final = attrgetter("start")


class Hello(NamedTuple):
    """The handshake of a slave."""

    member: int
    """Its id in the group."""
    from_last_segment: bool = False
    """An empty slave is to begin with the master's last segment, and not with its first byte."""
    learner: bool = False
    """The member is never to be in the sync set."""


class Greeting(NamedTuple):
    """The handshake of a master: where its log ends, and who wrote which part of it."""

    max_offset: int
    epochs: tuple[Epoch, ...]

    @property
    def last_epoch(self) -> int:
        """The latest epoch; 0 without any."""
        return self.epochs[-1].epoch if self.epochs else 0


class EpochFrame(NamedTuple):
    """Bytes of the log, of one epoch; without bytes it is a heartbeat."""

    physical_offset: int
    epoch: Epoch
    confirmed: int
    """Up to where all of the sync set have the log, as the master knows it."""
    data: bytes | memoryview = b""


def encode_hello(hello: Hello) -> bytes:
    """The first bytes of a slave."""
    return HELLO.pack(HANDSHAKE, hello.from_last_segment, hello.learner, hello.member)


def encode_report(max_offset: int) -> bytes:
    """A slave's report of the end of its log."""
    return REPORT.pack(TRANSFER, max_offset)


def encode_greeting(greeting: Greeting) -> bytes:
    """The first bytes of a master."""
    epochs = greeting.epochs
    assert len(epochs) <= EPOCHS_MAX, len(epochs)
    size, last = EPOCH_ROW.size * len(epochs), greeting.last_epoch
    head = HANDSHAKE_HEAD.pack(HANDSHAKE, size, greeting.max_offset, last)
    return b"".join((head, *(EPOCH_ROW.pack(*epoch) for epoch in epochs)))


def encode_data(physical_offset: int, epoch: Epoch, confirmed: int, data: Buffer = b"") -> bytes:
    """Bytes of the log of one epoch; a heartbeat without them names the offset that comes next."""
    size = len(data)
    assert size <= FRAME_DATA_BYTES_MAX, size
    return b"".join((DATA_HEAD.pack(TRANSFER, size, physical_offset, *epoch, confirmed), data))


class SlaveReader:
    """Cuts what a slave sends: a handshake, then reports."""

    __slots__ = ("_rest", "hello")

    def __init__(self) -> None:
        self._rest = b""
        self.hello: Hello | None = None
        """None until it has come."""

    def feed(self, data: bytes) -> int | None:
        """The last whole report with these bytes, any i64; None while there is none.

        Raises: FrameIllegal.
        """
        data = self._rest + data
        at, report = 0, None
        if self.hello is None:
            if len(data) < HELLO.size:
                self._rest = data
                return None
            state, from_last_segment, learner, member = HELLO.unpack_from(data)
            if state != HANDSHAKE or member <= 0:
                raise FrameIllegal(f"no handshake: state {state}, member {member}")
            self.hello = Hello(member, bool(from_last_segment), bool(learner))
            at = HELLO.size
        while len(data) - at >= REPORT.size:
            state, report = REPORT.unpack_from(data, at)
            if state != TRANSFER:
                raise FrameIllegal(f"no report: state {state}")
            at += REPORT.size
        self._rest = data[at:]
        return report


class MasterReader(Pieces[EpochFrame]):
    """Cuts what a master sends: a handshake, then data."""

    __slots__ = ("_epoch", "greeting")

    def __init__(self) -> None:
        super().__init__()
        self._epoch = -1
        self.greeting: Greeting | None = None
        """None until it has come; nothing else is given before."""

    def _cut(self, view: memoryview) -> Iterator[EpochFrame]:
        at, needed = 0, DATA_HEAD.size
        if self.greeting is None:
            at, needed = self._greeted(view)
        while self.greeting is not None and len(view) - at >= DATA_HEAD.size:
            head = DATA_HEAD.read(view, at)
            self._check(head)
            begin = at + DATA_HEAD.size
            if len(view) < begin + head.size:
                needed += head.size
                break
            at = begin + head.size
            self._epoch = head.epoch
            yield EpochFrame(
                head.physical_offset,
                Epoch(head.epoch, head.epoch_start),
                head.confirmed,
                view[begin:at],
            )
        self._keep(view[at:], needed)

    def _greeted(self, there: memoryview) -> tuple[int, int]:
        """Read the handshake once it is whole; returns how many bytes it took, and how many more
        it takes to go on.
        """
        if len(there) < HANDSHAKE_HEAD.size:
            return 0, HANDSHAKE_HEAD.size
        state, body_size, max_offset, last = HANDSHAKE_HEAD.unpack_from(there)
        if state != HANDSHAKE or max_offset < 0:
            raise FrameIllegal(f"no handshake: state {state}, a log up to {max_offset}")
        if body_size % EPOCH_ROW.size or not 0 <= body_size <= EPOCH_ROW.size * EPOCHS_MAX:
            raise FrameIllegal(f"{body_size} bytes of epochs")
        end: int = HANDSHAKE_HEAD.size + body_size
        if len(there) < end:
            return 0, end
        epochs = tuple(Epoch(*row) for row in EPOCH_ROW.rows(there[HANDSHAKE_HEAD.size : end]))
        check_epochs(epochs)
        if epochs and epochs[-1].epoch != last:
            raise FrameIllegal(f"the last epoch is {last}, and {epochs[-1].epoch} in their row")
        self.greeting = Greeting(max_offset, epochs)
        return end, DATA_HEAD.size

    def _check(self, head: DataHead) -> None:
        if head.state != TRANSFER:
            raise FrameIllegal(f"no data: state {head.state}")
        if head.physical_offset < 0 or not 0 <= head.size <= FRAME_DATA_BYTES_MAX:
            raise FrameIllegal(f"a frame of {head.size} bytes for offset {head.physical_offset}")
        if head.physical_offset > OFFSET_MAX - head.size:
            raise FrameIllegal(f"{head.size} bytes at {head.physical_offset} are beyond every log")
        if head.size and not 0 <= head.epoch_start <= head.physical_offset:
            raise FrameIllegal(
                f"offset {head.physical_offset} of an epoch that begins at {head.epoch_start}"
            )
        if head.epoch < self._epoch:
            raise FrameIllegal(f"epoch {head.epoch} behind epoch {self._epoch}")


def check_epochs(epochs: Sequence[Epoch]) -> None:
    """Check a row of epochs from outside. Raises: FrameIllegal."""
    if epochs and (epochs[0].epoch < 0 or epochs[0].start < 0):
        raise FrameIllegal(f"{epochs[0]} is no epoch")
    if not in_order(epochs):
        raise FrameIllegal("the epochs are not in order")


def epoch_of(epochs: Sequence[Epoch], physical_offset: int) -> Epoch:
    """The epoch of an offset; the first one in front of all of them."""
    return epochs[max(0, bisect_right(epochs, physical_offset, key=START) - 1)]


def frame_end(epochs: Sequence[Epoch], physical_offset: int, most: int) -> tuple[Epoch, int]:
    """The epoch of an offset, and the end of the frame of `most` bytes that begins there.

    It ends where the next epoch begins, if that is sooner. `epochs` begin at or in front of it.
    """
    place = bisect_right(epochs, physical_offset, key=START) - 1
    assert place >= 0, (epochs[:1], physical_offset)
    end = physical_offset + most
    if place + 1 < len(epochs):
        end = min(end, epochs[place + 1].start)
    return epochs[place], end
