"""The two forms in which the log goes from broker to broker: the bytes, and nothing else.

Pure. A connection has two ends, and each form has an object for either; what is sent when, what is
counted and what is appended is the same for both. `Classic` has frames and reports. `WithEpochs`,
in failover mode, begins with handshakes, and its data names the epoch of its master. Source: store
format §8 (DefaultHAConnection, AutoSwitchHAConnection).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aerobee.store.errors import FrameIllegal, SlaveRefused
from aerobee.store.format import ha, ha_epochs
from aerobee.store.format.epochs import end_of
from aerobee.store.format.ha_epochs import Greeting, Hello, epoch_of, frame_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.store.format.epochs import Epoch
    from aerobee.store.format.ha import Frame
    from aerobee.store.replication.group import Group


class MasterEnd(Protocol):
    """The master's end of a connection."""

    hello: Hello | None
    """The handshake of the slave; None in a form without it, or as long as it has not come."""

    def feed(self, data: bytes) -> int | None:
        """The last whole report with these bytes, any i64; None while there is none.

        Raises: FrameIllegal, SlaveRefused.
        """

    def opening(self, max_offset: int) -> bytes:
        """The bytes to be sent before anything else, once; empty: nothing, or not yet."""

    def frames(self, physical_offset: int, data: memoryview, most: int) -> bytes:
        """Bytes of one segment, in frames of at most that many. Hot."""

    def heartbeat(self, physical_offset: int) -> bytes:
        """A frame without bytes: the offset that comes next."""


class SlaveEnd(Protocol):
    """The slave's end of a connection."""

    frames: int
    """How many were given, those without bytes among them."""
    data_bytes: int
    """How many bytes of the log were in them; the reader sets it back."""

    @property
    def greeting(self) -> Greeting | None:
        """The handshake of the master; None in a form without it, or before it has come."""

    def opening(self) -> bytes:
        """The bytes to be sent before anything else; empty: the log flows at once."""

    def feed(self, data: bytes | bytearray) -> Iterator[Frame | Epoch]:
        """The frames that are whole with these bytes, in order, and an epoch ahead of its first
        one.

        The iterator must be exhausted. Raises: FrameIllegal.
        """

    def appended(self, end: int) -> bool:
        """The own log ends there, with all that was fed; whether more of it is confirmed."""

    def report(self, max_offset: int) -> bytes:
        """That the own log ends there."""


class Wire(Protocol):
    """A form of the connection: there are two."""

    def master_end(self) -> MasterEnd:
        """For one connection of a slave."""

    def slave_end(self) -> SlaveEnd:
        """For one connection to a master."""


# ── Without epochs ──


class ClassicMasterEnd:
    """Frames and heartbeats; every slave that connects is served."""

    __slots__ = ("_reports", "hello")

    def __init__(self) -> None:
        self._reports = ha.ReportReader()
        self.hello: Hello | None = None

    def feed(self, data: bytes) -> int | None:
        """The last report."""
        return self._reports.feed(data)

    def opening(self, max_offset: int) -> bytes:
        """Nothing."""
        return b""

    def frames(self, physical_offset: int, data: memoryview, most: int) -> bytes:
        """Frames, side by side. Hot."""
        return ha.encode_frames(physical_offset, data, min(most, ha.FRAME_DATA_BYTES_MAX))

    def heartbeat(self, physical_offset: int) -> bytes:
        """A frame without bytes."""
        return ha.encode_frame(physical_offset)


class ClassicSlaveEnd(ha.FrameReader):
    """Frames, and reports."""

    __slots__ = ("greeting",)

    def __init__(self) -> None:
        super().__init__()
        self.greeting: Greeting | None = None

    def opening(self) -> bytes:
        """Nothing."""
        return b""

    def appended(self, end: int) -> bool:
        """Nobody has to know."""
        return False

    def report(self, max_offset: int) -> bytes:
        """A report."""
        return ha.encode_report(max_offset)


class Classic:
    """Frames and reports, as in RocketMQ's master-slave mode."""

    def master_end(self) -> MasterEnd:
        """For one connection of a slave."""
        return ClassicMasterEnd()

    def slave_end(self) -> SlaveEnd:
        """For one connection to a master."""
        return ClassicSlaveEnd()


# ── With epochs ──


class EpochMasterEnd:
    """A handshake, then data, no frame of which crosses the begin of an epoch."""

    __slots__ = ("_greeted", "_group", "_reader", "hello")

    def __init__(self, group: Group) -> None:
        self._group = group
        self._reader = ha_epochs.SlaveReader()
        self._greeted = False
        self.hello: Hello | None = None

    def feed(self, data: bytes) -> int | None:
        """The last report. Raises: FrameIllegal, SlaveRefused where no member speaks."""
        report = self._reader.feed(data)
        hello = self._reader.hello
        if self.hello is None and hello is not None:
            if objection := self._group.objection(hello.member):
                raise SlaveRefused(objection)
            self.hello = hello
        return report

    def opening(self, max_offset: int) -> bytes:
        """The handshake, as an answer to the slave's."""
        if self._greeted or self.hello is None:
            return b""
        self._greeted = True
        return ha_epochs.encode_greeting(Greeting(max_offset, self._group.epochs))

    def frames(self, physical_offset: int, data: memoryview, most: int) -> bytes:
        """Data, cut where a frame is full and where an epoch begins. Hot."""
        group = self._group
        most = min(most, ha_epochs.DATA_BYTES_MAX)
        parts: list[bytes] = []
        at, end = physical_offset, physical_offset + len(data)
        while at < end:
            epoch, frame_ends = frame_end(group.epochs, at, min(most, end - at))
            piece = data[at - physical_offset : frame_ends - physical_offset]
            parts.append(ha_epochs.encode_data(at, epoch, group.confirmed, piece))
            at = frame_ends
        return b"".join(parts)

    def heartbeat(self, physical_offset: int) -> bytes:
        """Data without bytes, of the epoch that comes next: no earlier one may follow it."""
        group = self._group
        epoch = epoch_of(group.epochs, physical_offset)
        return ha_epochs.encode_data(physical_offset, epoch, group.confirmed)


class EpochSlaveEnd:
    """A handshake, then data of the epochs that the master has named, and of later ones."""

    __slots__ = (
        "_confirmed",
        "_end",
        "_epochs",
        "_group",
        "_place",
        "_reader",
        "data_bytes",
        "frames",
    )

    def __init__(self, group: Group) -> None:
        self._group = group
        self._reader = ha_epochs.MasterReader()
        self._epochs: tuple[Epoch, ...] = ()
        """The epochs of the master's log."""
        self._place = -1
        """The number of the epoch that was given last."""
        self._end = 0
        """Where that epoch ends in the master's log."""
        self._confirmed = 0
        self.frames = self.data_bytes = 0

    @property
    def greeting(self) -> Greeting | None:
        """The handshake of the master; None until it has come."""
        return self._reader.greeting

    def opening(self) -> bytes:
        """The handshake of this member."""
        return ha_epochs.encode_hello(Hello(self._group.member))

    def feed(self, data: bytes | bytearray) -> Iterator[Frame | Epoch]:
        """Frames, each in its epoch as the master has named them. Raises: FrameIllegal.

        An epoch is given as soon as the log has come to its begin, whether it has bytes or not.
        """
        for physical_offset, epoch, confirmed, piece in self._reader.feed(data):
            self.frames += 1
            self._confirmed = max(self._confirmed, confirmed)
            if not piece:
                yield ha.Frame(physical_offset, piece)
                continue
            self.data_bytes += len(piece)
            if self._place < 0 or epoch != self._epochs[self._place]:
                self._begins(epoch, physical_offset)
                yield epoch
            end = physical_offset + len(piece)
            if end > self._end:
                raise FrameIllegal(
                    f"bytes of epoch {epoch.epoch} up to {end}, and the next one begins at"
                    f" {self._end}"
                )
            yield ha.Frame(physical_offset, piece)
            while end == self._end:
                self._enter(self._place + 1)
                yield self._epochs[self._place]

    def _begins(self, epoch: Epoch, physical_offset: int) -> None:
        """The first bytes of an epoch over this connection. Raises: FrameIllegal."""
        greeting = self._reader.greeting
        assert greeting is not None
        epochs = self._epochs or greeting.epochs
        later = not epochs or epoch.epoch > epochs[-1].epoch
        if later and epoch.start == physical_offset:
            epochs = (*epochs, epoch)
        if epoch not in epochs:
            raise FrameIllegal(
                f"offset {physical_offset} of epoch {epoch.epoch} from {epoch.start} on, which the"
                " master has not named"
            )
        self._epochs = epochs
        self._enter(epochs.index(epoch))

    def _enter(self, place: int) -> None:
        self._place = place
        self._end = end_of(self._epochs, place, ha.OFFSET_MAX + 1)

    def appended(self, end: int) -> bool:
        """The end that the master calls confirmed counts as far as the own log has it."""
        before = self._group.confirmed
        self._group.confirm(self._confirmed, end)
        return self._group.confirmed > before

    def report(self, max_offset: int) -> bytes:
        """A report."""
        return ha_epochs.encode_report(max_offset)


class WithEpochs:
    """Handshakes and epochs, as in RocketMQ's controller mode."""

    __slots__ = ("_group",)

    def __init__(self, group: Group) -> None:
        self._group = group

    def master_end(self) -> MasterEnd:
        """For one connection of a slave."""
        return EpochMasterEnd(self._group)

    def slave_end(self) -> SlaveEnd:
        """For one connection to a master."""
        return EpochSlaveEnd(self._group)
