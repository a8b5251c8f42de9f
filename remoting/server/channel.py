"""A channel: the bytes of one peer in and out, whatever protocol they are of.

It has the socket or its TLS stage, the state, what is left of the input, the output queue with its
limits, the times and counts by which others judge it, and its end. Bytes are sent by `write`, once
per round; until then they are only queued. Nothing here waits.

A channel belongs to a loop (`selector`), which gives it turns as its state allows (`states`). The
meaning of its bytes is the business of a `Serving`. A protocol has a class of channels with what it
keeps for each peer, such as `Connection` of remoting, and one `Serving` for each listener, which
makes them and is called in their turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from aerobee.remoting.server.addresses import host_text, packed_host
from aerobee.remoting.server.arrivals import Reading
from aerobee.remoting.server.outbound import Uptake, drop_sent, send_queued
from aerobee.remoting.server.states import CLOSED, OPENED, Event, Input

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.server.left_bytes import LeftBytes, Piece
    from aerobee.remoting.server.peer import Wire
    from aerobee.remoting.server.shared import SelectorContext
    from aerobee.remoting.server.tls_socket import TlsSocket


READING: Final = Input.READING
NOBODY: Final[frozenset[str]] = frozenset()


class NewSocket(NamedTuple):
    """The parts of which a channel is made."""

    sock: Wire
    address: tuple[Any, ...]
    """Of the peer."""
    listener: str
    """The name of its listener."""
    context: SelectorContext
    forget: Callable[[Any, str], None]
    """Called once, with the channel and the reason, while the socket is still open."""


C = TypeVar("C", bound="Channel")


class Serving(Protocol[C]):
    """The protocol of a listener: what the bytes of its channels mean.

    The loop calls `take` and `go_on` in the turns of a channel, and nothing of it waits. Behind
    each, what was read and not served stands in the channel (`has_left`, `left_bytes`), the budget
    knows its size (`note_left`), and `settle` has been called where something is left.
    """

    def channel(self, new: NewSocket) -> C:
        """The channel of a socket that was accepted."""

    def take(self, channel: C, data: memoryview, since: float, until: float) -> None:
        """Serve what these bytes complete, as far as the turn allows, and keep the rest.

        They came from `since` to `until`, on the loop's clock, and are valid during the call.
        """

    def go_on(self, channel: C) -> None:
        """Serve what an earlier turn has left, as far as this one allows."""

    def piece(self, channel: C, data: memoryview, since: float, until: float) -> Piece | None:
        """These bytes as the first of `left_bytes`, with those of the message that has not
        come whole; None: take them, for the protocol bounds by itself what its peers send.
        """


class Channel:
    """A peer and its socket.

    Invariant: `unsent` is the number of bytes in `out`.
    """

    __slots__ = (
        "__weakref__",
        "_forget",
        "accounts",
        "address",
        "budget",
        "context",
        "dirty",
        "held",
        "host",
        "id",
        "inbound",
        "last_active",
        "left_bytes",
        "listener",
        "local_address",
        "on_close",
        "out",
        "reading",
        "requests",
        "serving",
        "sock",
        "state",
        "tls",
        "unsent",
        "uptake",
    )

    def __init__(self, new: NewSocket, serving: Serving[Any]) -> None:
        context = new.context
        self.sock = new.sock
        self.tls: TlsSocket | None = None
        """The stage that encrypts, which is `sock` once a TLS handshake is done."""
        self.context = context
        self.serving = serving
        self.id = context.shared.next_number()
        self.listener = new.listener
        self.host = packed_host(new.address)
        self.address = host_text(self.host)
        self.local_address = host_text(packed_host(new.sock.getsockname()))
        self.state = OPENED
        self.out: list[bytes | memoryview] = []
        self.unsent = 0
        self.dirty = False
        """Whether it is in the outbox."""
        self.left_bytes: LeftBytes | None = None  # behind what is left, not split into messages
        self.accounts = NOBODY  # whose requests the gate has seen on it
        self.requests = 0
        """How many have come on it."""
        self.held = 0
        """Requests held by long polling: their peer waits for us and is not idle."""
        self.inbound = 0
        """Received bytes that are not served; the inbound budget maintains this."""
        self.budget = context.shared.unauthenticated or context.shared.inbound
        self.reading = Reading(context.now)
        """Estimates when its data arrived."""
        self.last_active = context.now
        self.uptake: Uptake | None = None
        """The pace at which the peer reads, while data is unsent that the kernel does not take."""
        self.on_close: list[Callable[[Any, str], None]] = []
        """Called once, with the channel and the reason."""
        self._forget = new.forget

    # ── What a protocol adds ──

    @property
    def has_left(self) -> bool:
        """Whether frames or events were read and not served."""
        raise NotImplementedError

    @property
    def unserved_bytes(self) -> int:
        """The approximate memory of what was read of it and is not served."""
        return 0 if self.left_bytes is None else self.left_bytes.size

    @property
    def idle(self) -> bool:
        """Whether its peer waits for nothing: a silent one may be closed."""
        return not self.held

    def crowded(self) -> None:
        """Hear that more than the high-water mark is unsent: to write more would only keep it."""

    def drained(self) -> None:
        """Hear that the peer reads: it is no longer crowded, or nothing is unsent any more."""

    def ended(self) -> None:
        """Release what is kept for the peer: it is closed."""

    # ── Its state ──

    def on(self, event: Event) -> None:
        """Change its state."""
        after = self.state.after[event]
        assert after is not None, f"{event.name} while {self.state!r}"
        self.state = after

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return self.state.closed

    @property
    def paused(self) -> bool:
        """Whether its peer does not read what it was sent: it gets nothing that can be left out."""
        return self.state.paused

    @property
    def postponed(self) -> bool:
        """Whether its input waits until it is resumed."""
        return self.state.postponed

    @property
    def waits(self) -> bool:
        """Whether something that was read has to be served before more is read."""
        return self.state.waits

    def watch(self) -> None:
        """Tell the poller what its state wants to hear of.

        Data that `write` has not tried to send yet is sent at the end of the round and needs no
        event; an idle socket would report one in every round.
        """
        state = self.state
        self.context.poller.interest(self.sock, read=state.reads, write=state.writes)

    def settle(self) -> None:
        """End a turn which may have left something: see to it that it is served."""
        if self.state.input is READING:
            if self.has_left:
                self.on(Event.FRAMES_LEFT)
            elif self.left_bytes is not None:
                self.on(Event.BYTES_LEFT)
            elif self.stage_pending:
                self.on(Event.STAGE_LEFT)
        state = self.state
        if state.turns:
            self.context.waiting[self.sock.fileno()] = None
        elif not state.closed:
            # Not only after an event: with very many ready sockets the poller names others.
            self.watch()

    @property
    def stage_pending(self) -> bool:
        """Whether the stage below holds decrypted bytes, of which no poller tells. Hot."""
        return self.tls is not None and self.tls.pending

    @property
    def stalled(self) -> bool:
        """Whether anything is unsent that the kernel does not take."""
        return self.state.stalled

    def note_left(self, *, renewed: bool) -> None:
        """Tell the budget what is not served; `renewed`: nothing of it was there before."""
        if self.state.closed:
            return
        pending = self.unserved_bytes
        if pending != self.inbound or (pending and renewed):
            self.budget.note(self, pending, self.context.now, renewed=renewed)

    def starve(self, *, starved: bool) -> None:
        """Read no more until there is room for what it sends, or read on."""
        self.on(Event.STARVED if starved else Event.FED)
        self.watch()

    @property
    def starved(self) -> bool:
        """Whether it is not read because the inbound budget is exhausted."""
        return self.state.starved

    def encrypt(self, stage: TlsSocket) -> None:
        """Go on with a stage that encrypts and decrypts, now that the handshake is done."""
        self.tls = self.sock = stage
        if stage.pending:
            self.on(Event.STAGE_LEFT)

    def welcome(self) -> None:
        """Let it stay: it has sent what needs no account, and is no newcomer any more."""
        self.context.shared.newcomers.remove(self)

    def admit(self) -> None:
        """Count what it sends with that of others who have shown an account."""
        shared = self.context.shared
        if self.budget is not shared.inbound:
            shared.newcomers.remove(self)
            self.budget.release(self, self.context.now)
            self.budget = shared.inbound

    # ── Bytes out ──

    def put(self, data: bytes) -> None:
        """Queue bytes."""
        self.out.append(data)
        self.unsent += len(data)
        if not self.dirty:
            self.dirty = True
            self.context.outbox.append(self)

    def write(self) -> None:
        """Send all that is queued once; what the kernel does not take waits for EPOLLOUT."""
        self.dirty = False
        if self.state is CLOSED or not self.unsent:
            return
        out = self.out
        try:
            sent = send_queued(self.sock, out, self.unsent)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close(f"send failed: {error.strerror}")
            return
        self.context.stats.bytes_out += sent
        self.last_active = self.context.now
        if sent == self.unsent:
            out.clear()
            self.unsent = 0
            if self.state.stalled:
                self._flowing()
        else:
            self._stalled(sent)

    def _stalled(self, sent: int) -> None:
        shared = self.context.shared
        if self.uptake is None:
            self.uptake = Uptake()
        self.uptake.sent += sent
        self.unsent -= sent
        drop_sent(self.out, sent)
        outbound = shared.outbound
        self.on(Event.UNSENT)
        outbound.note(self, self.unsent, self.context.now)
        if self.closed:
            return
        high_water, was_paused = outbound.high_water_bytes, self.state.paused
        if self.unsent > high_water:
            self.on(Event.UNSENT_MUCH)
            if not was_paused:
                self.crowded()
        elif self.unsent <= min(shared.limits.low_water_bytes, high_water):
            self.on(Event.UNSENT_LITTLE)
            if was_paused:
                self._flow_again()
        self.watch()

    def _flowing(self) -> None:
        was_paused = self.state.paused
        self.uptake = None
        self.on(Event.SENT)
        self.context.shared.outbound.note(self, 0, self.context.now)
        if was_paused:
            self._flow_again()
        else:
            self.drained()
        self.watch()

    def _flow_again(self) -> None:
        """Take up what was left while the peer did not read."""
        self.reading.resumed = self.context.now
        if self.state.waits:
            self.context.waiting[self.sock.fileno()] = None
        self.drained()

    # ── The end ──

    def close(self, reason: str) -> None:
        """Close now: unsent data is dropped, `on_close` runs once."""
        if self.closed:
            return
        self.on(Event.CLOSED)
        self._forget(self, reason)
        self.sock.close()
        self.out.clear()
        self.unsent = 0
        self.context.shared.outbound.note(self, 0, self.context.now)
        self.left_bytes = None
        self.ended()
        for callback in self.on_close:
            callback(self, reason)
        self.on_close.clear()
