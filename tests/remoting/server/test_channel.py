"""A channel carries any protocol: lines beside remoting, with the same selectors, limits, TLS."""

from __future__ import annotations

import socket
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from aerobee.remoting.server import boss
from aerobee.remoting.server.boss import ConnectionLimits
from aerobee.remoting.server.pools import Pool
from aerobee.remoting.server.reactor import Listener, Reactor
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers.offset import GetMaxOffset
from tests.kit.raw_client import RawConnection
from tests.kit.tls import Certificate, TlsConnection, client_context, server_context
from tests.remoting.server import line_serving
from tests.remoting.server.line_serving import PART, LineChannel, LineServing
from tests.remoting.server.stage import LIMITS, HandTime, Stage, TrickleSocket, echo, frame_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from aerobee.remoting.server.shared import Limits


class Peer:
    """A client that speaks lines, plainly or through TLS."""

    def __init__(self, raw: RawConnection) -> None:
        self.raw = raw
        self.socket: Any = raw.socket
        self.received = bytearray()

    def say(self, *lines: bytes) -> None:
        self.raw.send_bytes(b"".join(line + b"\n" for line in lines))

    def hear(self) -> bytes:
        """The next line."""
        data = self.received
        while b"\n" not in data:
            data = self.socket.recv(65_536)
            assert data, "closed by the server"
            self.received += data
        line, _, self.received = self.received.partition(b"\n")
        return bytes(line)

    def at_end(self) -> bool:
        """Whether the server has closed."""
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True


class Running:
    """A reactor with a listener of lines and one of remoting."""

    def __init__(self, reactor: Reactor, ports: list[int], trusted: Certificate | None) -> None:
        self.reactor = reactor
        self.lines, self.remoting = (f"127.0.0.1:{port}" for port in ports)
        self.trusted = trusted
        self.clients = ExitStack()

    def connect(self, address: str = "") -> RawConnection:
        address = address or self.lines
        if self.trusted is None:
            client = RawConnection(address)
        else:
            client = TlsConnection(address, client_context(self.trusted))
        return self.clients.enter_context(client)

    async def peer(self) -> Peer:
        return Peer(await trio.to_thread.run_sync(self.connect))

    @property
    def channels(self) -> list[Any]:
        return [one for one in self.reactor.connections if isinstance(one, LineChannel)]


@pytest.fixture(params=["plain", "tls"])
def trusted(request: pytest.FixtureRequest) -> Certificate | None:
    return request.getfixturevalue("shown") if request.param == "tls" else None


@asynccontextmanager
async def running(trusted: Certificate | None, limits: Limits = LIMITS) -> AsyncIterator[Running]:
    pools = {"admin": Pool("admin", width=2, capacity=100, max_wait_ms=5_000)}
    reactor = Reactor(pools=pools, limits=limits, selectors=2, refusals=lambda _: None)
    if trusted is not None:
        reactor.accept_tls(server_context(trusted), enforcing=True)
    sockets = [boss.bind("127.0.0.1", 0, send_bytes=1 << 16) for _ in range(2)]
    for sock in sockets:
        boss.listen_on(sock, 64)
    routes = [Route(GetMaxOffset, echo, "admin")]
    async with trio.open_nursery() as nursery:
        listeners = [
            Listener("lines", sockets[0], LineServing()),
            Listener("broker", sockets[1], routes),
        ]
        await nursery.start(reactor.run, listeners)
        server = Running(reactor, [sock.getsockname()[1] for sock in sockets], trusted)
        with server.clients:
            yield server
        nursery.cancel_scope.cancel()


# ── over sockets ──


@pytest.mark.trio
async def test_lines_are_answered_beside_requests(trusted: Certificate | None) -> None:
    async with running(trusted) as server:
        peer = await server.peer()
        lines = [b"line %d" % number for number in range(3_000)]
        await trio.to_thread.run_sync(peer.say, *lines)
        heard = [await trio.to_thread.run_sync(peer.hear) for _ in lines]
        assert heard == lines
        client = await trio.to_thread.run_sync(server.connect, server.remoting)
        client.send_bytes(frame_of(7, b"body"))
        answer = await trio.to_thread.run_sync(client.hear)
        assert (answer.ext["offset"], answer.body) == ("7", b"body")
        assert server.reactor.stats.connections == len(server.reactor.connections) == 2
        assert [channel.listener for channel in server.channels] == ["lines"]


@pytest.mark.trio
async def test_a_line_may_come_in_any_parts(trusted: Certificate | None) -> None:
    async with running(trusted) as server:
        peer = await server.peer()
        for part in (b"o", b"ne\ntw", b"o\n", b"three\n"):
            peer.raw.send_bytes(part)
            await wait_all_tasks_blocked(0.01)
        heard = [await trio.to_thread.run_sync(peer.hear) for _ in range(3)]
        assert heard == [b"one", b"two", b"three"]


@pytest.mark.trio
async def test_an_answer_is_made_as_fast_as_its_peer_reads(trusted: Certificate | None) -> None:
    size = 8 << 20  # more than the kernel keeps
    limits = LIMITS._replace(high_water_bytes=1, low_water_bytes=0)
    async with running(trusted, limits) as server:
        peer = await server.peer()
        peer.say(b"answer %d" % size, b"behind it")
        with trio.fail_after(20):
            while not (server.channels and server.channels[0].paused):
                await wait_all_tasks_blocked(0.01)
        [channel] = server.channels
        assert channel.wanted > 0
        assert channel.unsent <= 2 * PART
        assert await trio.to_thread.run_sync(peer.hear) == b"x" * size
        assert await trio.to_thread.run_sync(peer.hear) == b"behind it"
        assert {"crowded", "drained"} == set(channel.told)


@pytest.mark.trio
async def test_an_address_has_so_many_places_whatever_it_speaks(
    trusted: Certificate | None,
) -> None:
    async with running(trusted, LIMITS._replace(connections_of_address=2)) as server:
        client = await trio.to_thread.run_sync(server.connect, server.remoting)
        client.send_bytes(frame_of(1, b""))
        await trio.to_thread.run_sync(client.hear)
        first, more = await server.peer(), b"more"
        first.say(more)
        assert await trio.to_thread.run_sync(first.hear) == more
        with socket.create_connection(server.lines.split(":")) as third:  # type: ignore[arg-type]  # a pair of texts
            third.settimeout(10)
            assert await trio.to_thread.run_sync(third.recv, 1) == b""
        assert server.reactor.stats.connections_refused == 1


# ── one channel without a loop ──


def lines_of(
    stage: Stage, serving: LineServing | None = None, takes: Iterable[int] = ()
) -> tuple[LineChannel, TrickleSocket]:
    sock: Any = TrickleSocket(30_000 + stage.reactor.stats.connections_opened, takes)
    address = ("127.0.0.1", 50_000)
    return stage.selector.adopt(sock, address, "lines", serving or LineServing()), sock


def test_a_peer_with_many_lines_takes_no_turn_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = HandTime(monkeypatch)
    monkeypatch.setattr(line_serving, "monotonic", time)
    stage = Stage()
    (busy, many), (_, few) = lines_of(stage), lines_of(stage)
    many.incoming += b"again\n" * 200
    few.incoming += b"once\n"
    time.per_look = 0.0001
    stage.rounds(stage.poll(many, few))
    assert few.taken == b"once\n"
    assert 0 < len(busy.left) < 200
    assert busy.inbound == sum(map(len, busy.left)) == stage.reactor.shared.inbound.total
    while stage.round(many):
        pass
    assert many.taken == b"again\n" * 200
    assert busy.inbound == 0


def test_what_is_not_read_is_bounded_and_goes_on_where_it_stopped() -> None:
    stage = Stage(limits=LIMITS._replace(high_water_bytes=500, low_water_bytes=100))
    channel, sock = lines_of(stage, takes=[400, 0, 0, 550])
    sock.incoming += b"answer 5000\nnext\n"
    stage.round(sock)
    assert channel.paused
    assert (channel.unsent, channel.wanted) == (600, 4_000)
    assert channel.told == ["crowded"]
    while stage.round(sock):
        pass
    assert sock.taken == b"x" * 5_000 + b"\nnext\n"
    assert channel.told[-1] == "drained"
    assert stage.reactor.shared.outbound.left == {}


def test_a_peer_that_waits_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    time = HandTime(monkeypatch)
    monkeypatch.setattr(line_serving, "monotonic", time)
    stage = Stage()
    (waits, waiting), (idle, _) = lines_of(stage), lines_of(stage)
    waiting.incoming += b"wait\n"
    stage.rounds(stage.poll(waiting))
    time.now += LIMITS.idle_s + 1
    list(stage.selector.sweep())
    assert (waits.closed, idle.closed) == (False, True)
    assert idle.told == ["ended"]
    waits.tell()
    stage.reactor.flush()
    assert waiting.taken == b"waited\n"


def test_who_shows_no_account_has_another_budget_and_little_time() -> None:
    stage = Stage()
    stage.reactor.guard(lambda *_: None, lambda *_: True)
    shared = stage.reactor.shared
    (known, said), (unknown, silent) = lines_of(stage), lines_of(stage)
    said.incoming += b"I am alice\n"
    silent.incoming += b"some line\nand the beginning of"
    stage.rounds(stage.poll(said, silent))
    assert (known.budget, unknown.budget) == (shared.inbound, shared.unauthenticated)
    assert unknown.inbound == len(b"and the beginning of")
    limits = ConnectionLimits(shared)
    list(limits.close_late(known.last_active + LIMITS.first_request_s + 1))
    assert (known.closed, unknown.closed) == (False, True)
    assert shared.unauthenticated is not None
    assert shared.unauthenticated.total == 0
    assert known.accounts == frozenset({"alice"})
    assert stage.reactor.stats.connections_late == 1


def test_with_too_many_bytes_kept_only_the_nearest_to_its_end_is_read() -> None:
    stage = Stage(limits=LIMITS._replace(inbound_bytes=1_000))
    (long, more), (short, less) = lines_of(stage), lines_of(stage)
    more.incoming += b"a" * 800
    less.incoming += b"b" * 400
    stage.rounds(stage.poll(more, less))
    assert (long.starved, short.starved) == (False, True)
    assert not stage.interest(less).read
    more.incoming += b"\n"
    stage.rounds(stage.poll(more))
    assert stage.interest(less).read
    less.incoming += b"\n"
    stage.rounds(stage.poll(less))
    assert more.taken == b"a" * 800 + b"\n"
    assert less.taken == b"b" * 400 + b"\n"
