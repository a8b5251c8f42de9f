"""A selector whose sockets take and give what the test says, and a poller that only remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.remoting.server import handlers as handlers_module
from aerobee.remoting.server import selector as selector_module
from aerobee.remoting.server import worker as worker_module
from aerobee.remoting.server.poller import READ, WRITE
from aerobee.remoting.server.pools import Pool
from aerobee.remoting.server.reactor import NO_HOOKS, Reactor
from aerobee.remoting.server.route_table import resolve
from aerobee.remoting.server.routes import Route
from aerobee.remoting.server.shared import Limits
from aerobee.remoting.server.worker import Worker
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.frame import FrameDecoder
from aerobee.remoting.wire.headers.offset import GetMaxOffset, OffsetResponse
from tests.kit.raw_client import request_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pytest

    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.guard import Gate
    from aerobee.remoting.server.selector import Hooks
    from aerobee.remoting.wire.command import Command

MAX_OFFSET = int(RequestCode.GET_MAX_OFFSET)
LIMITS = Limits(
    max_frame_bytes=1 << 20,
    max_header_bytes=1 << 16,
    high_water_bytes=2_000,
    low_water_bytes=500,
    idle_s=60,
    stall_s=60,
)


class Interest(NamedTuple):
    """What a socket is watched for."""

    read: bool = True
    write: bool = False


class FakePoller:
    """Remembers what each socket is watched for."""

    def __init__(self) -> None:
        self.watched: dict[int, Interest] = {}
        self.sockets: dict[int, Any] = {}
        self.waited = True
        self.full = False

    def add(self, sock: Any) -> None:
        if self.full:
            raise OSError(28, "no space for another watch")
        self.watched[sock.fileno()] = Interest()
        self.sockets[sock.fileno()] = sock

    def interest(self, sock: Any, *, read: bool, write: bool) -> None:
        assert sock.fileno() in self.watched
        self.watched[sock.fileno()] = Interest(read, write)

    def remove(self, sock: Any) -> None:
        del self.watched[sock.fileno()]

    @property
    def unwatched(self) -> set[int]:
        return {fd for fd, kind in self.watched.items() if not kind.read}

    async def ready(self, *, wait: bool = True) -> list[tuple[int, int]]:
        raise NotImplementedError

    def holding(self) -> set[int]:
        return {fd for fd, kind in self.watched.items() if kind.read and self.sockets[fd].incoming}

    def close(self) -> None:
        self.watched.clear()


class TrickleSocket:
    """A socket that takes `takes` bytes per send in turn, then everything; it gives `incoming`."""

    def __init__(self, fd: int, takes: Iterable[int] = ()) -> None:
        self.fd = fd
        self.takes = list(takes)
        self.incoming = bytearray()
        self.taken = bytearray()
        self.sends = 0
        self.failure: OSError | None = None
        self.closed = False

    def fileno(self) -> int:
        return self.fd

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 10911)

    def recv_into(self, buffer: bytearray) -> int:
        if not self.incoming:
            raise BlockingIOError
        count = min(len(buffer), len(self.incoming))
        buffer[:count] = self.incoming[:count]
        del self.incoming[:count]
        return count

    def send(self, data: bytes | memoryview) -> int:
        return self.sendmsg([data])

    def sendmsg(self, buffers: list[bytes | memoryview]) -> int:
        self.sends += 1
        if self.failure is not None:
            raise self.failure
        data = b"".join(buffers)
        assert data, "a send of nothing"
        count = min(self.takes.pop(0) if self.takes else len(data), len(data))
        if not count:
            raise BlockingIOError
        self.taken += data[:count]
        return count

    def close(self) -> None:
        self.closed = True


class StageSocket(TrickleSocket):
    """A TLS stage: a receive takes `record` bytes, and the rest of what came is pending."""

    record = 1 << 30
    reset = False

    @property
    def pending(self) -> bool:
        return bool(self.incoming)

    def recv_into(self, buffer: bytearray) -> int:
        if self.reset and not self.incoming:
            raise ConnectionResetError
        view: Any = memoryview(buffer)[: self.record]
        return super().recv_into(view)


ENDLESS_S = 600.0


class HandTime:
    """What `monotonic` says, in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.per_look = 0.0
        for module in (handlers_module, selector_module, worker_module):
            monkeypatch.setattr(module, "monotonic", self)

    def __call__(self) -> float:
        self.now += self.per_look
        return self.now


def echo(header: GetMaxOffset, command: Command, connection: Connection) -> Answer:
    """The request's body once more."""
    return Answer(0, OffsetResponse(offset=header.queue_id), body=bytes(command.body))


class Stage:
    """One selector without a loop: the test makes the rounds."""

    def __init__(
        self,
        handler: Callable[..., Any] = echo,
        *,
        limits: Limits = LIMITS,
        pool: Pool | None = None,
        nursery: Any = None,
        hooks: Hooks = NO_HOOKS,
        gate: Gate | None = None,
    ) -> None:
        self.pool = pool or Pool("admin", width=2, capacity=1_000, max_wait_ms=5_000)
        self.reactor = Reactor(
            pools={"admin": self.pool},
            limits=limits,
            selectors=1,
            refusals=lambda _: None,
            hooks=hooks,
        )
        if gate is not None:
            self.reactor.guard(gate, lambda *_: False)
        self.poller = FakePoller()
        self.selector = self.reactor.add_selector(self.poller)
        if not isinstance(vars(selector_module)["monotonic"], HandTime):
            # A round ends when all is served, however slow the machine is.
            self.selector.round_s = ENDLESS_S
        routes = resolve([Route(GetMaxOffset, handler, "admin")], self.reactor.pools)
        self.worker = Worker(routes, lambda _: None, nursery, self.reactor.shared, gate)

    def connect(self, takes: Iterable[int] = ()) -> tuple[Connection, TrickleSocket]:
        """A peer on a descriptor of its own."""
        fd = 10_000 + len(self.poller.watched)
        sock: Any = TrickleSocket(fd, takes)
        return self.selector.adopt(sock, ("127.0.0.1", 50_000), "test", self.worker), sock

    def connect_tls(self, worker: Worker | None = None) -> tuple[Connection, StageSocket]:
        """A peer whose handshake is done."""
        fd = 10_000 + len(self.poller.watched)
        sock: Any = StageSocket(fd)
        connection = self.selector.adopt(sock, ("127.0.0.1", 50_000), "test", worker or self.worker)
        connection.encrypt(sock)
        return connection, sock

    def interest(self, sock: TrickleSocket) -> Interest:
        """What the socket is watched for now."""
        return self.poller.watched[sock.fd]

    def round(self, sock: TrickleSocket) -> bool:
        """The round that a level-triggered poller would begin now; False when it would wait."""
        events = self.poll(sock)
        goes_on = bool(events or self.selector.waiting)
        if goes_on:
            self.rounds(events)
        return goes_on

    def poll(self, *socks: TrickleSocket) -> list[tuple[int, int]]:
        """What a level-triggered poller would name now."""
        found = []
        for sock in socks:
            watched = self.poller.watched.get(sock.fd, Interest(read=False))
            bits = READ * bool(watched.read and sock.incoming) | WRITE * watched.write
            if bits:
                found.append((sock.fd, bits))
        return found

    def rounds(self, events: list[tuple[int, int]]) -> None:
        """Rounds until all of them had their turn."""
        self.selector.round(events)
        while self.selector.ready:
            self.selector.go_on()


def frame_of(queue_id: int, body: bytes) -> bytes:
    """One request: its handler reads the queue id as it likes."""
    return request_frame(MAX_OFFSET, 1, {"topic": "t", "queueId": queue_id}, body)


def bodies(sock: TrickleSocket) -> list[bytes]:
    """The bodies of the answers that a peer has taken."""
    return [bytes(body) for _, _, body in FrameDecoder().feed(bytes(sock.taken))]
