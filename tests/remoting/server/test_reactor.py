"""The reactor over real sockets: frames in any cut, one bad peer among good ones, limits, stalls.

Every test runs in the clear and through TLS.
"""

from __future__ import annotations

import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trio

from aerobee.remoting.server import boss
from aerobee.remoting.server.connection import Connection
from aerobee.remoting.server.pools import OVERLOAD_REMARK, Pool
from aerobee.remoting.server.reactor import Listener, Reactor
from aerobee.remoting.server.routes import HELD, Route
from aerobee.remoting.server.shared import Limits
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers.offset import GetMaxOffset, GetMinOffset, OffsetResponse
from tests.kit.garbage import no_searches, until_freed
from tests.kit.raw_client import Closed, RawConnection, request_frame
from tests.kit.tls import Certificate, TlsConnection, client_context, server_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aerobee.remoting.wire.command import Command

pytestmark = pytest.mark.trio

MAX_OFFSET = int(RequestCode.GET_MAX_OFFSET)
MIN_OFFSET = int(RequestCode.GET_MIN_OFFSET)
LIMITS = Limits(
    max_frame_bytes=1 << 20,
    max_header_bytes=1 << 16,
    high_water_bytes=1 << 18,
    low_water_bytes=1 << 16,
    idle_s=60,
    stall_s=60,
)


class Refused(Exception):
    """What the handlers below refuse with."""


def refusal(error: Exception) -> Answer | None:
    return Answer(16, remark=str(error)) if isinstance(error, Refused) else None


def echo(header: GetMaxOffset, command: Command, connection: Connection) -> Answer:
    if header.topic == "refused":
        raise Refused("not you")
    if header.topic == "broken":
        raise ZeroDivisionError("a fault of ours")
    return Answer(0, OffsetResponse(offset=header.queue_id), body=bytes(command.body))


class Running:
    """A reactor on a free port."""

    def __init__(self, reactor: Reactor, port: int, trusted: Certificate | None) -> None:
        self.reactor = reactor
        self.address = f"127.0.0.1:{port}"
        self.trusted = trusted

    async def client(self) -> RawConnection:
        if self.trusted is None:
            return await trio.to_thread.run_sync(RawConnection, self.address)
        context = client_context(self.trusted)
        return await trio.to_thread.run_sync(TlsConnection, self.address, context)


class Way(NamedTuple):
    """How the tests reach the reactor."""

    shown: Certificate | None = None


@pytest.fixture(params=["clear", "tls"])
def way(request: pytest.FixtureRequest) -> Way:
    if request.param == "tls":
        return Way(shown=request.getfixturevalue("shown"))
    return Way()


@asynccontextmanager
async def running(
    way: Way,
    handler: Callable[..., Any] = echo,
    *,
    pool: Pool | None = None,
    limits: Limits = LIMITS,
    **options: Any,
) -> AsyncIterator[Running]:
    pools = {"admin": pool or Pool("admin", width=2, capacity=100, max_wait_ms=5000)}
    reactor = Reactor(pools=pools, limits=limits, selectors=2, refusals=refusal, **options)
    if way.shown is not None:
        reactor.accept_tls(server_context(way.shown), enforcing=True)
    routes = (Route(GetMaxOffset, handler, "admin"), Route(GetMinOffset, echo, "admin"))
    sock = boss.listen("127.0.0.1", 0, 64)
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run, [Listener("test", sock, routes)])
        yield Running(reactor, sock.getsockname()[1], way.shown)
        nursery.cancel_scope.cancel()


async def call(client: RawConnection, topic: str = "t", queue_id: object = 7, **more: Any) -> Any:
    ext = {"topic": topic, "queueId": queue_id}
    code = more.pop("code", MAX_OFFSET)
    return await trio.to_thread.run_sync(lambda: client.call(code, ext, **more))


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    return await trio.to_thread.run_sync(function, *arguments)


async def test_a_request_is_answered(way: Way) -> None:
    async with running(way) as server:
        with await server.client() as client:
            answer = await call(client, body=b"hello")
            assert (answer.code, answer.ext["offset"], answer.body) == (0, "7", b"hello")


async def test_frames_cut_anywhere_are_answered_alike(way: Way) -> None:
    frame = request_frame(MAX_OFFSET, 5, {"topic": "t", "queueId": 3}, b"body")
    async with running(way) as server:
        with await server.client() as client:
            for cut in (1, 4, 7, 8, 20, len(frame) - 1):
                client.send_bytes(frame[:cut])
                await trio.testing.wait_all_tasks_blocked(0.01)
                client.send_bytes(frame[cut:])
                answer = await in_thread(client.hear)
                assert (answer.opaque, answer.ext["offset"]) == (5, "3")


async def test_pipelined_requests_are_all_answered(way: Way) -> None:
    frames = [
        request_frame(MAX_OFFSET, number, {"topic": "t", "queueId": number}, b"x" * number)
        for number in range(1, 300)
    ]
    async with running(way) as server:
        with await server.client() as client:
            client.send_bytes(b"".join(frames))
            opaques = [(await in_thread(client.hear)).opaque for _ in frames]
            assert opaques == list(range(1, 300))


async def test_an_unknown_code_is_answered_as_java_does(way: Way) -> None:
    async with running(way) as server:
        with await server.client() as client:
            answer = await call(client, code=9999)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert answer.remark == " request type 9999 not supported"


async def test_a_bad_field_is_named_and_the_connection_stays(way: Way) -> None:
    async with running(way) as server:
        with await server.client() as client:
            answer = await call(client, queue_id="seven")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "queueId" in answer.remark
            assert (await call(client)).code == 0


async def test_a_refusal_and_a_fault_of_ours_become_answers(way: Way) -> None:
    async with running(way) as server:
        with await server.client() as client:
            assert (await call(client, "refused")).code == 16
            broken = await call(client, "broken")
            assert (broken.code, broken.remark) == (1, "ZeroDivisionError: a fault of ours")
            assert server.reactor.stats.requests_failed == 1
            assert (await call(client)).code == 0


each_garbage = pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">II", 1 << 30, 10),
        struct.pack(">II", 20, 2000) + b"x" * 12,
        struct.pack(">II", 12, 9 << 24 | 8) + b"x" * 8,
        struct.pack(">II", 6, 2) + b"{}"[:1] + b"{",
        struct.pack(">iI", -1, 0),
    ],
    ids=["http", "too long", "header beyond frame", "unknown type", "broken json", "negative"],
)


@each_garbage
async def test_garbage_leaves_no_cycle(way: Way, garbage: bytes) -> None:
    """R12: a search may come when its connection is long frozen, and its memory would stay."""
    with no_searches(Connection) as made:
        async with running(way) as server:
            for _ in range(3):
                with await server.client() as bad:
                    bad.send_bytes(garbage)
                    await in_thread(bad.hear_close)
            assert server.reactor.stats.frames_rejected == 3
            await until_freed(made)


@each_garbage
async def test_garbage_closes_its_connection_and_no_other(way: Way, garbage: bytes) -> None:
    async with running(way) as server:
        with await server.client() as good, await server.client() as bad:
            assert (await call(good)).code == 0
            bad.send_bytes(garbage)
            await in_thread(bad.hear_close)
            assert (await call(good)).code == 0
            assert server.reactor.stats.frames_rejected == 1
            assert server.reactor.stats.connections == 1


async def test_a_one_way_request_is_never_answered(way: Way) -> None:
    oneway = request_frame(MAX_OFFSET, 1, {"topic": "refused", "queueId": 1}, b"", flag=2)
    async with running(way) as server:
        with await server.client() as client:
            client.send_bytes(oneway)
            answer = await call(client)
            assert answer.code == 0


async def test_handlers_that_wait_share_a_bounded_pool(way: Way) -> None:
    pool = Pool("admin", width=4, capacity=3, max_wait_ms=5000)
    go = trio.Event()
    active = 0
    most = 0

    async def slow(header: GetMaxOffset, command: Command, connection: Connection) -> Answer:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await go.wait()
        active -= 1
        return Answer(0, body=bytes(command.body))

    async with running(way, slow, pool=pool) as server:
        with await server.client() as client:
            for number in range(5):
                client.send_bytes(
                    request_frame(
                        MAX_OFFSET, number + 1, {"topic": "t", "queueId": 0}, b"%d" % number
                    )
                )
            refused = [await in_thread(client.hear) for _ in range(2)]
            assert {(r.code, r.remark) for r in refused} == {(2, OVERLOAD_REMARK)}
            assert (pool.depth, pool.running, pool.queued) == (3, 2, 1)
            go.set()
            answers = [await in_thread(client.hear) for _ in range(3)]
            assert sorted(a.body for a in answers) == [b"0", b"1", b"2"]
            assert (pool.depth, pool.running, most) == (0, 0, 2)


async def test_a_thousand_slow_requests_of_one_connection_hold_nobody_else_up(way: Way) -> None:
    """Each of them waits until somebody else has been answered."""
    pool = Pool("admin", width=2, capacity=10_000, max_wait_ms=None)
    go = trio.Event()
    order: list[str] = []

    async def slow(header: GetMaxOffset, command: Command, connection: Connection) -> Answer:
        if header.topic == "greedy":
            await go.wait()
        order.append(header.topic)
        return Answer(0)

    async with running(way, slow, pool=pool) as server:
        with await server.client() as greedy, await server.client() as other:
            frames = [
                request_frame(MAX_OFFSET, n + 1, {"topic": "greedy", "queueId": 0})
                for n in range(1_000)
            ]
            await in_thread(greedy.send_bytes, b"".join(frames))
            # Answered behind them, which therefore wait.
            assert (await call(greedy, "other", code=MIN_OFFSET)).code == 0
            assert pool.queued == 999
            with trio.fail_after(10):
                for _ in range(20):
                    assert (await call(other, "other")).code == 0
            assert order == ["other"] * 20
            go.set()
            for _ in range(1_000):
                await in_thread(greedy.hear)


async def test_a_held_request_counts_until_it_is_answered(way: Way) -> None:
    pool = Pool("admin", width=2, capacity=100, max_wait_ms=5000)
    held: list[tuple[Command, Connection]] = []

    def park(header: GetMaxOffset, command: Command, connection: Connection) -> Any:
        held.append((command, connection))
        return HELD

    async with running(way, park, pool=pool) as server:
        with await server.client() as client:
            client.send_bytes(request_frame(MAX_OFFSET, 3, {"topic": "t", "queueId": 0}, b""))
            await call(client, code=MIN_OFFSET)
            assert pool.depth == 1
            command, connection = held.pop()
            connection.answer(command, Answer(0, remark="late"))
            server.reactor.flush()
            assert (await in_thread(client.hear)).remark == "late"
            assert pool.depth == 0


async def test_a_peer_that_does_not_read_is_no_longer_read_and_then_closed(way: Way) -> None:
    body = b"x" * 60_000
    limits = LIMITS._replace(stall_s=0.3)
    async with running(way, limits=limits) as server:
        with await server.client() as good, await server.client() as deaf:
            deaf.socket.settimeout(5)
            frame = request_frame(MAX_OFFSET, 1, {"topic": "t", "queueId": 0}, body)

            def flood() -> None:
                with pytest.raises((Closed, TimeoutError)):  # noqa: PT012  (when it closes is not ours)
                    for _ in range(5000):
                        deaf.send_bytes(frame)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(in_thread, flood)
                for _ in range(20):
                    assert (await call(good)).code == 0
            buffered = max(c.unsent for c in server.reactor.connections)
            assert buffered <= limits.high_water_bytes
            assert server.reactor.stats.connections == 1


async def test_a_slow_reader_gets_every_answer_in_the_end(way: Way) -> None:
    count = 100
    body = b"y" * 50_000
    frames = b"".join(
        request_frame(MAX_OFFSET, n + 1, {"topic": "t", "queueId": n}, body) for n in range(count)
    )
    async with running(way) as server:
        with await server.client() as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(in_thread, client.send_bytes, frames)
                seen = [await in_thread(client.hear) for _ in range(count)]
            assert [answer.opaque for answer in seen] == list(range(1, count + 1))
            assert {len(answer.body) for answer in seen} == {len(body)}


async def test_what_is_left_goes_on_although_another_round_sent_the_last_answer(
    way: Way,
) -> None:
    body = b"z" * 100_000
    count = 60
    frames = b"".join(
        request_frame(MAX_OFFSET, n + 1, {"topic": "t", "queueId": n}, body) for n in range(count)
    )
    async with running(way) as server:
        with await server.client() as client:

            async def flush_from_elsewhere() -> None:
                while True:
                    for connection in server.reactor.connections:
                        connection.write()
                    await trio.lowlevel.checkpoint()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(flush_from_elsewhere)
                nursery.start_soon(in_thread, client.send_bytes, frames)
                with trio.fail_after(20):
                    seen = [await in_thread(client.hear) for _ in range(count)]
                nursery.cancel_scope.cancel()
            assert [answer.opaque for answer in seen] == list(range(1, count + 1))


async def test_an_idle_connection_is_closed(way: Way) -> None:
    async with running(way, limits=LIMITS._replace(idle_s=0.2)) as server:
        with await server.client() as client:
            await in_thread(client.hear_close)
        assert server.reactor.stats.connections == 0


async def test_a_close_is_told_once_and_leaves_nothing(way: Way) -> None:
    told: list[str] = []
    gone = trio.Event()

    def closed(connection: Connection, reason: str) -> None:
        told.append(reason)
        gone.set()

    def connected(connection: Connection) -> None:
        connection.on_close.append(closed)

    async with running(way, connected=connected) as server:
        client = await server.client()
        assert (await call(client)).code == 0
        client.close()
        with trio.fail_after(60):
            await gone.wait()
        assert told == ["closed by peer"]
        assert not server.reactor.connections
