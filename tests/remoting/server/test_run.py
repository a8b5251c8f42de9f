"""Requests of several connections in one round: which are served together, and in which order."""

from __future__ import annotations

from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.remoting.server.poller import READ
from aerobee.remoting.server.route_table import resolve
from aerobee.remoting.server.routes import Route
from aerobee.remoting.server.run import RUN_BYTES, RUN_MAX
from aerobee.remoting.server.selector import Hooks
from aerobee.remoting.server.worker import Worker
from aerobee.remoting.wire.command import ONEWAY
from aerobee.remoting.wire.frame import FrameDecoder
from aerobee.remoting.wire.headers.offset import GetMaxOffset, GetMinOffset
from aerobee.remoting.wire.typed_command import TypedCommand
from tests.kit.raw_client import request_frame
from tests.remoting.server.stage import HandTime, Stage, TrickleSocket, echo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX, MIN = 30, 31


def frame(body: bytes, code: int = MAX, *, flag: int = 0, **fields: object) -> bytes:
    return request_frame(code, 1, {"topic": "t", "queueId": 0, **fields}, body, flag=flag)


class Service:
    """Two routes that serve alone and together, and what they have served."""

    def __init__(self, stage: Stage, most: int = 100) -> None:
        self.served: list[list[bytes]] = []
        self.most = most
        self.before: Callable[[], None] = lambda: None
        self.held: list[Callable[[], None]] | None = None
        """Where the answers of runs wait, as those of sends do for the disk."""
        routes = (
            Route(GetMaxOffset, self.alone, "admin", self.together),
            Route(GetMinOffset, self.alone, "admin", self.together),
        )
        table = resolve(routes, stage.reactor.pools)
        nursery: Any = None
        self.worker = Worker(table, lambda _: None, nursery, stage.reactor.shared)

    def alone(self, header: Any, command: Any, connection: Any) -> Any:
        self.served.append([bytes(command.body)])
        return echo(header, command, connection)

    def together(self, header: Any, command: Any, connection: Any, rest: Iterable[Any]) -> int:
        run = []
        self.before()
        requests = chain([(command, header, connection)], rest)
        for command, header, connection in islice(requests, self.most):
            run.append(bytes(command.body))
            answer = partial(connection.answer, command, echo(header, command, connection))
            if self.held is None:
                answer()
            else:
                self.held.append(answer)
        if run:
            self.served.append(run)
        return len(run)


class Peers:
    """Connections that have had their first request, which joins no run."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, hooks: Hooks | None = None, **how: Any
    ) -> None:
        HandTime(monkeypatch)
        self.stage = Stage(hooks=hooks or Hooks())
        self.service = Service(self.stage, **how)
        self.socks: list[TrickleSocket] = []

    def connect(self, worker: Worker | None = None) -> TrickleSocket:
        stage = self.stage
        fd = 20_000 + len(self.socks)
        sock: Any = TrickleSocket(fd)
        address = ("127.0.0.1", 50_000)
        stage.selector.adopt(sock, address, "test", worker or self.service.worker)
        self.socks.append(sock)
        return sock  # type: ignore[no-any-return]  # adopted as a socket

    def round(self, *said: tuple[TrickleSocket, bytes]) -> list[bytes]:
        """The bodies of the answers to what was said in one round, in order of the peers."""
        for sock, data in said:
            sock.incoming += data
            sock.taken.clear()
        self.stage.rounds([(sock.fd, READ) for sock, _ in said])
        return [
            bytes(body) for sock, _ in said for *_, body in FrameDecoder().feed(bytes(sock.taken))
        ]


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Peers:
    return Peers(monkeypatch)


def test_all_of_a_round_that_are_alike_are_served_together(peers: Peers) -> None:
    said = [(peers.connect(), frame(b"%d" % n)) for n in range(5)]
    answers = peers.round(*said)
    assert answers == [b"0", b"1", b"2", b"3", b"4"]
    assert peers.service.served == [answers]


def test_any_other_request_is_served_in_its_place(peers: Peers) -> None:
    a, b, c, d, e, f = (peers.connect() for _ in range(6))
    said = [
        (a, frame(b"a")),
        (b, frame(b"b")),
        (c, frame(b"c", MIN)),
        (d, frame(b"d") + frame(b"d2")),
        (e, frame(b"e", flag=ONEWAY)),
        (f, frame(b"f")),
    ]
    assert peers.round(*said) == [b"a", b"b", b"c", b"d", b"d2", b"f"]
    assert peers.service.served == [[b"a", b"b"], [b"c"], [b"d", b"d2"], [b"e"], [b"f"]]


def test_one_whose_fields_do_not_decode_is_refused_and_no_other(peers: Peers) -> None:
    said = [(peers.connect(), frame(b"%d" % n, queueId="x" * (n == 1) or 0)) for n in range(4)]
    assert peers.round(*said) == [b"0", b"", b"2", b"3"]
    assert peers.service.served == [[b"0"], [b"2", b"3"]]


def test_those_that_a_run_leaves_out_are_served_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = Peers(monkeypatch, most=2)
    said = [(peers.connect(), frame(b"%d" % n)) for n in range(5)]
    assert peers.round(*said) == [b"0", b"1", b"2", b"3", b"4"]
    assert peers.service.served == [[b"0", b"1"], [b"2", b"3"], [b"4"]]


def test_there_are_at_most_so_many_of_so_many_bytes(peers: Peers) -> None:
    socks = [peers.connect() for _ in range(RUN_MAX + 3)]
    peers.round(*((sock, frame(b"")) for sock in socks))
    assert [len(run) for run in peers.service.served] == [RUN_MAX, 3]
    peers.service.served.clear()
    third = bytes(RUN_BYTES // 3)
    said = [(sock, frame(third)) for sock in socks[:2]]
    said += [
        (socks[2], frame(bytes(RUN_BYTES))),
        *((sock, frame(third)) for sock in socks[3:8]),
    ]
    for sock, data in said:
        # Nothing but whole requests: a read of many sockets is shorter.
        connection: Any = peers.stage.selector.connections[sock.fd]
        connection.decoder.feed(data[:-1])
    peers.round(*((sock, data[-1:]) for sock, data in said))
    assert [len(run) for run in peers.service.served] == [2, 1, 3, 2]


def test_two_listeners_do_not_read_over_what_the_other_keeps(peers: Peers) -> None:
    other = Service(peers.stage)
    bodies = [bytes([n]) * 9_000 for n in range(40)]
    socks = [peers.connect(other.worker if n % 3 == 1 else None) for n in range(40)]
    assert peers.round(*((s, frame(b)) for s, b in zip(socks, bodies, strict=True))) == bodies
    served = peers.service.served + other.served
    assert sorted(body for run in served for body in run) == sorted(bodies)
    assert max(map(len, served)) == 2


def test_a_served_group_is_answered_before_the_next_is_read(peers: Peers) -> None:
    said = [(peers.connect(), frame(b"%d" % n)) for n in range(2 * RUN_MAX + 2)]
    answered: list[int] = []
    peers.service.before = lambda: answered.append(sum(sock.sends for sock, _ in said))
    peers.round(*said)
    assert answered == [0, RUN_MAX, 2 * RUN_MAX]


def test_groups_whose_answers_wait_for_the_disk_share_the_end_of_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[Callable[[], None]] = []
    ends: list[int] = []
    peers = Peers(monkeypatch, hooks=Hooks(after_round=lambda: ends.append(len(held))))
    peers.service.held = held
    said = [(peers.connect(), frame(b"%d" % n)) for n in range(2 * RUN_MAX + 2)]
    peers.round(*said)
    assert ends == [len(said)], "one sync for all of them"
    assert [len(run) for run in peers.service.served] == [RUN_MAX, RUN_MAX, 2]


# ── Calls of another protocol ──


class CallOf:
    """A call as the origin of a request; its answers' bodies are kept in order of all calls."""

    def __init__(self, peers: Peers, told: list[bytes]) -> None:
        sock = peers.connect()
        self.context = peers.stage.selector.connections[sock.fileno()].context
        self.host = bytes(8)
        self.closed = False
        self.current = None
        self.told = told

    def answer(self, command: Any, answer: Any) -> None:
        self.told.append(bytes(answer.body))


def asked(call: CallOf, peers: Peers, body: bytes, cls: Any = GetMaxOffset) -> None:
    command = TypedCommand(
        code=int(cls.code), body=body, typed=cls(topic="t", queue_id=0), reply=None
    )
    command.arrived = call.context.now
    caller: Any = call
    peers.service.worker.request(caller, command)


def test_calls_are_served_together_until_another_request_comes(peers: Peers) -> None:
    told: list[bytes] = []
    a, b, c, d, gone = (CallOf(peers, told) for _ in range(5))
    asked(a, peers, b"a")
    asked(gone, peers, b"gone")
    asked(b, peers, b"b")
    assert (told, peers.service.served) == ([], [])
    gone.closed = True
    asked(c, peers, b"c", GetMinOffset)
    asked(d, peers, b"d")
    a.context.serve_run()
    assert peers.service.served == [[b"a", b"b"], [b"c"], [b"d"]]
    assert told == [b"a", b"b", b"c", b"d"]


def test_many_calls_of_one_connection_are_served_as_soon_as_there_are_enough(peers: Peers) -> None:
    told: list[bytes] = []
    for number in range(RUN_MAX):
        assert not told
        asked(CallOf(peers, told), peers, b"%d" % number)
    assert told == [b"%d" % number for number in range(RUN_MAX)]
