"""Sends the log to slaves: one connection each, which somebody else has accepted.

The decision what is sent when is made in `transfer`; here are the two tasks of a connection. A
slave that does not read costs its socket and one piece, one that is silent is left. Under
SYNC_FLUSH nothing is sent that is not on disk: no power cut makes a slave have what its master has
lost.
Source: store format §8 (DefaultHAConnection).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
import trio

from aerobee.store.errors import FrameIllegal, SlaveRefused
from aerobee.store.listeners import Listeners
from aerobee.store.replication.lag import Lag
from aerobee.store.replication.transfer import LogSpan, Standing, Transfer, held_by
from aerobee.store.replication.wires import Classic

if TYPE_CHECKING:
    from aerobee.store.flush.log_flush import LogFlush
    from aerobee.store.format.ha_epochs import Hello
    from aerobee.store.log.commit_log import CommitLog
    from aerobee.store.messages.reader import MessageReader
    from aerobee.store.replication.transfer import LogPiece
    from aerobee.store.replication.wires import MasterEnd, Wire
    from aerobee.store.stats import StoreStats


PIECE_BYTES = 256 << 10
"""The most bytes of the log that are sent at once, in as many frames as that takes."""
RECEIVE_BYTES = 4_096
"""Some hundred reports: only the last one counts."""
AHEAD_MAX = 1_024
"""So many slaves with other bytes are remembered."""
REPLACED_WITHIN_S = 60.0
REPLACED_MAX = 10
"""A member whose open connection is replaced so often in that time is two processes."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """The times and the size of the pieces of a replication connection, on either side."""

    heartbeat_s: float = 5.0
    """After so long without anything sent, the other side is told that this one lives."""
    silence_s: float = 20.0
    """After so long without anything received, the connection is left."""
    batch_bytes: int = 32_768
    """The most bytes of the log in a frame."""
    gather_s: float = 0.0
    """The pause before the next send to a slave that has been sent all there was: what is appended
    meanwhile goes together. 0 where senders wait for slaves."""


class Follower:
    """One slave's connection."""

    __slots__ = (
        "host",
        "lag",
        "name",
        "peer",
        "scope",
        "transfer",
        "unreadable",
        "wanted",
        "wire",
    )

    def __init__(self, host: str, peer: str, now: float, wire: MasterEnd) -> None:
        self.host = host
        """Its address without the port."""
        self.name = host
        """Two connections of one name are one slave; a member of a group has one by its id."""
        self.peer = peer
        self.wire = wire
        self.transfer = Transfer()
        self.lag = Lag(now)
        self.unreadable = ""
        """Why what comes next cannot be read here; empty: it can."""
        self.wanted = trio.Event()
        """There may be something to send."""
        self.scope = trio.CancelScope()
        """Its end closes the connection."""


class LogOut:
    """The log on its way to all slaves."""

    def __init__(
        self, commit_log: CommitLog, flush: LogFlush, reader: MessageReader, stats: StoreStats
    ) -> None:
        self._log = commit_log
        self._flush = flush
        self._reader = reader
        self._stats = stats
        self.pace = Pace()
        self.wire: Wire = Classic()
        self.followers: list[Follower] = []
        self._ahead: set[tuple[str, int]] = set()
        self._replaced: dict[str, tuple[float, int]] = {}
        """Member → since when, and how often, an open connection of it was replaced."""
        self._offered = 0
        """The end of what was in the log when this began to be a master, and of what was sent
        since.
        """
        self.after_report: Listeners[[]] = Listeners()
        """Called when a slave has acknowledged more, and when one has come or left."""
        self.after_word: Listeners[[Follower]] = Listeners()
        """Called with each report of a slave, also with one that says nothing new."""

    def opened(self) -> None:
        """Slaves can have got all that is in the log now, and nothing behind its end."""
        self._offered = self._log.max_offset

    def close(self) -> None:
        """Close all connections: this broker is the master no more."""
        for follower in self.followers:
            follower.scope.cancel()

    def has(self, end: int) -> bool:
        """Whether a slave has the log up to there."""
        return any(follower.transfer.acknowledged >= end for follower in self.followers)

    def appended(self) -> None:
        """There is more to send. Hot."""
        for follower in self.followers:
            if follower.transfer.standing is Standing.FOLLOWS:
                follower.wanted.set()

    def held_by(self, count: int) -> int:
        """The end of what so many slaves have at least; −1 when fewer follow."""
        ends: dict[str, int] = {}
        for follower in self.followers:
            end = follower.transfer.acknowledged
            if end >= 0:
                ends[follower.name] = max(end, ends.get(follower.name, end))
        return held_by(count, ends)

    def span(self) -> LogSpan:
        """The ends of the log now."""
        log, max_offset = self._log, self._log.max_offset
        known, end = min(self._offered, max_offset), self._flush.counted_end
        return LogSpan(log.min_offset, end, max_offset, log.segment_bytes, known)

    async def serve(self, stream: trio.abc.Stream, host: str, peer: str) -> None:
        """Serve one slave until it leaves, breaks off, or is silent for too long."""
        follower = Follower(host, peer, trio.current_time(), self.wire.master_end())
        self.followers.append(follower)
        log.info("replication.slave_connected", peer=peer)
        reason = "closed"
        try:
            async with stream, trio.open_nursery() as nursery:
                follower.scope = nursery.cancel_scope
                nursery.start_soon(self._send, stream, follower, nursery.cancel_scope)
                reason = await self._listen(stream, follower)
                nursery.cancel_scope.cancel()
        finally:
            self.followers.remove(follower)
            end = follower.transfer.acknowledged
            log.info("replication.slave_left", peer=peer, reason=reason, acknowledged=end)
            self._told()

    # ── From the slave ──

    async def _listen(self, stream: trio.abc.Stream, follower: Follower) -> str:
        """Take reports until there are no more; returns why."""
        wire = follower.wire
        deadline = trio.current_time() + self.pace.silence_s
        while True:
            data = None
            with trio.move_on_at(deadline):
                try:
                    data = await stream.receive_some(RECEIVE_BYTES)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return "broken"
            if data is None:
                return "silent"
            if not data:
                return "closed"
            hello = wire.hello
            try:
                end = wire.feed(bytes(data))
            except (FrameIllegal, SlaveRefused) as refused:
                return str(refused)
            if wire.hello is not hello and wire.hello is not None:
                self._introduced(follower, wire.hello)
                deadline = trio.current_time() + self.pace.silence_s
            if end is not None:
                # A part of a report is no sign of life.
                deadline = trio.current_time() + self.pace.silence_s
                self._reported(follower, end)

    def _introduced(self, follower: Follower, hello: Hello) -> None:
        """A slave has named itself: an older connection of it is over, whatever it had then."""
        follower.name = f"member {hello.member}"
        for other in self.followers:
            if other is not follower and other.name == follower.name:
                other.transfer.acknowledged = -1
                other.scope.cancel()
                self._note_replaced(follower, other)
        follower.transfer.whole = not hello.from_last_segment
        follower.transfer.shadow = hello.learner
        follower.wanted.set()

    def _note_replaced(self, follower: Follower, other: Follower) -> None:
        """Tell of two processes with the number of one member: each takes the place of the other,
        and what one of them has counts for both.
        """
        name, now = follower.name, trio.current_time()
        since, count = self._replaced.get(name, (now, 0))
        if now - since > REPLACED_WITHIN_S:
            since, count = now, 0
        self._replaced[name] = since, count + 1
        if count + 1 == REPLACED_MAX:
            log.error("replication.same_member", member=name, peers=[other.peer, follower.peer])

    def _reported(self, follower: Follower, max_offset: int) -> None:
        transfer = follower.transfer
        first = transfer.standing is Standing.SILENT
        news = transfer.reported(max_offset, self.span())
        follower.lag.reported(transfer.acknowledged, self._log.max_offset, trio.current_time())
        if (tell := self.after_word.tell) is not None:
            tell(follower)
        if not news:
            return
        if first:
            # A slave that has named itself has compared epochs: its bytes are this log's.
            if follower.wire.hello is None:
                self._look_back(follower, max_offset)
            self._note(follower, max_offset)
            follower.wanted.set()
        self._told()

    def _look_back(self, follower: Follower, max_offset: int) -> None:
        """Whether this slave was seen with other bytes than this log has."""
        if not max_offset:
            # Its store was emptied: whatever it had is gone.
            self._ahead = {place for place in self._ahead if place[0] != follower.host}
        if (follower.host, max_offset) in self._ahead:
            # The log has grown past its end since: the bytes in front of that differ.
            follower.transfer.refuse()

    def _note(self, follower: Follower, max_offset: int) -> None:
        """Say once for a connection that its slave cannot follow, and remember the place."""
        span = self.span()
        ends = {"reported": max_offset, "min_offset": span.begin, "max_offset": span.max_offset}
        if follower.transfer.standing is Standing.AHEAD:
            if len(self._ahead) < AHEAD_MAX and follower.wire.hello is None:
                self._ahead.add((follower.host, max_offset))
            log.error("replication.slave_ahead", peer=follower.peer, **ends)
        elif follower.transfer.standing is Standing.DELETED:
            log.error("replication.slave_too_old", peer=follower.peer, **ends)

    def _told(self) -> None:
        if (tell := self.after_report.tell) is not None:
            tell()

    # ── To the slave ──

    async def _send(
        self, stream: trio.abc.Stream, follower: Follower, scope: trio.CancelScope
    ) -> None:
        """Send pieces of the log, and heartbeats between them, until the connection breaks.

        A round that stored nothing wakes this as well, and is no reason to keep silent.
        """
        beat_at, sent = trio.current_time() + self.pace.heartbeat_s, -1
        try:
            while True:
                follower.wanted = trio.Event()
                if opening := follower.wire.opening(self._log.max_offset):
                    await stream.send_all(opening)
                if not await self._sent_all(stream, follower):
                    # Its slave learns why when it asks, and others are sent the log.
                    await trio.sleep(self.pace.heartbeat_s)
                    at = follower.transfer.next_offset
                    await stream.send_all(follower.wire.heartbeat(max(0, at)))
                    continue
                if sent != (sent := follower.transfer.next_offset):
                    beat_at = trio.current_time() + self.pace.heartbeat_s
                with trio.move_on_at(beat_at) as idle:
                    await follower.wanted.wait()
                if idle.cancelled_caught:
                    beat_at = trio.current_time() + self.pace.heartbeat_s
                    if follower.transfer.standing is not Standing.SILENT:
                        await stream.send_all(follower.wire.heartbeat(max(0, sent)))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            scope.cancel()

    async def _sent_all(self, stream: trio.abc.Stream, follower: Follower) -> bool:
        """Whether the slave was sent all there is: the log may be unreadable where it goes on."""
        try:
            await self._send_all(stream, follower)
        except OSError as error:
            if not follower.unreadable:
                log.error("replication.read_failed", peer=follower.peer, error=str(error))
            follower.unreadable = str(error)
        else:
            follower.unreadable = ""
        return not follower.unreadable

    async def _send_all(self, stream: trio.abc.Stream, follower: Follower) -> None:
        transfer = follower.transfer
        frame_bytes = self.pace.batch_bytes
        piece_bytes = max(frame_bytes, PIECE_BYTES)
        follows = transfer.standing is Standing.FOLLOWS
        follower.lag.to_send(transfer.acknowledged, transfer.next_offset, trio.current_time())
        while (piece := transfer.piece(self.span(), piece_bytes)) is not None:
            data = await self._bytes(piece)
            if data is None:
                # Deleted since: the next look says so.
                await trio.lowlevel.checkpoint()
                continue
            frames = follower.wire.frames(piece.physical_offset, data, frame_bytes)
            # A view would keep its segment while a slave does not read.
            del data
            # Before the wait: a slave may report what it has got before the last byte is sent.
            transfer.sent(piece)
            self._offered = max(self._offered, transfer.next_offset)
            await stream.send_all(frames)
            self._stats.replicated_out_bytes += piece.size
            if piece.size < piece_bytes and self.pace.gather_s:
                await trio.sleep(self.pace.gather_s)
        if follows and transfer.standing is Standing.DELETED:
            self._note(follower, transfer.next_offset)

    async def _bytes(self, piece: LogPiece) -> memoryview | None:
        """The bytes of a piece, from memory or from the disk; None when it is deleted."""
        piece_read = self._reader.reading_piece(*piece)
        return (
            piece_read
            if piece_read is None or isinstance(piece_read, memoryview)
            else await piece_read
        )
