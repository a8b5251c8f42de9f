"""Thousands of clients in one process: connections with heartbeats and held pulls, raw frames only.

`python -m tests.kit.crowd ADDRESS` reads commands from stdin, one JSON list per line, and answers
each with one JSON line on stdout; `Crowd` is the other end. The clients go on while no command is
there: each repeats its heartbeat by the clock and every pull as soon as it was answered, at the
offset that the answer names, and asks for the members of its group when it is told of a change.
"""

import json
import os
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kit.process import Child
from tests.kit.raw_client import pull_fields, request_frame, send_fields

HEART_BEAT, PULL_MESSAGE, MEMBER_LIST, MEMBERS_CHANGED, SEND = 34, 11, 38, 40, 310
HOLD = 2 | 4
COUNTED = ["heartbeats", "pulls", "found", "told", "lists", "sent", "refused sends", "refused"]
COUNTED += ["closed"]
HEARTBEAT, LIST, SENT, FIRST_PULL = 1, 2, 3, 10
"""Opaques: what an answer is for."""
RECEIVE_BYTES = 1 << 20
CONNECTS_AT_ONCE = 256


def more_descriptors() -> int:
    """Raise the limit of this process as far as it may; how many there may be now."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


@dataclass(frozen=True, slots=True)
class Member:
    """What one client is: its group, its topic, and the queues that it holds pulls on."""

    client_id: str
    group: str
    topic: str
    queues: Sequence[int] = ()
    model: str = "CLUSTERING"
    hold_ms: int = 15_000
    heartbeat_s: float = 30.0


def heartbeat_body(member: Member) -> bytes:
    """The heartbeat of a push consumer. Source: remoting §3.9."""
    subscription = {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": "TAG",
        "subString": "*",
        "subVersion": 1,
        "tagsSet": [],
        "topic": member.topic,
    }
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": member.group,
        "messageModel": member.model,
        "subscriptionDataSet": [subscription],
        "unitMode": False,
    }
    document = {
        "clientID": member.client_id,
        "consumerDataSet": [consumer],
        "producerDataSet": [],
    }
    return json.dumps(document).encode()


def frames_of(data: bytes) -> Iterator[tuple[dict[str, object], int]]:
    """Header and end of every whole frame."""
    at = 0
    while len(data) - at >= 8:
        size, head = struct.unpack_from(">II", data, at)
        end = at + 4 + size
        if end > len(data):
            return
        header = json.loads(data[at + 8 : at + 8 + (head & 0xFFFFFF)])
        yield header, end
        at = end


@dataclass(slots=True)
class _Client:
    """One connection and what it waits for."""

    member: Member
    socket: socket.socket
    offsets: dict[int, int] = field(default_factory=dict)
    pending: bytes = b""
    unsent: bytes = b""
    skip: int = 0
    """Bytes of a body that nobody looks at."""
    lists: int = 0
    asked: bool = False
    told: bool = False
    """Of a change, while an answer about an earlier one was still out."""


class _Engine:
    """All clients over one epoll object."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address = host, int(port)
        self.epoll = select.epoll()
        self.clients: dict[int, _Client] = {}
        self.beats: list[tuple[float, int]] = []
        self.counts = dict.fromkeys(COUNTED, 0)
        self.heard: Callable[[_Client, int], None] = lambda client, opaque: None
        self.sizes: dict[str, int] = {}
        """Group → members in the last list that anybody got."""
        self.list_bytes = 0

    # ── Out ──

    def open(self, members: Sequence[Member]) -> list[_Client]:
        """Connect them all; blocks until the last one is."""
        made = []
        for first in range(0, len(members), CONNECTS_AT_ONCE):
            for member in members[first : first + CONNECTS_AT_ONCE]:
                sock = socket.create_connection(self.address, timeout=30)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setblocking(False)
                client = _Client(member, sock, dict.fromkeys(member.queues, 0))
                self.clients[sock.fileno()] = client
                self.epoll.register(sock.fileno(), select.EPOLLIN)
                made.append(client)
            self.turn(0)
        return made

    def send(self, client: _Client, data: bytes) -> None:
        """As much as goes, the rest when there is room."""
        if client.unsent:
            client.unsent += data
            return
        try:
            sent = client.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return
        if sent < len(data):
            client.unsent = data[sent:]
            self.epoll.modify(client.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def beat(self, client: _Client) -> None:
        """One heartbeat, and the time of the next."""
        frame = request_frame(HEART_BEAT, HEARTBEAT, {}, heartbeat_body(client.member))
        self.send(client, frame)
        heappush(self.beats, (time.monotonic() + client.member.heartbeat_s, client.socket.fileno()))

    def pull(self, client: _Client, queue_id: int) -> None:
        """One pull that may be held."""
        member = client.member
        fields = pull_fields(
            member.group,
            member.topic,
            queue_id,
            client.offsets[queue_id],
            sysFlag=HOLD,
            suspendTimeoutMillis=member.hold_ms,
        )
        self.send(client, request_frame(PULL_MESSAGE, FIRST_PULL + queue_id, fields))

    def ask_members(self, client: _Client) -> None:
        """Who is in the group."""
        client.asked = True
        fields = {"consumerGroup": client.member.group}
        self.send(client, request_frame(MEMBER_LIST, LIST, fields))

    # ── In ──

    def turn(self, timeout_s: float) -> None:
        """Serve what is ready, and the heartbeats that are due."""
        for fd, bits in self.epoll.poll(timeout_s, 1024):
            client = self.clients.get(fd)
            if client is None:
                continue
            if bits & select.EPOLLOUT:
                data, client.unsent = client.unsent, b""
                self.epoll.modify(fd, select.EPOLLIN)
                self.send(client, data)
            if bits & ~select.EPOLLOUT:
                self.receive(client)
        now = time.monotonic()
        while self.beats and self.beats[0][0] <= now:
            _, fd = heappop(self.beats)
            client = self.clients.get(fd)
            if client is not None:
                self.beat(client)

    def receive(self, client: _Client) -> None:
        """What came on one connection."""
        try:
            data = client.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.counts["closed"] += 1
            del self.clients[client.socket.fileno()]
            client.socket.close()
            return
        if client.skip:
            passed = min(client.skip, len(data))
            client.skip -= passed
            data = data[passed:]
        data, at = client.pending + data, 0
        while len(data) - at >= 8:
            size, head = struct.unpack_from(">II", data, at)
            head &= 0xFFFFFF
            if len(data) - at < 8 + head:
                break
            header = json.loads(data[at + 8 : at + 8 + head])
            end = at + 4 + size
            # Bodies are not looked at, but for the lists: their size says how many members.
            client.skip = max(0, end - len(data))
            self.take(client, header, size - 4 - head)
            at = min(end, len(data))
        client.pending = data[at:]

    def take(self, client: _Client, header: dict[str, object], body_bytes: int) -> None:
        """One answer, or a request of the broker."""
        if not int(str(header["flag"])) & 1:
            if header["code"] == MEMBERS_CHANGED:
                self.counts["told"] += 1
                if client.asked:
                    client.told = True
                else:
                    self.ask_members(client)
            return
        opaque, code = int(str(header["opaque"])), header["code"]
        if opaque == HEARTBEAT:
            self.counts["heartbeats"] += 1
            self.counts["refused"] += code != 0
        elif opaque == LIST:
            self.counts["lists"] += 1
            self.list_bytes += body_bytes
            client.lists = body_bytes
            client.asked = False
            # One that was refused asks again, as a client does with its next rebalance.
            if client.told or code != 0:
                client.told = False
                self.ask_members(client)
        elif opaque == SENT:
            self.counts["sent"] += 1
            self.counts["refused sends"] += code != 0
        else:
            self.pulled(client, opaque - FIRST_PULL, header)
        self.heard(client, opaque)

    def pulled(self, client: _Client, queue_id: int, header: dict[str, object]) -> None:
        """Go on where the answer says."""
        self.counts["pulls"] += 1
        self.counts["found"] += header["code"] == 0
        fields = header.get("extFields")
        if header["code"] not in (0, 19, 20, 21) or not isinstance(fields, dict):
            self.counts["refused"] += 1
            return
        client.offsets[queue_id] = int(fields["nextBeginOffset"])
        self.pull(client, queue_id)

    # ── Commands ──

    def do_open(self, members: list[dict[str, Any]]) -> object:
        """Connect, send the first heartbeats, park the pulls; done when all were answered."""
        clients = self.open([Member(**one) for one in members])
        return self.await_beats(clients)

    def await_beats(self, clients: list[_Client], within_s: float = 120.0) -> object:
        """First heartbeats of all of these, as fast as they go, then their pulls."""
        left = {client.socket.fileno() for client in clients}
        began = time.monotonic()

        def heard(client: _Client, opaque: int) -> None:
            if opaque == HEARTBEAT:
                left.discard(client.socket.fileno())

        self.heard = heard
        for number, client in enumerate(clients):
            frame = request_frame(HEART_BEAT, HEARTBEAT, {}, heartbeat_body(client.member))
            self.send(client, frame)
            # Later ones are spread over the period, as clients that started one by one would be.
            share = (number + 1) / len(clients)
            at = began + client.member.heartbeat_s * (1 + share)
            heappush(self.beats, (at, client.socket.fileno()))
            if number % 64 == 63:
                self.turn(0)
        while left and time.monotonic() - began < within_s:
            self.turn(0.05)
        took_s = time.monotonic() - began
        self.heard = lambda client, opaque: None
        for number, client in enumerate(clients):
            for queue_id in client.offsets:
                self.pull(client, queue_id)
            if number % 16 == 15:
                self.turn(0)
        return {"seconds": took_s, "missing": len(left)}

    def do_join(self, group: str, topic: str, count: int) -> object:
        """`count` new members of one group: until all are in, and until all know of all."""
        members = [Member(f"10.0.0.1@{n}#{group}", group, topic) for n in range(count)]
        clients = self.open(members)
        before = dict(self.counts)
        began = time.monotonic()
        result = self.await_beats(clients)
        assert isinstance(result, dict)
        self.ask_members(clients[0])
        while clients[0].asked:
            self.turn(0.05)
        whole = clients[0].lists
        while time.monotonic() - began < 120 and (any(client.lists != whole for client in clients)):
            self.turn(0.05)
        settled_s = time.monotonic() - began
        grown = {name: self.counts[name] - before[name] for name in self.counts}
        return result | {"settled_s": settled_s, "list_bytes": whole, **grown}

    def do_send(self, topic: str, queues: int) -> object:
        """A message from each, all at once; done when all were answered."""
        began, wanted = time.monotonic(), self.counts["sent"] + len(self.clients)
        for number, client in enumerate(list(self.clients.values())):
            fields = send_fields(topic, number % queues)
            self.send(client, request_frame(SEND, SENT, fields, b"all at once"))
            if number % 64 == 63:
                self.turn(0)
        while self.counts["sent"] < wanted and time.monotonic() - began < 60:
            self.turn(0.05)
        return {
            "seconds": time.monotonic() - began,
            "missing": wanted - self.counts["sent"],
            "refused": self.counts["refused sends"],
        }

    def do_leave(self) -> object:
        """All close their connections at once."""
        gone, self.clients = self.clients, {}
        for client in gone.values():
            client.socket.close()
        return len(gone)

    def do_counts(self) -> object:
        """What was counted so far, and the CPU seconds of this process."""
        times = os.times()
        return {**self.counts, "clients": len(self.clients), "cpu_s": times.user + times.system}

    def serve(self) -> None:
        """Commands until stdin ends."""
        stdin = sys.stdin.fileno()
        os.set_blocking(stdin, False)
        self.epoll.register(stdin, select.EPOLLIN)
        lines = b""
        while True:
            self.turn(0.05)
            try:
                data = os.read(stdin, 1 << 20)
            except BlockingIOError:
                continue
            if not data:
                return
            lines += data
            while b"\n" in lines:
                line, _, lines = lines.partition(b"\n")
                name, *arguments = json.loads(line)
                answer = getattr(self, f"do_{name}")(*arguments)
                sys.stdout.write(json.dumps(answer) + "\n")
                sys.stdout.flush()


class Crowd:
    """The process and its commands."""

    def __init__(self, address: str, *, log: Path) -> None:
        command = [sys.executable, "-m", "tests.kit.crowd", address]
        self.child = Child(command, log=log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.child.kill()

    def open(self, members: Sequence[Member]) -> dict[str, float]:
        """Connect these clients and let them live. Their heartbeats took `seconds`."""
        return self._do("open", [asdict(one) for one in members])

    def join(self, group: str, topic: str, count: int) -> dict[str, float]:
        """So many new members of one group; `seconds` until in, `settled_s` until all know."""
        return self._do("join", group, topic, count)

    def send(self, topic: str, queues: int) -> dict[str, float]:
        """A message from each at once; `missing` and `refused` of them."""
        return self._do("send", topic, queues)

    def leave(self) -> None:
        """All close their connections at once."""
        self._do("leave")

    def counts(self) -> dict[str, float]:
        """What the clients did so far."""
        return self._do("counts")

    def _do(self, *command: object) -> dict[str, float]:
        self.child.write_line(json.dumps(command))
        answer: dict[str, float] = json.loads(self.child.read_line(within_s=300))
        return answer


if __name__ == "__main__":
    more_descriptors()
    _Engine(sys.argv[1]).serve()
