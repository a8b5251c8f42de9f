"""Rounds: what is read, served and sent, in which order, and when a socket is left alone."""

from __future__ import annotations

import errno
import select
import socket
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from aerobee.remoting.errors import RequestPostponed
from aerobee.remoting.server import boss, turns
from aerobee.remoting.server import selector as selector_module
from aerobee.remoting.server.outbound import unacknowledged_bytes
from aerobee.remoting.server.poller import READ
from aerobee.remoting.server.pools import Pool
from aerobee.remoting.server.route_table import resolve
from aerobee.remoting.server.routes import Route
from aerobee.remoting.server.selector import RECEIVE_BYTES, ROUND_S, SWEPT_TOGETHER
from aerobee.remoting.server.states import Event, Input
from aerobee.remoting.server.turns import TURN_S
from aerobee.remoting.server.worker import Worker
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.headers.offset import GetMaxOffset
from tests.kit.raw_client import request_frame
from tests.kit.waiting import eventually
from tests.remoting.server import stage as stage_module
from tests.remoting.server.stage import (
    LIMITS,
    HandTime,
    Interest,
    Stage,
    TrickleSocket,
    bodies,
    frame_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.routes import Steps

MAX_OFFSET = int(RequestCode.GET_MAX_OFFSET)
MAX_ROUNDS = 5_000


def frame(number: int, body: bytes = b"") -> bytes:
    return request_frame(MAX_OFFSET, number, {"topic": "t", "queueId": number}, body)


def run(stage: Stage, sock: TrickleSocket) -> int:
    """Rounds until the poller would wait."""
    for number in range(MAX_ROUNDS):
        if not stage.round(sock):
            return number
    raise AssertionError("the selector spins")


@given(
    st.lists(st.integers(0, 900), min_size=1, max_size=25),
    st.lists(st.integers(0, 3_000), max_size=30),
)
def test_any_peer_gets_all_answers_in_order_and_is_then_only_read(
    sizes: list[int], takes: list[int]
) -> None:
    sent = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    stage = Stage(limits=LIMITS._replace(high_water_bytes=600, low_water_bytes=200))
    connection, sock = stage.connect(takes)
    sock.incoming += b"".join(frame(number + 1, body) for number, body in enumerate(sent))
    run(stage, sock)
    assert bodies(sock) == sent
    assert stage.interest(sock) == Interest(read=True, write=False)
    assert (connection.unsent, len(connection.left), connection.paused) == (0, 0, False)


def test_a_peer_that_caught_up_wakes_the_selector_no_more() -> None:
    stage = Stage()
    _, sock = stage.connect([0])
    sock.incoming += b"".join(frame(n + 1, b"x" * 900) for n in range(4))
    assert run(stage, sock) < 20
    assert len(bodies(sock)) == 4


def test_it_is_read_again_though_the_poller_named_others_when_it_had_served_what_was_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With more ready sockets than one poll names, a turn comes without an event of the socket."""
    time = HandTime(monkeypatch)
    stage = Stage()
    _, sock = stage.connect([100, 0])
    sock.incoming += b"".join(frame(n + 1, b"x" * 900) for n in range(6))
    stage.round(sock)
    assert stage.interest(sock) == Interest(read=False, write=True)
    time.per_look = ROUND_S / 2
    stage.rounds(stage.poll(sock))
    assert stage.selector.waiting, "its peer has read, and what is left takes more than a turn"
    while stage.selector.waiting:
        stage.rounds([])
    run(stage, sock)
    assert len(bodies(sock)) == 6
    assert stage.interest(sock) == Interest(read=True, write=False)


def test_a_peer_that_takes_nothing_is_not_read_and_what_it_asked_waits() -> None:
    stage = Stage()
    connection, sock = stage.connect([0] * 100)
    sock.incoming += b"".join(frame(n + 1, b"x" * 900) for n in range(20))
    stage.round(sock)
    assert stage.interest(sock) == Interest(read=False, write=True)
    assert LIMITS.high_water_bytes < connection.unsent < 2 * LIMITS.high_water_bytes
    assert len(connection.left) == 17
    for _ in range(20):
        stage.round(sock)
    assert connection.unsent < 2 * LIMITS.high_water_bytes, "nothing is served meanwhile"


def test_answers_of_one_round_leave_in_one_send() -> None:
    stage = Stage()
    _, sock = stage.connect()
    sock.incoming += b"".join(frame(n + 1) for n in range(10))
    stage.round(sock)
    assert sock.sends == 1
    assert len(bodies(sock)) == 10


def test_more_than_one_receive_takes_more_than_one_round() -> None:
    stage = Stage(limits=LIMITS._replace(high_water_bytes=1 << 24))
    _, sock = stage.connect()
    body = b"y" * (RECEIVE_BYTES // 2)
    sock.incoming += b"".join(frame(n + 1, body) for n in range(4))
    assert run(stage, sock) >= 3
    assert bodies(sock) == [body] * 4


def test_whole_frames_before_a_bad_one_are_answered_before_the_close() -> None:
    stage = Stage()
    connection, sock = stage.connect()
    sock.incoming += frame(1, b"good") + b"GET / HTTP/1.1\r\n\r\n"
    stage.round(sock)
    assert bodies(sock) == [b"good"]
    assert connection.closed
    assert sock.closed
    assert stage.reactor.stats.frames_rejected == 1


def test_who_reads_a_little_now_and_then_is_closed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = HandTime(monkeypatch)
    stage = Stage(limits=LIMITS._replace(stall_s=10, least_per_s=100))
    slow, slow_sock = stage.connect([1] * 1_000)
    enough, enough_sock = stage.connect([500] * 1_000)
    reasons = {}
    slow.on_close.append(lambda connection, reason: reasons.update({connection.id: reason}))
    for sock in (slow_sock, enough_sock):
        sock.incoming += frame(1, b"x" * 40_000)
        stage.round(sock)
    list(stage.selector.sweep())
    for _ in range(9):
        time.now += 1
        for sock in (slow_sock, enough_sock):
            stage.round(sock)
        list(stage.selector.sweep())
    assert not slow.closed, "there is time to be late"
    for _ in range(40):
        time.now += 1
        for sock in (slow_sock, enough_sock):
            stage.round(sock)
        list(stage.selector.sweep())
    assert reasons == {slow.id: "peer reads too slowly"}
    assert not enough.closed
    enough_sock.takes = [1] * 1_000
    for _ in range(20):
        time.now += 1
        stage.round(enough_sock)
        list(stage.selector.sweep())
    assert enough.closed, "what it read long ago does not count for ever"


def big(size: int) -> Callable[..., Answer]:
    """A handler whose answers are of this size."""
    return lambda *_: Answer(0, body=b"x" * size)


class Kernel:
    """What a system keeps for a peer: as much as it has room for, until the peer reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.kept: dict[int, int] = {}
        self.room = room
        monkeypatch.setattr(selector_module, "unacknowledged_bytes", self.unacknowledged)

    def unacknowledged(self, sock: Any) -> int:
        return self.kept.get(sock.fileno(), 0)

    def takes(self, sock: TrickleSocket) -> None:
        """Say what the next send takes: as Linux does, nothing while over two thirds are full."""
        room = self.room - self.kept.get(sock.fd, 0)
        sock.takes = [room if 3 * room > self.room else 0, 0, 0]
        self.kept[sock.fd] = self.kept.get(sock.fd, 0) + sock.takes[0]

    def reads(self, sock: TrickleSocket, count: int) -> None:
        self.kept[sock.fd] = max(0, self.kept[sock.fd] - count)


def test_a_peer_is_judged_by_what_it_reads_and_not_by_what_the_kernel_takes_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel keeps megabytes: it takes nothing for long, and then much at once."""
    time, kernel = HandTime(monkeypatch), Kernel(monkeypatch, room=600_000)
    limits = LIMITS._replace(stall_s=10, least_per_s=4_096, high_water_bytes=1 << 20)
    stage = Stage(big(900_000), limits=limits._replace(idle_s=1e9))
    reasons = {}
    rates = {650: "peer reads too slowly", 0: "peer does not read", 5_000: None, 15_000: None}
    readers = {}
    for per_s in rates:
        connection, sock = stage.connect()
        connection.on_close.append(lambda closed, reason: reasons.update({closed.id: reason}))
        readers[per_s] = connection.id, sock
        sock.incoming += frame(1)
        kernel.takes(sock)
        stage.round(sock)
        assert connection.uptake is not None
    began = time.now
    for second in range(120):
        time.now += 1
        for per_s, (_, sock) in readers.items():
            kernel.reads(sock, per_s)
            if not sock.closed:
                kernel.takes(sock)
                stage.round(sock)
        list(stage.selector.sweep())
        if second < 9:
            assert not reasons
    assert time.now - began == 120
    assert reasons == {readers[rate][0]: reason for rate, reason in rates.items() if reason}


def test_a_consumer_that_pauses_is_not_closed_while_nothing_waits_for_it_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the kernel keeps for it is its own affair, for hours: it reads when it wants to."""
    time, kernel = HandTime(monkeypatch), Kernel(monkeypatch, room=600_000)
    limits = LIMITS._replace(stall_s=10, least_per_s=4_096, high_water_bytes=1 << 20)
    stage = Stage(big(700_000), limits=limits._replace(idle_s=1e9))
    connection, sock = stage.connect()
    for pause_s in (1, 15, 3_600):
        # More than the kernel has room for waits here for some seconds only.
        sock.incoming += frame(1)
        kernel.takes(sock)
        stage.round(sock)
        for _ in range(5):
            time.now += 1
            list(stage.selector.sweep())
        assert connection.uptake is not None
        kernel.reads(sock, 600_000)
        kernel.takes(sock)
        stage.round(sock)
        assert connection.unsent == 0
        for _ in range(pause_s):
            time.now += 1
            list(stage.selector.sweep())
        kernel.reads(sock, 600_000)
    assert not connection.closed


def reader_of(stage: Stage, keeps: int) -> tuple[Connection, socket.socket]:
    """A connection over TCP, and the socket of its peer, whose system keeps so much for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, keeps)
        client.connect(listener.getsockname())
        sock, address = listener.accept()
        sock.setblocking(False)
        return stage.selector.adopt(sock, address, "test", stage.worker), client.dup()


def reads_more(connection: Connection, kept: int) -> bool:
    """Whether the kernel keeps less for the peer than it did."""
    return unacknowledged_bytes(connection.sock) < kept


@pytest.mark.parametrize(("per_s", "stays"), [(650, False), (60_000, True)])
def test_a_reader_over_tcp_is_judged_by_its_rate(
    monkeypatch: pytest.MonkeyPatch, per_s: int, stays: bool
) -> None:
    """In one minute by hand, so that the kernel keeps what is more than it would take anew."""
    time = HandTime(monkeypatch)
    limits = LIMITS._replace(stall_s=10, least_per_s=4_096, high_water_bytes=64 << 20)
    stage = Stage(big(16 << 20), limits=limits)
    connection, client = reader_of(stage, keeps=16_384)
    with client:
        client.settimeout(5)
        client.sendall(frame(1))
        assert select.select([connection.sock], [], [], 5)[0]
        stage.rounds([(connection.sock.fileno(), READ)])
        assert connection.uptake is not None
        unsent = connection.unsent
        list(stage.selector.sweep())
        for _ in range(60):
            kept = unacknowledged_bytes(connection.sock)
            for _ in range(per_s // 650):
                client.recv(650)
            if stays:
                # The acknowledgement is under way for a moment.
                eventually(
                    partial(reads_more, connection, kept),
                    within_s=10,
                    what="an acknowledgement",
                    every_s=0.001,
                )
            time.now += 1
            list(stage.selector.sweep())
            if connection.closed:
                break
        assert connection.closed is not stays
        assert time.now - 100 <= (60 if stays else 25)
        if stays:
            assert connection.unsent == unsent, "the kernel has taken nothing in this minute"
        connection.close("the test ends")


def test_beyond_the_budget_who_has_more_than_its_share_is_not_read_and_at_twice_it_is_closed() -> (
    None
):
    limits = LIMITS._replace(high_water_bytes=50_000, low_water_bytes=10_000, outbound_bytes=60_000)
    stage = Stage(limits=limits)
    greedy, greedy_sock = stage.connect([0, 0, 0, 0])
    modest, modest_sock = stage.connect([0] * 10)
    greedy_sock.incoming += frame(1, b"x" * 45_000)
    stage.round(greedy_sock)
    assert stage.interest(greedy_sock).read, "below its own mark, and there is room"
    modest_sock.incoming += frame(1, b"x" * 20_000)
    stage.round(modest_sock)
    stage.round(greedy_sock)
    assert stage.interest(modest_sock).read
    assert not stage.interest(greedy_sock).read, "more than half of the budget"
    assert stage.reactor.stats.unsent_bytes == greedy.unsent + modest.unsent > 60_000
    reasons: list[str] = []
    greedy.on_close.append(lambda connection, reason: reasons.append(reason))
    for number in range(4):
        modest_sock.incoming += frame(number, b"x" * 9_000)
        modest.on(Event.UNSENT_LITTLE)
        stage.selector.round([(modest_sock.fd, 1)])
    for _ in range(4):
        greedy.notify(int(MAX_OFFSET), None, b"x" * 20_000)
        greedy.on(Event.UNSENT_LITTLE)
        stage.reactor.flush()
    assert greedy.closed
    assert reasons == ["it does not read, and there is no room for others"]
    assert not modest.closed
    modest_sock.takes = []
    run(stage, modest_sock)
    assert stage.reactor.stats.unsent_bytes == 0
    assert stage.reactor.shared.outbound.high_water_bytes == limits.high_water_bytes


@pytest.mark.parametrize("error", [errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT])
def test_a_send_that_fails_closes_its_connection_only(error: int) -> None:
    stage = Stage()
    reasons: list[str] = []
    broken, broken_sock = stage.connect()
    broken.on_close.append(lambda connection, reason: reasons.append(reason))
    _, good_sock = stage.connect()
    broken_sock.failure = OSError(error, "gone")
    for sock in (broken_sock, good_sock):
        sock.incoming += frame(1, b"x")
        stage.round(sock)
    assert broken.closed
    assert reasons == ["send failed: gone"]
    assert bodies(good_sock) == [b"x"]
    assert [c.closed for c in stage.selector.connections.values()] == [False]


def test_a_socket_that_cannot_be_watched_leaves_nothing_behind() -> None:
    stage = Stage()
    stage.poller.full = True
    sock: Any = BareSocket(77)
    boss.adopt(sock, ("127.0.0.1", 1), "test", stage.worker, stage.selector)
    assert sock.closed
    assert stage.selector.connections == {}
    list(stage.selector.sweep())


class BareSocket(TrickleSocket):
    """As the listener gives it."""

    def setblocking(self, blocking: bool) -> None:
        assert not blocking

    def setsockopt(self, *option: int) -> None: ...


def test_a_sweep_closes_who_is_idle_and_who_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    time = HandTime(monkeypatch)
    stage = Stage(limits=LIMITS._replace(idle_s=10, stall_s=5))
    reasons: dict[int, str] = {}

    def closed(connection: Any, reason: str) -> None:
        reasons[connection.id] = reason

    idle, _ = stage.connect()
    deaf, deaf_sock = stage.connect([0] * 9)
    alive, _ = stage.connect()
    waiting, _ = stage.connect()
    waiting.held = 1
    for connection in (idle, deaf, alive, waiting):
        connection.on_close.append(closed)
    deaf_sock.incoming += frame(1, b"x")
    stage.round(deaf_sock)
    list(stage.selector.sweep())
    assert reasons == {}
    assert deaf.uptake is not None
    time.now += 5.1
    idle.last_active -= 5
    waiting.last_active -= 300
    list(stage.selector.sweep())
    assert reasons == {idle.id: "idle", deaf.id: "peer does not read"}
    assert not alive.closed
    assert not waiting.closed, "it waits for our answer"


def test_thousands_that_are_idle_at_once_are_closed_a_few_at_a_time() -> None:
    stage = Stage(limits=LIMITS._replace(idle_s=10))
    idle = [stage.connect()[0] for _ in range(5 * SWEPT_TOGETHER)]
    for connection in idle:
        connection.last_active -= 10.1
    closed = []
    for _ in stage.selector.sweep():
        idle[-1].close("left meanwhile")
        closed.append(sum(connection.closed for connection in idle[:-1]))
    assert max(after - before for before, after in pairwise([0, *closed])) <= SWEPT_TOGETHER
    assert not stage.selector.connections


@pytest.mark.trio
async def test_a_stop_closes_thousands_of_connections_in_turns_with_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    connections = [stage.connect()[0] for _ in range(100)]
    now, open_then = 100.0, [len(connections)]

    def took_long(connection: object, reason: str) -> None:
        nonlocal now
        now += TURN_S / 4

    async def never(*, wait: bool) -> None:
        await trio.sleep_forever()

    for connection in connections:
        connection.on_close.append(took_long)
    monkeypatch.setattr(turns, "monotonic", lambda: now)
    monkeypatch.setattr(stage.poller, "ready", never)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.selector.run)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            while open_then[-1]:
                await trio.lowlevel.checkpoint()
                open_then.append(len(stage.selector.connections))
    longest = max(before - after for before, after in pairwise(open_then))
    assert longest <= 2 * 5, "two turns, as tasks run in any order"
    assert all(connection.closed for connection in connections)
    assert not stage.poller.watched


def test_a_flood_of_what_is_no_frame_writes_a_few_lines() -> None:
    stage = Stage()
    with capture_logs() as lines:
        for _ in range(100):
            _, sock = stage.connect()
            sock.incoming += b"GET / HTTP/1.1\r\n\r\n"
            stage.round(sock)
    assert len([line for line in lines if line["event"] == "frame.rejected"]) == 20
    assert stage.reactor.stats.frames_rejected == 100


# ── Turns ──


class Costly:
    """A handler whose requests keep the loop as many milliseconds as their queue id says."""

    def __init__(self, time: HandTime) -> None:
        self.time = time
        self.served: list[bytes] = []

    def __call__(self, header: Any, command: Any, connection: Any) -> Answer:
        self.time.now += header.queue_id / 1_000
        self.served.append(bytes(command.body))
        return Answer(0, body=bytes(command.body))


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> HandTime:
    return HandTime(monkeypatch)


def costly(ms: int, count: int, who: str = "") -> bytes:
    return b"".join(frame_of(ms, f"{who}{number}".encode()) for number in range(count))


def test_what_one_peer_sends_is_served_in_turns_with_others(time: HandTime) -> None:
    handler = Costly(time)
    stage = Stage(handler)
    _, hog = stage.connect()
    _, modest = stage.connect()
    hog.incoming += costly(2, 1_000)
    stage.selector.round(stage.poll(hog))
    began = time.now
    modest.incoming += frame_of(1, b"modest")
    stage.selector.round(stage.poll(hog, modest))
    assert time.now - began <= ROUND_S
    assert bodies(modest) == [b"modest"]


class CostlySocket(TrickleSocket):
    """A socket of a kernel that takes a millisecond for each 100,000 bytes."""

    time: HandTime

    def sendmsg(self, buffers: list[bytes | memoryview]) -> int:
        taken = super().sendmsg(buffers)
        self.time.now += taken / 100_000_000
        return taken


def test_the_time_that_large_answers_take_to_be_sent_is_the_rounds(
    time: HandTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when thousands ask for a list of thousands in the same moment."""
    monkeypatch.setattr(stage_module, "TrickleSocket", CostlySocket)
    monkeypatch.setattr(CostlySocket, "time", time, raising=False)
    list_of_many = bytes(200_000)
    stage = Stage(
        lambda *request: Answer(0, body=list_of_many),
        limits=LIMITS._replace(high_water_bytes=4 << 20),
    )
    peers = [stage.connect()[1] for _ in range(50)]
    for sock in peers:
        sock.incoming += frame(1)
    events = stage.poll(*peers)
    began = time.now
    stage.selector.round(events)
    rounds = 1
    while stage.selector.ready:
        assert time.now - began <= ROUND_S + 0.003
        began = time.now
        stage.selector.go_on()
        rounds += 1
    assert rounds >= 10
    assert all(bodies(sock) == [list_of_many] for sock in peers)
    assert [sock.sends for sock in peers] == [1] * 50


@given(
    st.lists(st.lists(st.integers(0, 15), max_size=12), min_size=1, max_size=6),
    st.integers(0, 2_000),
)
def test_turns_keep_the_order_of_each_peer_and_a_round_keeps_its_time(
    costs: list[list[int]], takes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        time = HandTime(patch)
        stage = Stage(Costly(time))
        socks = [stage.connect([takes, 0])[1] for _ in costs]
        for sock, of_peer in zip(socks, costs, strict=True):
            for number, ms in enumerate(of_peer):
                sock.incoming += frame_of(ms, str(number).encode())
        longest_s = max((ms for of_peer in costs for ms in of_peer), default=0) / 1_000
        while (events := stage.poll(*socks)) or stage.selector.waiting:
            began = time.now
            stage.selector.round(events)
            while stage.selector.ready:
                assert time.now - began <= ROUND_S + longest_s + 1e-9
                began = time.now
                stage.selector.go_on()
        for sock, of_peer in zip(socks, costs, strict=True):
            assert bodies(sock) == [str(number).encode() for number in range(len(of_peer))]
            assert stage.interest(sock) == Interest(read=True, write=False)


def test_a_request_in_steps_gives_way_and_what_its_peer_sent_behind_it_waits(
    time: HandTime,
) -> None:
    served: list[bytes] = []

    def handler(header: Any, command: Any, connection: Any) -> Any:
        body = bytes(command.body)
        if header.queue_id == 0:
            served.append(body)
            return Answer(0, body=body)
        return in_steps(header.queue_id, command)

    def in_steps(count: int, command: Any) -> Steps:
        for _ in range(count):
            time.now += 0.001
            yield
        served.append(bytes(command.body))
        return Answer(0, body=command.body)

    stage = Stage(handler)
    _, slow = stage.connect()
    _, other = stage.connect()
    slow.incoming += frame_of(100, b"long") + frame_of(0, b"behind")
    stage.rounds(stage.poll(slow))
    other.incoming += frame_of(0, b"other")
    slow.incoming += frame_of(0, b"later")
    while (events := stage.poll(slow, other)) or stage.selector.waiting:
        stage.rounds(events)
    assert served == [b"other", b"long", b"behind", b"later"]
    assert bodies(slow) == [b"long", b"behind", b"later"]


def test_nothing_is_kept_of_steps_that_end_with_the_first_one(time: HandTime) -> None:
    kept: list[tuple[Any, Input]] = []

    def handler(header: Any, command: Any, connection: Any) -> Steps:
        for _ in range(header.queue_id):
            yield
        kept.append((connection.current, connection.state.input))
        return Answer(0, body=bytes(command.body))

    stage = Stage(handler)
    connection, sock = stage.connect()
    sock.incoming += frame_of(0, b"one step") + frame_of(1, b"two steps")
    stage.round(sock)
    assert bodies(sock) == [b"one step", b"two steps"]
    (first, first_state), (second, second_state) = kept
    assert (first, first_state) == (None, Input.READING)
    assert second is not None
    assert second_state is Input.STEPS
    assert connection.current is None


@pytest.mark.parametrize("in_steps", [False, True])
def test_a_postponed_request_is_served_again_before_what_its_peer_sent_behind_it(
    time: HandTime, in_steps: bool
) -> None:
    ready = False
    served: list[bytes] = []

    def handler(header: Any, command: Any, connection: Any) -> Any:
        return steps(header, command) if in_steps else at_once(header, command)

    def steps(header: Any, command: Any) -> Steps:
        for _ in range(20):
            time.now += 0.001
            yield
        return at_once(header, command)

    def at_once(header: Any, command: Any) -> Answer:
        if header.queue_id and not ready:
            raise RequestPostponed
        served.append(bytes(command.body))
        return Answer(0, body=served[-1])

    def run() -> None:
        while (events := stage.poll(sock, other)) or stage.selector.waiting:
            stage.rounds(events)

    stage = Stage(handler)
    connection, sock = stage.connect()
    _, other = stage.connect()
    sock.incoming += frame_of(1, b"postponed") + frame_of(0, b"behind")
    run()
    assert served == []
    assert stage.interest(sock) == Interest(read=False, write=False)
    other.incoming += frame_of(0, b"other")
    sock.incoming += frame_of(0, b"later")
    run()
    stage.reactor.resume()
    run()
    assert served == [b"other"], "it was not ready yet"
    time.now += 1
    ready = True
    stage.reactor.resume()
    run()
    assert served == [b"other", b"postponed", b"behind", b"later"]
    assert bodies(sock) == served[1:]
    assert stage.interest(sock) == Interest(read=True, write=False)
    assert not stage.reactor.shared.long_requests.held
    ready = False
    sock.incoming += frame_of(1, b"never")
    run()
    connection.close("gone")
    stage.reactor.resume()
    run()
    assert len(served) == 4


@pytest.mark.parametrize("closes", [False, True])
def test_steps_that_fail_are_answered_and_end_with_their_connection(
    time: HandTime, closes: bool
) -> None:
    def handler(header: Any, command: Any, connection: Any) -> Iterator[None]:
        for _ in range(20):
            time.now += 0.001
            yield
        raise ZeroDivisionError("a fault of ours")

    stage = Stage(handler)
    connection, sock = stage.connect()
    sock.incoming += frame_of(1, b"")
    stage.round(sock)
    if closes:
        connection.close("gone")
    while stage.selector.waiting:
        stage.rounds([])
    assert stage.reactor.stats.requests_failed == (not closes)
    assert bool(sock.taken) is not closes


def postponed(ready: list[bool], connection: Any, command: Any) -> Any:
    if not ready:
        raise RequestPostponed
    return Answer(0, body=bytes(command.body))


def stepped(_: list[bool], connection: Any, command: Any) -> Any:
    def steps() -> Steps:
        yield
        return Answer(0, body=bytes(command.body))

    return steps()


@pytest.mark.parametrize("serve", [postponed, stepped])
def test_a_request_with_bytes_behind_it_in_the_stage_joins_no_run(
    serve: Callable[..., Any], time: HandTime
) -> None:
    """Its connection has something left already: its handler could not leave it waiting."""
    ready: list[bool] = []
    answers: list[Callable[..., Any]] = []

    def handler(header: Any, command: Any, connection: Any) -> Any:
        if not answers:
            return Answer(0, body=bytes(command.body))
        return serve(ready, connection, command)

    stage = Stage()
    routes = resolve([Route(GetMaxOffset, handler, "admin", lambda _: 0)], stage.reactor.pools)
    nursery: Any = None
    worker = Worker(routes, lambda _: None, nursery, stage.reactor.shared)
    peers = [stage.connect_tls(worker) for _ in range(2)]
    for _, sock in peers:
        # The first request of a connection joins no run.
        sock.incoming += frame_of(0, b"first")
        stage.rounds([(sock.fd, READ)])
    answers.append(serve)
    request = frame_of(0, b"x" * 1_000)
    for _, sock in peers:
        sock.record = len(request) + 10
        sock.incoming += request + request
    stage.rounds([(sock.fd, READ) for _, sock in peers])
    ready.append(True)
    for connection, sock in peers:
        if connection.postponed:
            connection.resume(time.now)
        for _ in range(20):
            if not stage.round(sock):
                break
        assert bodies(sock) == [b"first", b"x" * 1_000, b"x" * 1_000]


def test_a_peer_that_resets_while_the_stage_holds_its_bytes_is_closed_though_none_is_read() -> None:
    stage = Stage(limits=LIMITS._replace(inbound_bytes=10_000))
    _, first = stage.connect_tls()
    first.incoming += frame_of(0, b"x" * 30_000)[:20_000]
    stage.rounds([(first.fd, READ)])
    connection, sock = stage.connect_tls()
    sock.record = 500
    sock.incoming += frame_of(0, b"y" * 2_000)[:1_000]
    stage.rounds([(sock.fd, READ)])
    assert connection.starved
    assert sock.pending
    sock.reset = True
    for _ in range(3):
        stage.rounds([(sock.fd, READ)])
    assert connection.closed


def test_sockets_that_a_round_did_not_come_to_are_the_first_of_the_next(time: HandTime) -> None:
    handler = Costly(time)
    stage = Stage(handler)
    peers = [stage.connect()[1] for _ in range(12)]
    for number, sock in enumerate(peers):
        sock.incoming += costly(3, 3, who=f"{number}-")
    stage.rounds(stage.poll(*peers))
    assert handler.served == [f"{number}-0".encode() for number in range(12)]


def test_what_waited_for_its_turn_is_as_old_as_it_is(time: HandTime) -> None:
    pool = Pool("admin", width=1, capacity=100, max_wait_ms=200)
    handler = Costly(time)
    stage = Stage(handler, pool=pool)
    _, sock = stage.connect()
    sock.incoming += costly(20, 15)
    run(stage, sock)
    assert len(handler.served) == 11
    assert pool.timed_out == 4


def test_what_waited_for_its_peer_to_read_is_not_old(time: HandTime) -> None:
    pool = Pool("admin", width=1, capacity=100, max_wait_ms=200)
    handler = Costly(time)
    stage = Stage(handler, pool=pool)
    _, sock = stage.connect([0, 0, 0])
    sock.incoming += b"".join(frame_of(0, bytes(900)) for _ in range(10))
    stage.round(sock)
    time.now += 5
    run(stage, sock)
    assert (len(handler.served), pool.timed_out) == (10, 0)


def test_bad_bytes_close_after_the_turns_of_what_came_before_them(time: HandTime) -> None:
    stage = Stage(Costly(time))
    connection, sock = stage.connect()
    sock.incoming += costly(10, 5) + b"GET / HTTP/1.1\r\n\r\n"
    stage.round(sock)
    assert not connection.closed
    run(stage, sock)
    assert bodies(sock) == [b"0", b"1", b"2", b"3", b"4"]
    assert connection.closed
