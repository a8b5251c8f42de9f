"""The async channel against a real socket, on asyncio and on trio."""

from __future__ import annotations

import socket
import threading
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio
import pytest
from anyio.to_thread import run_sync

from aerobee.remoting.client import async_channel as module
from aerobee.remoting.client.async_channel import AsyncChannel
from aerobee.remoting.errors import CallTimedOut, ChannelClosed, ConnectFailed, FrameError
from aerobee.remoting.wire.codes import Encoding
from aerobee.remoting.wire.headers.client import NotifyConsumerIdsChanged
from aerobee.remoting.wire.headers.namesrv import GetBrokerClusterInfo, GetRouteInfo
from tests.kit.raw_client import request_frame
from tests.remoting.client.peer import Peer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from aerobee.remoting.wire.command import Command

pytestmark = pytest.mark.anyio

T = TypeVar("T")
CLUSTER = GetBrokerClusterInfo()
ONEWAY = 2
LONG_S = 60.0
MiB = 1 << 20


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as peer:
        yield peer


@pytest.fixture
def slow_peer() -> Iterator[Peer]:
    """One whose system takes little before it reads."""
    with Peer(receive_buffer=16_384) as peer:
        yield peer


@asynccontextmanager
async def connected(peer: Peer, encoding: int = Encoding.JSON) -> AsyncIterator[AsyncChannel]:
    async with anyio.create_task_group() as group:
        channel = await AsyncChannel.connect(peer.address, 5.0, group, encoding=encoding)
        try:
            yield channel
        finally:
            await channel.aclose()


async def play(step: Callable[..., T], *args: object, **ext: str) -> T:
    """The peer's part, in a thread, since it blocks."""
    return await run_sync(partial(step, *args, **ext))


class Calling:
    """A call in a task of its own, and what became of it."""

    def __init__(self, channel: AsyncChannel, topic: str = "T", timeout_s: float = LONG_S) -> None:
        self.channel = channel
        self.header = GetRouteInfo(topic=topic)
        self.timeout_s = timeout_s
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.answer: Command | None = None
        self.error: Exception | None = None

    async def run(self, body: bytes = b"") -> None:
        with self.scope:
            try:
                self.answer = await self.channel.call(self.header, body, self.timeout_s)
            except (CallTimedOut, ChannelClosed) as error:
                self.error = error
        self.ended.set()

    async def body(self) -> bytes:
        await self.ended.wait()
        assert self.answer is not None, self.error
        assert type(self.answer.body) is bytes
        return self.answer.body


async def test_answers_in_any_order_reach_their_callers(peer: Peer) -> None:
    async with connected(peer) as channel, anyio.create_task_group() as group:
        callings = [Calling(channel, f"T{number}") for number in range(10)]
        for calling in callings:
            group.start_soon(calling.run)
        heard = [await play(peer.hear) for _ in callings]
        for plain in reversed(heard):
            await play(peer.answer, plain.opaque, plain.ext["topic"].encode())
        assert [await calling.body() for calling in callings] == [
            calling.header.topic.encode() for calling in callings
        ]


async def test_a_cancelled_call_cannot_shift_the_answers_of_later_ones(peer: Peer) -> None:
    async with connected(peer) as channel, anyio.create_task_group() as group:
        first, second = Calling(channel), Calling(channel)
        group.start_soon(first.run)
        cancelled = await play(peer.hear)
        first.scope.cancel()
        await first.ended.wait()
        group.start_soon(second.run)
        wanted = await play(peer.hear)
        await play(peer.answer, cancelled.opaque, b"late")
        await play(peer.answer, wanted.opaque, b"right")
        assert await second.body() == b"right"
        assert first.answer is None


async def test_a_connection_on_which_nothing_arrives_is_closed_by_who_times_out(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.1)
    async with connected(peer) as channel, anyio.create_task_group() as group:
        other = Calling(channel)
        group.start_soon(other.run)
        with pytest.raises(CallTimedOut, match=r"within 0\.1 s"):
            await channel.call(CLUSTER, b"", 0.1)
        await other.ended.wait()
        assert isinstance(other.error, ChannelClosed)
        assert str(other.error) == f"{peer.address}: nothing arrived for 0.1 s"
        assert channel.closed


async def test_a_late_call_leaves_a_connection_on_which_something_arrives(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.1)
    async with connected(peer) as channel, anyio.create_task_group() as group:
        other, late = Calling(channel), Calling(channel, timeout_s=0.3)
        group.start_soon(other.run)
        asked = await play(peer.hear)
        group.start_soon(late.run)
        await play(peer.hear)
        await play(peer.answer, asked.opaque, b"busy")
        assert await other.body() == b"busy"
        await late.ended.wait()
        assert isinstance(late.error, CallTimedOut)
        assert not channel.closed


async def test_what_came_while_the_loop_was_blocked_is_no_silence(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.1)
    async with connected(peer) as channel, anyio.create_task_group() as group:
        calling = Calling(channel, timeout_s=0.3)
        group.start_soon(calling.run)
        plain = await play(peer.hear)
        peer.answer(plain.opaque, b"early")
        threading.Event().wait(0.5)
        await calling.ended.wait()
        assert not channel.closed


async def test_a_call_that_is_cancelled_before_it_began_leaves_the_connection_usable(
    peer: Peer,
) -> None:
    async with connected(peer) as channel, anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await channel.call(CLUSTER, b"", LONG_S)
        calling = Calling(channel)
        group.start_soon(calling.run)
        while (plain := await play(peer.hear)).code == CLUSTER.code:
            await play(peer.answer, plain.opaque, b"late")
        await play(peer.answer, plain.opaque, b"right")
        assert await calling.body() == b"right"


async def test_a_call_that_is_late_says_who_was_silent_and_the_connection_stays(
    peer: Peer,
) -> None:
    async with connected(peer) as channel, anyio.create_task_group() as group:
        with pytest.raises(CallTimedOut, match=rf"{peer.address} .* request 106 within 0\.05 s"):
            await channel.call(CLUSTER, b"", 0.05)
        late = await play(peer.hear)
        await play(peer.answer, late.opaque, b"late")
        calling = Calling(channel)
        group.start_soon(calling.run)
        await play(peer.answer, (await play(peer.hear)).opaque, b"right")
        assert await calling.body() == b"right"
        assert not channel.closed


async def test_one_way_requests_leave_in_order_and_wait_for_nothing(peer: Peer) -> None:
    async with connected(peer) as channel:
        for topic in ("A", "B"):
            await channel.oneway(GetRouteInfo(topic=topic), b"x")
        heard = [await play(peer.hear) for _ in range(2)]
        assert [(plain.ext["topic"], plain.flag) for plain in heard] == [("A", 2), ("B", 2)]


async def test_frames_of_many_tasks_do_not_mix(slow_peer: Peer) -> None:
    bodies = {f"T{number}": bytes([number]) * 300_000 for number in range(20)}
    async with connected(slow_peer) as channel, anyio.create_task_group() as group:
        callings = [Calling(channel, topic) for topic in bodies]
        for calling in callings:
            group.start_soon(calling.run, bodies[calling.header.topic])
        for _ in bodies:
            plain = await play(slow_peer.hear)
            assert plain.body == bodies[plain.ext["topic"]]
            await play(slow_peer.answer, plain.opaque, plain.ext["topic"].encode())
        for calling in callings:
            assert await calling.body() == calling.header.topic.encode()


async def test_a_call_cancelled_in_the_middle_of_its_frame_cuts_nothing(slow_peer: Peer) -> None:
    async with connected(slow_peer) as channel, anyio.create_task_group() as group:
        first, second = Calling(channel), Calling(channel)
        group.start_soon(first.run, bytes(8 * MiB))
        started = await play(slow_peer.talk.recv, 4, socket.MSG_PEEK)
        assert len(started) == 4
        first.scope.cancel()
        await first.ended.wait()
        group.start_soon(second.run)
        assert len((await play(slow_peer.hear)).body) == 8 * MiB
        await play(slow_peer.answer, (await play(slow_peer.hear)).opaque, b"right")
        assert await second.body() == b"right"


async def test_a_peer_that_reads_nothing_makes_requests_wait_and_time_out(
    slow_peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNSENT_BYTES", 1000)
    async with connected(slow_peer) as channel, anyio.create_task_group() as group:
        big = Calling(channel)
        group.start_soon(big.run, bytes(15 * MiB))
        await play(slow_peer.talk.recv, 4, socket.MSG_PEEK)
        with pytest.raises(CallTimedOut):
            await channel.call(CLUSTER, b"", 0.05)
        await play(slow_peer.answer, (await play(slow_peer.hear)).opaque, b"right")
        assert await big.body() == b"right"
        await channel.oneway(GetRouteInfo(topic="next"))
        assert (await play(slow_peer.hear)).ext == {"topic": "next"}


async def test_a_peer_that_takes_nothing_for_too_long_is_left(
    slow_peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALL_S", 0.05)
    async with connected(slow_peer) as channel:
        with pytest.raises(ChannelClosed, match=r"took nothing for 0\.05 s"):
            await channel.oneway(CLUSTER, bytes(15 * MiB))
        assert channel.closed


async def test_a_request_longer_than_peers_take_is_refused_and_the_connection_stays(
    peer: Peer,
) -> None:
    async with connected(peer) as channel:
        with pytest.raises(FrameError):
            await channel.call(CLUSTER, bytes(16 * MiB))
        await channel.oneway(CLUSTER)
        assert (await play(peer.hear)).code == CLUSTER.code


async def test_the_longest_answer_arrives_whole(peer: Peer) -> None:
    async with connected(peer) as channel, anyio.create_task_group() as group:
        calling = Calling(channel)
        group.start_soon(calling.run)
        body = bytes(range(256)) * 65_000
        await play(peer.answer, (await play(peer.hear)).opaque, body)
        assert await calling.body() == body


# ── Requests of the server ──


async def test_requests_of_the_server_are_served_while_calls_wait(peer: Peer) -> None:
    groups: list[str] = []

    def serve(request: Command) -> int:
        groups.append(request.header(NotifyConsumerIdsChanged).consumer_group)
        return 0

    async with connected(peer) as channel, anyio.create_task_group() as group:
        channel.on_request = serve
        calling = Calling(channel)
        group.start_soon(calling.run)
        asked = await play(peer.hear)
        await play(peer.say, request_frame(40, asked.opaque, {"consumerGroup": "one"}))
        plain = await play(peer.hear)
        assert (plain.code, plain.opaque, plain.flag) == (0, asked.opaque, 1)
        silent = request_frame(40, 2, {"consumerGroup": "two"}, flag=ONEWAY)
        await play(peer.say, silent + request_frame(40, 3, {}))
        assert "consumerGroup" in str((await play(peer.hear)).remark)
        assert groups == ["one", "two"]
        await play(peer.answer, asked.opaque, b"right")
        assert await calling.body() == b"right"


async def test_requests_that_nobody_serves_are_told_so(peer: Peer) -> None:
    async with connected(peer):
        await play(peer.say, request_frame(40, 1, {}, flag=ONEWAY) + request_frame(307, 2, {}))
        plain = await play(peer.hear)
        assert (plain.code, plain.opaque) == (3, 2)


async def test_a_bug_in_serving_ends_the_task_group(peer: Peer) -> None:
    def serve(request: Command) -> int:
        raise ZeroDivisionError

    async def run() -> None:
        async with connected(peer) as channel:
            channel.on_request = serve
            await play(peer.say, request_frame(40, 1, {}))
            await channel.call(CLUSTER, b"", LONG_S)

    with pytest.raises(ExceptionGroup) as raised:
        await run()
    assert raised.group_contains(ZeroDivisionError)


async def test_a_peer_that_asks_but_does_not_read_is_left(
    slow_peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNSENT_BYTES", 1000)
    async with connected(slow_peer) as channel, anyio.create_task_group() as group:
        calling = Calling(channel)
        group.start_soon(calling.run, bytes(15 * MiB))
        await play(slow_peer.talk.recv, 4, socket.MSG_PEEK)
        await play(slow_peer.say, request_frame(307, 1, {}))
        await calling.ended.wait()
        assert "does not read" in str(calling.error)


# ── MSGPACK ──


async def test_msgpack_headers_begin_when_the_peer_grants_them(peer: Peer) -> None:
    async with connected(peer, Encoding.MSGPACK) as channel, anyio.create_task_group() as group:
        first, second = Calling(channel), Calling(channel)
        group.start_soon(first.run)
        offer = await play(peer.hear)
        assert offer.ext == {"topic": "T", "aeroSer": "2"}
        await play(peer.answer, offer.opaque, b"first", aeroSer="2")
        assert await first.body() == b"first"
        group.start_soon(second.run)
        assert (await play(peer.hear_frame))[4] == Encoding.MSGPACK
        # [code, flag, opaque] with the answer's bit, opaque 2
        await play(peer.say, bytes.fromhex("0000000d 02000004 93000102") + b"right")
        assert await second.body() == b"right"


# ── The beginning and the end ──


async def test_a_refused_connection_names_the_address_and_the_reason() -> None:
    with Peer() as gone:
        pass
    async with anyio.create_task_group() as group:
        with pytest.raises(ConnectFailed, match=rf"{gone.address}: .*refused"):
            await AsyncChannel.connect(gone.address, 5.0, group)


async def test_a_connection_that_does_not_come_about_in_time_fails(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect_tcp(host: str, port: int) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(anyio, "connect_tcp", connect_tcp)
    async with anyio.create_task_group() as group:
        with pytest.raises(ConnectFailed, match=rf"{peer.address}: no connection within 0\.05 s"):
            await AsyncChannel.connect(peer.address, 0.05, group)


async def test_a_host_name_that_cannot_be_one_fails_to_connect() -> None:
    async with anyio.create_task_group() as group:
        with pytest.raises(ConnectFailed, match=r"^a\.\.b:1"):
            await AsyncChannel.connect("a..b:1", 5.0, group)


async def test_calls_end_when_the_peer_closes(peer: Peer) -> None:
    async with connected(peer) as channel, anyio.create_task_group() as group:
        callings = [Calling(channel), Calling(channel)]
        for calling in callings:
            group.start_soon(calling.run)
        for _ in callings:
            await play(peer.hear)
        peer.close()
        for calling in callings:
            await calling.ended.wait()
            assert str(calling.error) == f"{peer.address}: closed by the peer"
        assert channel.closed
        for again in (channel.call, channel.oneway):
            with pytest.raises(ChannelClosed):
                await again(CLUSTER)


async def test_bytes_that_are_no_frame_close_the_connection(peer: Peer) -> None:
    async with connected(peer) as channel:
        await play(peer.say, b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(ChannelClosed, match="frame of"):
            await channel.call(CLUSTER, b"", LONG_S)
        assert channel.closed


async def test_closing_ends_calls_and_the_peer_sees_it(peer: Peer) -> None:
    async with connected(peer) as channel, anyio.create_task_group() as group:
        calling = Calling(channel)
        group.start_soon(calling.run)
        await play(peer.hear)
        await channel.aclose()
        await channel.aclose()
        await calling.ended.wait()
        assert str(calling.error) == f"{peer.address}: closed by us"
        await play(peer.hear_close)


async def test_a_peer_that_goes_away_answers_what_is_in_flight(peer: Peer) -> None:
    async with connected(peer) as channel, anyio.create_task_group() as group:
        calling = Calling(channel)
        group.start_soon(calling.run)
        heard = await play(peer.hear)
        channel.leave()
        assert not channel.closed
        await play(peer.answer, heard.opaque, b"stored")
        assert await calling.body() == b"stored"
        await play(peer.hear_close)
        assert channel.closed


async def test_cancelling_the_task_group_closes_the_connection(peer: Peer) -> None:
    async with anyio.create_task_group() as group:
        channel = await AsyncChannel.connect(peer.address, 5.0, group)
        await channel.oneway(CLUSTER)
        group.cancel_scope.cancel()
    assert channel.closed
    await play(peer.hear)
    await play(peer.hear_close)
