"""One connection: what its first request may say, bytes out, our own requests, header types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped] # ships no types
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from aerobee.remoting.errors import CallTimedOut, ChannelClosed
from aerobee.remoting.server import outbound
from aerobee.remoting.server.addresses import packed_host
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import ONEWAY, Command, answer_head, decode, encode_request
from aerobee.remoting.wire.frame import FrameDecoder
from aerobee.remoting.wire.headers.client import NotifyConsumerIdsChanged
from aerobee.remoting.wire.headers.offset import GetMaxOffset, OffsetResponse
from tests.kit.raw_client import request_frame
from tests.remoting.server.stage import LIMITS, Stage, TrickleSocket
from tests.remoting.server.test_reactor import MAX_OFFSET, Way, call, in_thread, running

if TYPE_CHECKING:
    from collections.abc import Mapping


MANY = {f"field{number}": "x" for number in range(200)}


@pytest.mark.parametrize(
    "ext", [b"[1]", b"5", b'"aeroSer"', b'{"aeroSer":[[2]]}'], ids=lambda ext: ext.decode()
)
@pytest.mark.trio
async def test_a_first_request_with_odd_fields_disturbs_nobody(ext: bytes) -> None:
    header = b'{"code":%d,"flag":0,"opaque":1,"extFields":%b}' % (MAX_OFFSET, ext)
    frame = b"".join(
        (
            (4 + len(header)).to_bytes(4, "big"),
            len(header).to_bytes(4, "big"),
            header,
        )
    )
    async with running(Way()) as server:
        with await server.client() as client, await server.client() as other:
            client.send_bytes(frame)
            assert (await in_thread(client.hear)).code == ResponseCode.SYSTEM_ERROR
            assert (await call(other)).code == 0


@pytest.mark.parametrize(
    "fields", [{"aeroSer": "2"}, {"aeroSer": 2}, MANY], ids=["2", "two", "many"]
)
@pytest.mark.trio
async def test_the_offer_of_msgpack_is_granted_once(fields: Mapping[str, object]) -> None:
    asked = {"topic": "t", "queueId": 1, **fields}
    async with running(Way()) as server:
        with await server.client() as client:
            for opaque, granted in ((1, "2" if "aeroSer" in fields else None), (2, None)):
                client.send_bytes(request_frame(MAX_OFFSET, opaque, asked))
                answer = await in_thread(client.hear)
                assert (answer.code, answer.ext.get("aeroSer")) == (0, granted)


# ── one connection without a loop ──


@pytest.mark.parametrize(
    ("address", "packed"),
    [
        (("127.0.0.1", 10911), "7f000001" "00002a9f"),
        (("255.255.255.255", 65535), "ffffffff" "0000ffff"),
        (("::1", 1, 0, 0), "00" * 15 + "01" "00000001"),
        (("2001:db8::5", 80, 0, 0), "20010db8" + "00" * 11 + "05" "00000050"),
        (("fe80::1%eth0", 1, 0, 2), "fe80" + "00" * 13 + "01" "00000001"),
        (("::ffff:10.0.0.7", 9, 0, 0), "0a000007" "00000009"),
    ],
)  # fmt: skip
@pytest.mark.trio
async def test_a_host_is_its_address_and_a_port_of_four_bytes(
    address: tuple[Any, ...], packed: str
) -> None:
    assert packed_host(address).hex() == packed


Body = bytes | list[bytes]


@given(
    st.lists(
        st.binary(max_size=300) | st.lists(st.binary(min_size=1, max_size=300), max_size=5),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.integers(0, 700), max_size=40),
    st.sampled_from([10, outbound.JOIN_BYTES]),
    st.sampled_from([3, outbound.MAX_VECTORS]),
)
def test_any_peer_gets_every_byte_once_and_in_order(
    bodies: list[Body], takes: list[int], join_bytes: int, vectors: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbound, "JOIN_BYTES", join_bytes)
        patch.setattr(outbound, "MAX_VECTORS", vectors)
        stage = Stage(limits=LIMITS._replace(high_water_bytes=1 << 30))
        connection, sock = stage.connect(takes)
        expected = b""
        for number, body in enumerate(bodies):
            views: Any = body if isinstance(body, bytes) else [memoryview(part) for part in body]
            answer = Answer(0, OffsetResponse(offset=number), None, views)
            command = Command(opaque=number)
            connection.answer(command, answer)
            whole = body if isinstance(body, bytes) else b"".join(body)
            expected += answer_head(command, 0, answer.header, None, len(whole)) + whole
            assert connection.unsent == sum(map(len, connection.out))
            if number % 3 == 0:
                stage.reactor.flush()
                assert connection.unsent == sum(map(len, connection.out))
        stage.reactor.flush()
        for _ in range(1_000):
            assert connection.unsent == sum(map(len, connection.out))
            if not stage.round(sock):
                break
        assert bytes(sock.taken) == expected
        assert connection.unsent == 0


@pytest.mark.trio
async def test_a_one_way_request_and_a_peer_that_left_are_not_answered_but_counted_off() -> None:
    stage = Stage()
    connection, sock = stage.connect()
    for flag, closed in ((ONEWAY, False), (0, True)):
        stage.pool.depth += 1
        if closed:
            connection.close("test")
        connection.answer(Command(flag=flag, pool=stage.pool), Answer(0))
        stage.reactor.flush()
        assert (stage.pool.depth, sock.sends) == (0, 0)


# ── our requests to the peer ──


def heard(sock: TrickleSocket) -> list[Command]:
    return [decode(*frame).detached() for frame in FrameDecoder().feed(bytes(sock.taken))]


def answer_frame(opaque: int, body: bytes = b"") -> bytes:
    return answer_head(Command(opaque=opaque), 0, None, "heard", len(body)) + body


@pytest.mark.parametrize("encoding", [0, 1, 2])
@pytest.mark.trio
async def test_our_requests_are_in_the_type_last_seen_from_the_peer(encoding: int) -> None:
    stage = Stage()
    connection, sock = stage.connect()
    ask = GetMaxOffset(topic="t", queue_id=1)
    sock.incoming += encode_request(MAX_OFFSET, 1, ask, encoding=encoding)
    stage.round(sock)
    sock.taken.clear()
    connection.notify(40, NotifyConsumerIdsChanged(consumer_group="g"))
    stage.reactor.flush()
    (told,) = heard(sock)
    assert (told.encoding, told.code, told.oneway, told.is_response) == (encoding, 40, True, False)
    assert told.header(NotifyConsumerIdsChanged).consumer_group == "g"


@pytest.mark.trio
async def test_a_call_is_answered_by_its_own_opaque_whatever_comes_before(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    connection, sock = stage.connect()
    answers: dict[int, bytes] = {}

    async def ask(number: int) -> None:
        answer = await connection.call(307, None, b"", 10)
        answers[number] = bytes(answer.body)

    for number in range(3):
        nursery.start_soon(ask, number)
        await wait_all_tasks_blocked()
    opaques = [command.opaque for command in heard(sock)]
    assert len(set(opaques)) == 3
    sock.incoming += answer_frame(99_999, b"nobody asked")
    for number in (2, 0, 1):
        sock.incoming += answer_frame(opaques[number], b"%d" % number)
    stage.round(sock)
    # What came in is copied: the next receive overwrites the buffer.
    sock.incoming += answer_frame(99_999, b"x" * 500)
    stage.round(sock)
    await wait_all_tasks_blocked()
    assert answers == {0: b"0", 1: b"1", 2: b"2"}
    assert stage.reactor.stats.requests == 0, "an answer is no request"


@pytest.mark.trio
async def test_a_call_without_an_answer_ends_at_its_time(autojump_clock: MockClock) -> None:
    stage = Stage()
    connection, sock = stage.connect()
    with pytest.raises(CallTimedOut, match="307 within 3 s"):
        await connection.call(307, None, b"", 3)
    assert trio.current_time() == pytest.approx(3, abs=0.01)
    (asked,) = heard(sock)
    sock.incoming += answer_frame(asked.opaque)
    stage.round(sock)
    assert not connection.closed, "a late answer is dropped"


@pytest.mark.trio
async def test_a_peer_that_does_not_read_is_asked_and_told_nothing_more() -> None:
    stage = Stage()
    connection, _ = stage.connect([0] * 10)
    connection.notify(40, None, b"x" * (LIMITS.high_water_bytes + 1))
    stage.reactor.flush()
    unsent = connection.unsent
    connection.notify(40, None, b"x")
    with pytest.raises(CallTimedOut, match="does not read"):
        await connection.call(307, None, b"x" * 1_000, 3)
    assert connection.unsent == unsent
    connection.close("test")


@pytest.mark.trio
async def test_a_call_ends_when_the_peer_goes(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    stage = Stage()
    connection, _ = stage.connect()

    async def ask() -> None:
        with pytest.raises(ChannelClosed):
            await connection.call(307, None, b"", 10)

    began = trio.current_time()
    async with trio.open_nursery() as asking:
        asking.start_soon(ask)
        await trio.sleep(1)
        connection.close("test")
    await ask()
    assert trio.current_time() - began == pytest.approx(1, abs=0.01), "nobody waits for the dead"


@pytest.mark.trio
async def test_a_call_that_cannot_be_sent_ends_at_once(autojump_clock: MockClock) -> None:
    stage = Stage()
    connection, sock = stage.connect()
    sock.failure = BrokenPipeError(32, "gone")
    with pytest.raises(ChannelClosed):
        await connection.call(307, None, b"", 10)
    assert trio.current_time() == pytest.approx(0, abs=0.01)


# ── MSGPACK ──


@pytest.mark.trio
async def test_a_request_in_msgpack_is_answered_in_msgpack_by_position() -> None:
    stage = Stage()
    _, sock = stage.connect()
    ask = GetMaxOffset(topic="t", queue_id=5)
    sock.incoming += encode_request(MAX_OFFSET, 8, ask, b"body", encoding=2)
    stage.round(sock)
    ((encoding, header, body),) = FrameDecoder().feed(bytes(sock.taken))
    assert (encoding, bytes(body)) == (2, b"body")
    code, flag, opaque, ext = msgpack.unpackb(header)[:4]
    assert (code, flag, opaque, ext) == (0, 1, 8, [5])


@pytest.mark.trio
async def test_the_type_of_an_answer_is_that_of_its_request_not_of_the_connection() -> None:
    stage = Stage()
    _, sock = stage.connect()
    ask = GetMaxOffset(topic="t", queue_id=5)
    for opaque, encoding in enumerate([2, 0, 1, 0, 2]):
        sock.incoming += encode_request(MAX_OFFSET, opaque, ask, encoding=encoding)
    while stage.round(sock):
        pass
    assert [(a.encoding, a.opaque) for a in heard(sock)] == [(2, 0), (0, 1), (1, 2), (0, 3), (2, 4)]
