"""Bytes left for a later turn: each request in them is answered once and in order, as if it had
been read when its turn came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.remoting.errors import RequestPostponed
from aerobee.remoting.server import refusals as refusals_module
from aerobee.remoting.server import selector as selector_module
from aerobee.remoting.server.left_bytes import LeftBytes, Piece
from aerobee.remoting.server.poller import READ
from aerobee.remoting.server.pools import Pool
from aerobee.remoting.server.selector import ROUND_S, SHARES
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import decode, encode_request
from aerobee.remoting.wire.frame import FrameDecoder
from aerobee.remoting.wire.headers.offset import GetMaxOffset
from tests.kit.raw_client import request_frame
from tests.remoting.server.stage import LIMITS, HandTime, Interest, Stage
from tests.remoting.server.test_selector import MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.routes import Steps
    from tests.remoting.server.stage import TrickleSocket

SHARE = 512
"""What a turn reads here."""
WAIT_MS = 200
GONE = 90_000
"""Descriptors of no connection."""


PLAIN, LARGE, STEPS, POSTPONED = 1, 2, 3, 4
"""How a request is served: at once, with a large answer, in steps, after it was put off."""


@dataclass
class Sent:
    """One request."""

    body: int
    oneway: bool = False
    unknown: bool = False
    kind: int = PLAIN
    encoding: int = 0

    def frame(self, number: int) -> bytes:
        """Its bytes."""
        code = 9_999 if self.unknown else MAX_OFFSET
        ask = GetMaxOffset(topic="t", queue_id=self.kind)
        body = b"x" * self.body
        return encode_request(code, number, ask, body, encoding=self.encoding, oneway=self.oneway)


class Overloaded:
    """A selector that finds more in a socket than its turn serves, and much too late."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        *,
        max_wait_ms: int | None = WAIT_MS,
        takes: Iterable[int] = (),
    ) -> None:
        patch.setattr(selector_module, "RECEIVE_BYTES", SHARE * SHARES)
        patch.setattr(selector_module, "unread_bytes", lambda sock: len(sock.incoming))
        self.time = HandTime(patch)
        self.served: list[int] = []
        self.put_off: set[int] = set()
        pool = Pool("admin", width=1, capacity=9, max_wait_ms=max_wait_ms)
        self.stage = Stage(self.handle, pool=pool)
        self.stage.poller.waited = False
        self.connection, self.sock = self.stage.connect()
        self.sock.takes = [LIMITS.max_frame_bytes, *takes]
        self.sock.incoming += request_frame(MAX_OFFSET, 1, {"topic": "t", "queueId": 1})
        self.round()
        assert self.heard() == [(1, 0)]

    def round(self) -> bool:
        """One among many sockets that have something; False when nothing is left of this one."""
        self.stage.reactor.resume()
        events = self.stage.poll(self.sock)
        goes_on = bool(events or self.stage.selector.waiting)
        if goes_on:
            others = [(GONE + number, READ) for number in range(SHARES)]
            self.stage.rounds([*events, *others])
        return goes_on

    def handle(self, header: Any, command: Any, connection: Any) -> Answer | Steps:
        opaque = command.opaque
        if header.queue_id == POSTPONED and opaque not in self.put_off:
            self.put_off.add(opaque)
            raise RequestPostponed
        self.served.append(opaque)
        if header.queue_id == STEPS:
            return self.steps()
        return Answer(0, body=b"y" * 900 * (header.queue_id == LARGE))

    def steps(self) -> Steps:
        """Three turns of the connection."""
        for _ in range(3):
            self.time.now += ROUND_S
            yield
        return Answer(0)

    def heard(self) -> list[tuple[int, int]]:
        """Opaque and code of the answers since the last look."""
        found = [decode(*one) for one in FrameDecoder().feed(bytes(self.sock.taken))]
        del self.sock.taken[:]
        return [(one.opaque, one.code) for one in found]


SENDS = st.builds(
    Sent,
    body=st.one_of(st.integers(0, 60), st.just(3 * SHARE)),
    oneway=st.integers(0, 9).map(lambda n: n == 0),
    unknown=st.integers(0, 9).map(lambda n: n == 0),
    kind=st.sampled_from([PLAIN, PLAIN, PLAIN, LARGE, STEPS, POSTPONED]),
    encoding=st.sampled_from([0, 0, 0, 1, 2]),
)


@pytest.mark.trio
@settings(deadline=None, max_examples=60)
@given(
    sends=st.lists(SENDS, min_size=1, max_size=40),
    cuts=st.lists(st.integers(1, 2_000), min_size=1, max_size=20),
    pauses=st.lists(st.sampled_from([0.0, 0.03, 0.15, 0.4]), min_size=1, max_size=20),
    max_wait_ms=st.sampled_from([WAIT_MS, None]),
    takes=st.lists(st.sampled_from([0, 1, 100, 1_000]), max_size=40),
)
async def test_every_request_is_answered_once_and_in_order_however_its_bytes_come(
    sends: list[Sent],
    cuts: list[int],
    pauses: list[float],
    max_wait_ms: int | None,
    takes: list[int],
) -> None:
    """R23."""
    with pytest.MonkeyPatch.context() as patch:
        broker = Overloaded(patch, max_wait_ms=max_wait_ms, takes=takes)
        stream = b"".join(one.frame(number) for number, one in enumerate(sends, 2))
        step = 0
        while stream:
            cut = cuts[step % len(cuts)]
            broker.sock.incoming += stream[:cut]
            stream = stream[cut:]
            broker.time.now += pauses[step % len(pauses)]
            broker.round()
            step += 1
        while broker.round():
            pass
        heard = broker.heard()
        told = [number for number, one in enumerate(sends, 2) if not one.oneway]
        assert [opaque for opaque, _ in heard] == told
        for opaque, code in heard:
            if sends[opaque - 2].unknown:
                assert code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            elif max_wait_ms is None:
                assert code == 0
        late = {opaque for opaque, code in heard if code == ResponseCode.SYSTEM_BUSY}
        assert not late & set(broker.served)
        assert broker.served == sorted(broker.served)
        connection = broker.connection
        assert broker.stage.interest(broker.sock) == Interest(read=True, write=False)
        assert (connection.left_bytes, connection.inbound, connection.decoder.pending_bytes) == (
            None,
            0,
            0,
        )


def flood(broker: Overloaded, count: int) -> None:
    """So many requests, none of which was read for 100 ms."""
    frames = [Sent(40).frame(number) for number in range(2, 2 + count)]
    broker.sock.incoming += b"".join(frames)
    broker.time.now += 0.100
    broker.round()


@pytest.mark.trio
async def test_what_a_turn_does_not_serve_is_read_all_the_same_and_its_age_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Overloaded(monkeypatch)
    flood(broker, 40)
    while broker.sock.incoming:
        broker.round()
    served = len(broker.served)
    assert served < 40, "most of it waits"
    broker.time.now += 0.250
    broker.round()
    assert broker.connection.left_bytes is None
    codes = [code for _, code in broker.heard()]
    assert codes == [0] * (served - 1) + [2] * (41 - served)


@pytest.mark.trio
async def test_all_that_the_socket_has_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R23: what stays in a socket keeps its peer from sending, and nobody knows how old that is."""
    broker = Overloaded(monkeypatch)
    flood(broker, 400)
    assert broker.connection.inbound > 2 * SHARE * SHARES
    assert not broker.sock.incoming


@pytest.mark.trio
async def test_late_requests_behind_the_beginning_of_one_are_refused_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Overloaded(monkeypatch)
    first = Sent(40).frame(10)
    broker.sock.incoming += first[:100]
    broker.round()
    assert broker.connection.decoder.pending_bytes == 100
    rest = [Sent(40).frame(number) for number in range(11, 20)]
    broker.sock.incoming += b"".join([first[100:], *rest])[:-50]
    broker.time.now += 3.0
    while broker.round():
        pass
    told = [decode(*one) for one in FrameDecoder().feed(bytes(broker.sock.taken))]
    assert [one.opaque for one in told] == list(range(10, 19))
    assert [one.code for one in told[:2]] == [ResponseCode.SYSTEM_BUSY] * 2
    assert told[0].remark == told[1].remark, "each was told another time"
    assert broker.connection.decoder.pending_bytes == len(rest[-1]) - 50


@pytest.mark.trio
async def test_a_peer_that_has_sent_its_last_request_is_served_before_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Overloaded(monkeypatch, max_wait_ms=None)
    flood(broker, 40)
    monkeypatch.setattr(type(broker.sock), "recv_into", ends)
    while not broker.connection.closed:
        broker.stage.rounds([(broker.sock.fd, 1)])
    assert broker.served == list(range(1, 42))


def ends(sock: TrickleSocket, buffer: memoryview) -> int:
    """A socket whose peer has shut down."""
    count = min(len(buffer), len(sock.incoming))
    buffer[:count] = sock.incoming[:count]
    del sock.incoming[:count]
    return count


@pytest.mark.trio
async def test_bad_bytes_behind_requests_that_wait_close_their_connection_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Overloaded(monkeypatch, max_wait_ms=None)
    broker.sock.incoming += b"".join(Sent(40).frame(number) for number in range(2, 22))
    broker.sock.incoming += b"\xff" * 2_000
    broker.time.now += 0.100
    while not broker.connection.closed:
        broker.round()
    assert [opaque for opaque, _ in broker.heard()] == list(range(2, 22))


@pytest.mark.trio
async def test_no_more_is_left_than_the_budget_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selector_module, "LEFT_BYTES_MAX", 4 * SHARE)
    broker = Overloaded(monkeypatch, max_wait_ms=None)
    flood(broker, 400)
    kept = 0
    while broker.round():
        kept = max(kept, broker.connection.inbound)
    assert SHARE * SHARES < kept < SHARE * (SHARES + 4), "one read beyond the limit"
    assert len(broker.served) == 401


@pytest.mark.trio
async def test_it_is_left_in_the_socket_when_others_have_used_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Overloaded(monkeypatch, max_wait_ms=None)
    broker.stage.reactor.shared.inbound.total = LIMITS.inbound_bytes // 2
    flood(broker, 100)
    kept = broker.connection.inbound
    assert broker.sock.incoming
    while broker.round():
        pass
    assert kept <= SHARE
    assert len(broker.served) == 101


@pytest.mark.trio
async def test_refusals_are_made_in_turns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """R8, R23: 65,000 small requests that come late took 60 ms in one step."""
    monkeypatch.setattr(refusals_module, "MANY", 10)
    broker = Overloaded(monkeypatch)
    flood(broker, 400)
    while broker.sock.incoming:
        broker.round()
    broker.time.now += 0.250
    broker.heard()
    broker.time.per_look = ROUND_S / 2
    broker.round()
    refused = broker.heard()
    assert 10 <= len(refused) <= 30
    broker.time.per_look = 0.0
    while broker.round():
        pass
    assert len(broker.served) + len(refused) + len(broker.heard()) >= 401
    assert broker.connection.left_bytes is None


@pytest.mark.trio
async def test_what_is_served_takes_no_memory_while_the_rest_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R10: a peer that stops reading with its last request keeps no more than the budget counts."""
    broker = Overloaded(monkeypatch, max_wait_ms=None)
    flood(broker, 100)
    while (left := broker.connection.left_bytes) is not None:
        held = sum(len(piece.data) for piece in left.pieces)
        assert held <= 2 * broker.connection.inbound
        broker.round()
    assert len(broker.served) == 101


def test_a_piece_knows_when_its_bytes_came() -> None:
    piece = Piece(bytes(100), 10.0, 20.0)
    assert [piece.came(at) for at in (0, 50, 100)] == [10.0, 15.0, 20.0]
    assert [piece.before(when) for when in (9.0, 10.0, 15.0, 20.0, 21.0)] == [0, 0, 50, 100, 100]
    piece.at = 40
    piece.drop()
    assert (len(piece.data), piece.at) == (60, 0)
    assert [piece.came(at) for at in (0, 60)] == [14.0, 20.0]
    at_once = Piece(bytes(100), 10.0, 10.0)
    assert [at_once.before(when) for when in (9.9, 10.0)] == [0, 100]


def test_a_long_frame_is_not_copied_from_piece_to_piece() -> None:
    left = LeftBytes()
    whole = Sent(1_000_000).frame(1)
    for at in range(0, len(whole), 100_000):
        left.add(Piece(whole[at : at + 100_000], 1.0, 1.0))
    first = left.first(0.0)
    assert first is not None
    assert len(first.data) == 100_000
    assert left.size == len(whole)


@pytest.mark.trio
async def test_time_in_which_its_peer_did_not_read_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Overloaded(monkeypatch)
    flood(broker, 40)
    broker.round()
    connection: Connection = broker.connection
    broker.time.now += 0.500
    connection.reading.resumed = broker.time.now
    while broker.round():
        pass
    assert broker.served == list(range(1, 42))
