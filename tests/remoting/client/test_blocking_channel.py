"""The blocking channel against a real socket: the test plays the peer, callers have threads."""

from __future__ import annotations

import _thread
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.remoting.client import blocking_channel as module
from aerobee.remoting.client.blocking_channel import BlockingChannel
from aerobee.remoting.errors import (
    CallTimedOut,
    ChannelClosed,
    ConnectFailed,
    FrameError,
    RemotingError,
)
from aerobee.remoting.wire.codes import Encoding
from aerobee.remoting.wire.headers.client import NotifyConsumerIdsChanged
from aerobee.remoting.wire.headers.namesrv import GetBrokerClusterInfo, GetRouteInfo
from tests.kit.raw_client import request_frame
from tests.remoting.client.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.remoting.wire.command import Command

CLUSTER = GetBrokerClusterInfo()
ONEWAY = 2
LONG_S = 60.0
PATIENCE_S = 10.0
SILENT_S = 0.1
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


@pytest.fixture
def channel(peer: Peer) -> Iterator[BlockingChannel]:
    channel = BlockingChannel.connect(peer.address, 5.0)
    yield channel
    channel.close()


@pytest.fixture
def slow_channel(slow_peer: Peer) -> Iterator[BlockingChannel]:
    channel = BlockingChannel.connect(slow_peer.address, 5.0)
    yield channel
    channel.close()


@pytest.fixture
def pool(peer: Peer) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(10) as pool:
        yield pool


class Outcome:
    """What `begin` says, once."""

    def __init__(self) -> None:
        self.said: SimpleQueue[tuple[Command | None, RemotingError | None]] = SimpleQueue()

    def done(self, answer: Command | None, error: RemotingError | None) -> None:
        self.said.put((answer, error))

    def body(self) -> bytes:
        answer, error = self.said.get(timeout=PATIENCE_S)
        assert answer is not None, error
        assert type(answer.body) is bytes
        return answer.body

    def error(self) -> RemotingError:
        answer, error = self.said.get(timeout=PATIENCE_S)
        assert error is not None, answer
        return error


def test_answers_in_any_order_reach_the_threads_that_asked(
    peer: Peer, channel: BlockingChannel, pool: ThreadPoolExecutor
) -> None:
    def call(topic: str) -> bytes:
        return bytes(channel.call(GetRouteInfo(topic=topic), b"", LONG_S).body)

    topics = [f"T{number}" for number in range(10)]
    futures = [pool.submit(call, topic) for topic in topics]
    for plain in reversed([peer.hear() for _ in topics]):
        peer.answer(plain.opaque, plain.ext["topic"].encode())
    assert [future.result(PATIENCE_S) for future in futures] == [t.encode() for t in topics]


def test_a_forgotten_call_cannot_shift_the_answers_of_later_ones(
    peer: Peer, channel: BlockingChannel
) -> None:
    first, second = Outcome(), Outcome()
    forget = channel.begin(CLUSTER, b"", first.done)
    forgotten = peer.hear()
    forget()
    forget()
    channel.begin(CLUSTER, b"", second.done)
    wanted = peer.hear()
    peer.answer(forgotten.opaque, b"late")
    peer.answer(wanted.opaque, b"right")
    assert second.body() == b"right"
    assert first.said.empty()


def test_a_call_that_is_late_says_who_was_silent_and_the_connection_stays(
    peer: Peer, channel: BlockingChannel
) -> None:
    with pytest.raises(CallTimedOut, match=rf"{peer.address} .* request 106 within 0\.05 s"):
        channel.call(CLUSTER, b"", 0.05)
    peer.answer(peer.hear().opaque, b"late")
    outcome = Outcome()
    channel.begin(CLUSTER, b"", outcome.done)
    peer.answer(peer.hear().opaque, b"right")
    assert outcome.body() == b"right"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_S", SILENT_S)


@pytest.mark.usefixtures("impatient")
def test_a_connection_on_which_nothing_arrives_is_closed_by_who_times_out(
    peer: Peer, channel: BlockingChannel
) -> None:
    other = Outcome()
    channel.begin(CLUSTER, b"", other.done)
    with pytest.raises(CallTimedOut, match=r"within 0\.1 s"):
        channel.call(CLUSTER, b"", SILENT_S)
    assert isinstance(error := other.error(), ChannelClosed)
    assert str(error) == f"{peer.address}: nothing arrived for 0.1 s"
    assert channel.closed


@pytest.mark.usefixtures("impatient")
def test_who_gives_up_what_it_began_in_time_closes_nothing(
    peer: Peer, channel: BlockingChannel
) -> None:
    early, late = Outcome(), Outcome()
    channel.begin(CLUSTER, b"", early.done, LONG_S)()
    forget = channel.begin(CLUSTER, b"", late.done, SILENT_S)
    threading.Event().wait(SILENT_S)
    assert not channel.closed
    forget()
    assert channel.closed


@pytest.mark.usefixtures("impatient")
def test_a_late_call_leaves_a_connection_on_which_something_arrives(
    peer: Peer, channel: BlockingChannel, pool: ThreadPoolExecutor
) -> None:
    other = Outcome()
    channel.begin(CLUSTER, b"", other.done)

    def answer_the_other_during_the_call() -> None:
        first = peer.hear()
        peer.hear()
        peer.answer(first.opaque, b"busy")

    answered = pool.submit(answer_the_other_during_the_call)
    with pytest.raises(CallTimedOut):
        channel.call(CLUSTER, b"", SILENT_S)
    answered.result(PATIENCE_S)
    assert other.body() == b"busy"
    assert not channel.closed


def test_ctrl_c_ends_a_call_and_leaves_the_connection_usable(
    peer: Peer, channel: BlockingChannel, pool: ThreadPoolExecutor
) -> None:
    def interrupt() -> int:
        opaque = peer.hear().opaque
        # It is the turn of another one: the caller has sent the frame, and knows it.
        channel.oneway(CLUSTER)
        peer.hear()
        _thread.interrupt_main()
        return opaque

    interrupted = pool.submit(interrupt)
    with pytest.raises(KeyboardInterrupt):
        channel.call(CLUSTER, b"", LONG_S)
    outcome = Outcome()
    channel.begin(CLUSTER, b"", outcome.done)
    peer.answer(interrupted.result(PATIENCE_S), b"late")
    peer.answer(peer.hear().opaque, b"right")
    assert outcome.body() == b"right"


def test_ctrl_c_in_the_middle_of_a_frame_closes_the_connection(
    slow_peer: Peer, slow_channel: BlockingChannel, pool: ThreadPoolExecutor
) -> None:
    def interrupt() -> None:
        slow_peer.talk.recv(4, socket.MSG_PEEK)
        _thread.interrupt_main()

    pool.submit(interrupt)
    with pytest.raises(KeyboardInterrupt):
        slow_channel.call(CLUSTER, bytes(15 * MiB), LONG_S)
    assert slow_channel.closed
    with pytest.raises(ChannelClosed, match="cut off"):
        slow_channel.oneway(CLUSTER)


def test_frames_of_many_threads_do_not_mix(
    slow_peer: Peer, slow_channel: BlockingChannel, pool: ThreadPoolExecutor
) -> None:
    bodies = {f"T{number}": bytes([number]) * 300_000 for number in range(10)}

    def call(topic: str) -> bytes:
        return bytes(slow_channel.call(GetRouteInfo(topic=topic), bodies[topic], LONG_S).body)

    futures = {topic: pool.submit(call, topic) for topic in bodies}
    for _ in bodies:
        plain = slow_peer.hear()
        assert plain.body == bodies[plain.ext["topic"]]
        slow_peer.answer(plain.opaque, plain.ext["topic"].encode())
    assert all(future.result(PATIENCE_S) == t.encode() for t, future in futures.items())


def test_one_way_requests_leave_in_order_and_wait_for_nothing(
    peer: Peer, channel: BlockingChannel
) -> None:
    for topic in ("A", "B"):
        channel.oneway(GetRouteInfo(topic=topic), b"x")
    heard = [peer.hear() for _ in range(2)]
    assert [(plain.ext["topic"], plain.flag) for plain in heard] == [("A", 2), ("B", 2)]


def test_a_peer_that_takes_nothing_for_too_long_is_left(
    slow_channel: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALL_S", 0.05)
    with pytest.raises(ChannelClosed, match="cut off"):
        slow_channel.oneway(CLUSTER, bytes(15 * MiB))
    assert slow_channel.closed


def test_a_call_whose_frame_does_not_leave_in_time_closes_the_connection(
    slow_peer: Peer, slow_channel: BlockingChannel, pool: ThreadPoolExecutor
) -> None:
    big = pool.submit(slow_channel.call, CLUSTER, bytes(15 * MiB), 1.0)
    slow_peer.talk.recv(4, socket.MSG_PEEK)
    waiting = Outcome()
    slow_channel.begin(CLUSTER, b"", waiting.done, 0.05)
    assert isinstance(waiting.error(), CallTimedOut)
    assert isinstance(big.exception(PATIENCE_S), ChannelClosed)


def test_what_goes_wrong_with_begin_goes_to_its_callback(
    peer: Peer, channel: BlockingChannel
) -> None:
    outcome = Outcome()
    channel.begin(CLUSTER, bytes(16 * MiB), outcome.done)
    assert isinstance(outcome.error(), FrameError)
    channel.begin(CLUSTER, b"", outcome.done)
    assert peer.hear().code == CLUSTER.code
    channel.close()
    assert isinstance(outcome.error(), ChannelClosed)
    channel.begin(CLUSTER, b"", outcome.done)()
    assert isinstance(outcome.error(), ChannelClosed)
    assert outcome.said.empty()


def test_a_request_longer_than_peers_take_is_refused_and_the_connection_stays(
    peer: Peer, channel: BlockingChannel
) -> None:
    for ask in (channel.call, channel.oneway):
        with pytest.raises(FrameError):
            ask(CLUSTER, bytes(16 * MiB))
    channel.oneway(CLUSTER)
    assert peer.hear().code == CLUSTER.code


# ── Requests of the server ──


def test_requests_of_the_server_are_served_while_calls_wait(peer: Peer) -> None:
    groups: list[str] = []

    def serve(request: Command) -> int:
        groups.append(request.header(NotifyConsumerIdsChanged).consumer_group)
        return 0

    channel = BlockingChannel.connect(peer.address, 5.0, serve)
    outcome = Outcome()
    channel.begin(CLUSTER, b"", outcome.done)
    asked = peer.hear()
    peer.say(request_frame(40, asked.opaque, {"consumerGroup": "one"}))
    plain = peer.hear()
    assert (plain.code, plain.opaque, plain.flag) == (0, asked.opaque, 1)
    peer.say(request_frame(40, 2, {"consumerGroup": "two"}, flag=ONEWAY))
    peer.say(request_frame(40, 3, {}))
    assert "consumerGroup" in str(peer.hear().remark)
    assert groups == ["one", "two"]
    peer.answer(asked.opaque, b"right")
    assert outcome.body() == b"right"
    channel.close()


# ── Who receives ──


def echo(peer: Peer, count: int) -> None:
    """Answer so many requests, each with a request of the peer before it."""
    for _ in range(count):
        asked = peer.hear()
        request = request_frame(40, 1, {"consumerGroup": "g"}, flag=ONEWAY)
        peer.say(request + request_frame(0, asked.opaque, {}, asked.body, flag=1))


def test_a_thread_that_calls_again_and_again_receives_for_itself(
    peer: Peer, pool: ThreadPoolExecutor
) -> None:
    served: list[int] = []

    def serve(request: Command) -> None:
        served.append(threading.get_ident())

    channel = BlockingChannel.connect(peer.address, 5.0, serve)
    answering = pool.submit(echo, peer, 50)
    bodies = [bytes(channel.call(CLUSTER, b"%d" % n, LONG_S).body) for n in range(50)]
    answering.result(PATIENCE_S)
    assert bodies == [b"%d" % n for n in range(50)]
    assert len(served) == 50
    # The first is the reader's; a machine that stands still gives it more.
    assert served.count(threading.get_ident()) > 10
    channel.close()


def test_the_reader_receives_what_comes_behind_a_call(
    peer: Peer, channel: BlockingChannel, pool: ThreadPoolExecutor
) -> None:
    answering = pool.submit(echo, peer, 2)
    for _ in range(2):
        channel.call(CLUSTER, b"", LONG_S)
    answering.result(PATIENCE_S)
    peer.say(request_frame(307, 2, {}))
    assert peer.hear().code == 3
    outcome = Outcome()
    channel.begin(CLUSTER, b"", outcome.done)
    peer.answer(peer.hear().opaque, b"right")
    assert outcome.body() == b"right"


def test_who_leaves_with_its_answer_leaves_nobody_waiting(
    peer: Peer, channel: BlockingChannel, pool: ThreadPoolExecutor
) -> None:
    answering = pool.submit(echo, peer, 3)
    for _ in range(3):
        channel.call(CLUSTER, b"", LONG_S)
    answering.result(PATIENCE_S)
    for _ in range(20):
        calls = [pool.submit(channel.call, CLUSTER, b"", LONG_S) for _ in range(4)]
        asked = [peer.hear() for _ in calls]
        frames = [request_frame(0, plain.opaque, {}, b"right", flag=1) for plain in asked]
        peer.say(b"".join(frames))
        assert [bytes(call.result(PATIENCE_S).body) for call in calls] == [b"right"] * 4


def test_ctrl_c_while_it_receives_leaves_the_connection_usable(
    peer: Peer, channel: BlockingChannel, pool: ThreadPoolExecutor
) -> None:
    answering = pool.submit(echo, peer, 3)
    for _ in range(3):
        channel.call(CLUSTER, b"", LONG_S)
    answering.result(PATIENCE_S)

    def interrupt() -> int:
        opaque = peer.hear().opaque
        channel.oneway(CLUSTER)
        peer.hear()
        _thread.interrupt_main()
        return opaque

    interrupted = pool.submit(interrupt)
    with pytest.raises(KeyboardInterrupt):
        channel.call(CLUSTER, b"", LONG_S)
    peer.answer(interrupted.result(PATIENCE_S), b"late")
    answering = pool.submit(echo, peer, 1)
    assert bytes(channel.call(CLUSTER, b"right", LONG_S).body) == b"right"


class InterruptedLock:
    """Ctrl-C as soon as this thread has acquired it for the n-th time, before it knows of that."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.release = lock.release
        self.thread = threading.get_ident()
        self.left = 0

    def acquire(self, timeout: float = -1) -> bool:
        acquired: bool = self.lock.acquire(timeout=timeout)
        if self.left and threading.get_ident() == self.thread:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return acquired

    def __enter__(self) -> None:
        try:
            self.acquire()
        except KeyboardInterrupt:
            self.release()
            raise

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def with_lock(peer: Peer, kind: str) -> Iterator[tuple[BlockingChannel, InterruptedLock]]:
    """A channel whose lock of that kind can be interrupted."""
    lock = InterruptedLock(getattr(threading, kind)())
    others = {**vars(threading), kind: lambda: lock}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "threading", SimpleNamespace(**others))
        channel = BlockingChannel.connect(peer.address, 5.0)
    yield channel, lock
    channel.close()


def test_ctrl_c_as_soon_as_it_may_send_holds_up_nobody(
    peer: Peer, pool: ThreadPoolExecutor
) -> None:
    with with_lock(peer, "RLock") as (channel, turn):
        turn.left = 1
        with pytest.raises(KeyboardInterrupt):
            channel.call(CLUSTER, b"", LONG_S)
        pool.submit(echo, peer, 1)
        other = pool.submit(channel.call, CLUSTER, b"right", 2.0)
        assert bytes(other.result(PATIENCE_S).body) == b"right"


def test_a_second_ctrl_c_at_the_end_of_a_call_holds_up_nobody(
    peer: Peer, pool: ThreadPoolExecutor
) -> None:
    with with_lock(peer, "Lock") as (channel, lock):
        pool.submit(echo, peer, 5)
        for _ in range(3):
            channel.call(CLUSTER, b"", LONG_S)
        lock.left = 3  # when it sends, when it receives, at the end
        with pytest.raises(KeyboardInterrupt):
            channel.call(CLUSTER, b"", LONG_S)
        other = pool.submit(channel.call, CLUSTER, b"right", 2.0)
        assert bytes(other.result(PATIENCE_S).body) == b"right"


def test_a_signal_handler_cannot_write_into_the_frame_that_its_thread_sends(
    slow_channel: BlockingChannel,
) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: slow_channel.oneway(CLUSTER))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(RemotingError, match="a signal handler cannot call"):
            slow_channel.oneway(CLUSTER, bytes(8 * MiB))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_borrowed_connection_ends_with_the_peer(
    peer: Peer, channel: BlockingChannel, pool: ThreadPoolExecutor
) -> None:
    answering = pool.submit(echo, peer, 3)
    for _ in range(3):
        channel.call(CLUSTER, b"", LONG_S)
    answering.result(PATIENCE_S)

    def hang_up() -> None:
        peer.hear()
        peer.talk.close()

    hanging_up = pool.submit(hang_up)
    with pytest.raises(ChannelClosed, match=r"closed by the peer|reset"):
        channel.call(CLUSTER, b"", LONG_S)
    hanging_up.result(PATIENCE_S)
    assert channel.closed


def test_requests_that_nobody_serves_are_told_so(peer: Peer, channel: BlockingChannel) -> None:
    peer.say(request_frame(40, 1, {}, flag=ONEWAY) + request_frame(307, 2, {}))
    plain = peer.hear()
    assert (plain.code, plain.opaque) == (3, 2)


def test_a_callback_may_close_the_channel(peer: Peer) -> None:
    closed = threading.Event()

    def serve(request: Command) -> int:
        ours.close()
        closed.set()
        return 0

    ours = BlockingChannel.connect(peer.address, 5.0, serve)
    peer.say(request_frame(40, 1, {}))
    assert closed.wait(PATIENCE_S)
    peer.hear_close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_serving_ends_calls_instead_of_leaving_them(peer: Peer) -> None:
    def serve(request: Command) -> int:
        raise ZeroDivisionError

    channel = BlockingChannel.connect(peer.address, 5.0, serve)
    outcome = Outcome()
    channel.begin(CLUSTER, b"", outcome.done)
    peer.say(request_frame(40, 1, {}))
    assert "bug" in str(outcome.error())
    channel.close()


# ── MSGPACK ──


def test_msgpack_headers_begin_when_the_peer_grants_them(peer: Peer) -> None:
    channel = BlockingChannel.connect(peer.address, 5.0, encoding=Encoding.MSGPACK)
    outcome = Outcome()
    channel.begin(CLUSTER, b"", outcome.done)
    offer = peer.hear()
    assert offer.ext == {"aeroSer": "2"}
    peer.answer(offer.opaque, b"first", aeroSer="2")
    assert outcome.body() == b"first"
    channel.begin(CLUSTER, b"", outcome.done)
    assert peer.hear_frame()[4] == Encoding.MSGPACK
    channel.close()


# ── The beginning and the end ──


def test_a_refused_connection_names_the_address_and_the_reason() -> None:
    with Peer() as gone:
        pass
    with pytest.raises(ConnectFailed, match=rf"{gone.address}: .*refused"):
        BlockingChannel.connect(gone.address, 5.0)


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address whose system answers no request for a connection."""
    with socket.socket() as listener, ExitStack() as fill:
        listener.bind(("127.0.0.2", 0))
        listener.listen(0)
        for _ in range(4):
            caller = fill.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield f"127.0.0.2:{listener.getsockname()[1]}"


def test_a_connection_that_does_not_come_about_in_time_fails(deaf: str) -> None:
    with pytest.raises(ConnectFailed, match=rf"{deaf}: no connection within 0\.05 s"):
        BlockingChannel.connect(deaf, 0.05)


def test_an_address_of_a_host_that_is_silent_leaves_time_for_the_next(
    peer: Peer, deaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a name of several name servers, the first of which is down."""
    known = [
        (socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, int(port)))
        for host, _, port in (address.partition(":") for address in (deaf, peer.address))
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: known)
    channel = BlockingChannel.connect("name-servers:9876", 1.0)
    channel.close()
    del known[1]
    with pytest.raises(ConnectFailed, match=r"name-servers:9876: no connection within 0\.05 s"):
        BlockingChannel.connect("name-servers:9876", 0.05)
    known.clear()
    with pytest.raises(ConnectFailed, match="no address"):
        BlockingChannel.connect("name-servers:9876", 1.0)


def test_a_host_name_that_cannot_be_one_fails_to_connect() -> None:
    with pytest.raises(ConnectFailed, match=r"^a\.\.b:1"):
        BlockingChannel.connect("a..b:1", 5.0)


def test_calls_end_when_the_peer_closes(peer: Peer, channel: BlockingChannel) -> None:
    outcome = Outcome()
    for _ in range(2):
        channel.begin(CLUSTER, b"", outcome.done)
        peer.hear()
    peer.close()
    for _ in range(2):
        assert str(outcome.error()) == f"{peer.address}: closed by the peer"
    assert channel.closed
    for again in (channel.call, channel.oneway):
        with pytest.raises(ChannelClosed):
            again(CLUSTER)


def test_bytes_that_are_no_frame_close_the_connection(peer: Peer, channel: BlockingChannel) -> None:
    outcome = Outcome()
    channel.begin(CLUSTER, b"", outcome.done)
    peer.hear()
    peer.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert "frame of" in str(outcome.error())


def test_closing_ends_calls_and_the_reader_and_the_peer_sees_it(
    peer: Peer, channel: BlockingChannel
) -> None:
    outcome = Outcome()
    channel.begin(CLUSTER, b"", outcome.done)
    peer.hear()
    channel.close()
    channel.close()
    assert str(outcome.error()) == f"{peer.address}: closed by us"
    peer.hear_close()
    assert f"reader of {peer.address}" not in {thread.name for thread in threading.enumerate()}
