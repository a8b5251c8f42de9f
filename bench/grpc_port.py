"""The cost of the port of the 5.x clients: the CPU of a send, and the memory of a stream.

    python -m bench.grpc_port [--runs 3] [--seconds 5] [--streams 1000] [--set key=value]…

A real broker, and clients in this process, by the HTTP/2 engine alone and with prepared bytes. Each
send is a call of its own with the metadata of the official clients, of which the id is a new one.
CPU is that of the whole broker, user and system. A Telemetry stream has a connection to itself and
the settings of a push consumer; its cost is the private memory of the broker beyond that without.
Targets: 90 µs a send, 20 KiB a stream.
"""

from __future__ import annotations

import argparse
import gc
import selectors
import socket
import statistics
import struct
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ngh2

from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.enums import ClientType, Encoding, FilterType, Language, MessageType
from aerobee.remoting.grpc.fields import PACKAGE, SERVICE
from aerobee.remoting.wire.codes import RequestCode
from bench.arguments import positive, program, setting, whole, whole_or_0
from bench.load import DEFAULT_SIZES
from bench.machine import describe
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import cpu_s, rss_anon
from tests.kit.ports import free_port
from tests.kit.raw_client import RawConnection, topic_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC: Final = "GrpcBench"
QUEUES: Final = 8
GROUP: Final = "grpc-bench"
BODY: Final = b"x" * 128
SHAPES: Final = ((1, 64), (8, 8), (64, 1))
"""Connections, and calls in flight on each."""
WARM_UP_S: Final = 2.0
MARK: Final = b"01" + b"0" * 32
"""A text of the form of a message id: each send puts its own in its place."""
PREFIX: Final = struct.Struct(">BI")
STREAM_PATIENCE_S: Final = 60.0


def headers(method: str, client: str) -> list[tuple[bytes, bytes]]:
    """The head of a call; the last field is the id of the request."""
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", f"/{PACKAGE}.{SERVICE}/{method}".encode()),
        (b":authority", b"127.0.0.1:8081"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"grpc-python-asyncio/1.76.0 grpc-c/51.0.0 (linux; chttp2)"),
        (b"grpc-accept-encoding", b"identity, deflate, gzip"),
        (b"grpc-timeout", b"2999m"),
        (b"x-mq-language", b"PYTHON"),
        (b"x-mq-client-version", b"5.1.2"),
        (b"x-mq-protocol", b"GRPC_V2"),
        (b"x-mq-namespace", b""),
        (b"x-mq-client-id", client.encode()),
        (b"x-mq-date-time", b"20261122T035000Z"),
        (b"x-mq-request-id", b""),
    ]


def framed(message: Any) -> bytes:
    """A message with its prefix."""
    data: bytes = message.SerializeToString()
    return PREFIX.pack(0, len(data)) + data


def prepared_send() -> bytes:
    """A send as the Python client makes it, with `MARK` as its id."""
    system = messages.SystemProperties(
        message_id=MARK.decode(),
        keys=["key"],
        tag="tag",
        body_encoding=Encoding.IDENTITY,
        message_type=MessageType.NORMAL,
        born_host="bench-host",
    )
    system.born_timestamp.FromSeconds(1_800_000_000)
    resource = messages.Resource(name=TOPIC)
    message = messages.Message(topic=resource, system_properties=system, body=BODY)
    message.user_properties["tenant"] = "a"
    return framed(messages.SendMessageRequest(messages=[message]))


def settings() -> bytes:
    """The first command of a push consumer."""
    entry = messages.SubscriptionEntry(topic=messages.Resource(name=TOPIC))
    entry.expression.type, entry.expression.expression = FilterType.TAG, "*"
    subscription = messages.Subscription(
        group=messages.Resource(name=GROUP), subscriptions=[entry], fifo=False
    )
    agent = messages.UA(language=Language.PYTHON, version="5.1.2", platform="linux", hostname="h")
    sent = messages.Settings(
        client_type=ClientType.PUSH_CONSUMER, subscription=subscription, user_agent=agent
    )
    sent.access_point.addresses.add(host="127.0.0.1", port=8081)
    return framed(messages.TelemetryCommand(settings=sent))


class Peer:
    """One connection of a client."""

    sends = 0

    def __init__(self, address: tuple[str, int], number: int) -> None:
        self.sock = socket.create_connection(address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.core = ngh2.Connection(ngh2.Role.CLIENT)
        self.core.initiate_connection()
        self._head = headers("SendMessage", f"bench@{number}")
        self._send = prepared_send()

    def close(self) -> None:
        """End it."""
        self.sock.close()

    def send(self) -> None:
        """Begin one call."""
        Peer.sends += 1
        identity = b"01%032d" % Peer.sends
        self._head[-1] = (b"x-mq-request-id", identity)
        stream = self.core.send_request(self._head)
        self.core.send_data(stream, self._send.replace(MARK, identity), end_stream=True)

    def open_stream(self, command: bytes, number: int) -> None:
        """Begin a Telemetry stream, and wait for the answer to its settings."""
        stream = self.core.send_request(headers("Telemetry", f"stream@{number}"))
        self.core.send_data(stream, command)
        self.flush()
        self.sock.settimeout(STREAM_PATIENCE_S)
        while True:
            self.core.receive_data(self.sock.recv(65_536))
            for event in self.core.events():
                assert not isinstance(event, ngh2.StreamClosed), event
                if isinstance(event, ngh2.DataReceived) and event.data:
                    self.flush()
                    return

    def flush(self) -> None:
        """Write what it has to say."""
        while data := self.core.data_to_send():
            self.sock.sendall(data)

    def heard(self) -> int:
        """Read once; how many calls have ended, each with a stored message."""
        self.core.receive_data(self.sock.recv(262_144))
        ended = 0
        for event in self.core.events():
            if isinstance(event, ngh2.DataReceived):
                # The status of the answer and that of its entry, both OK (20000).
                assert event.data.count(b"\x08\xa0\x9c\x01") == 2, event.data
            elif isinstance(event, ngh2.StreamClosed):
                assert not event.error_code, event
                ended += 1
        return ended


def sent(peers: list[Peer], ready: selectors.DefaultSelector, seconds: float) -> int:
    """Keep as many in flight as are now, for so long; how many have ended."""
    ended, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        for key, _ in ready.select(1):
            peer: Peer = key.data
            count = peer.heard()
            ended += count
            for _ in range(count):
                peer.send()
            peer.flush()
    return ended


def of_sends(pid: int, address: tuple[str, int], shape: tuple[int, int], seconds: float) -> Any:
    """Sends per second, and µs of the broker for each."""
    with ExitStack() as stack:
        ready = stack.enter_context(selectors.DefaultSelector())
        peers = []
        for number in range(shape[0]):
            peer = stack.enter_context(closing(Peer(address, number)))
            peers.append(peer)
            ready.register(peer.sock, selectors.EVENT_READ, peer)
            for _ in range(shape[1]):
                peer.send()
            peer.flush()
        sent(peers, ready, WARM_UP_S)
        before, begun = cpu_s(pid), time.monotonic()
        count = sent(peers, ready, seconds)
        took, used = time.monotonic() - begun, cpu_s(pid) - before
    return count / took, used * 1e6 / count


def of_streams(pid: int, address: tuple[str, int], count: int) -> float:
    """KiB of each stream."""
    command = settings()
    with ExitStack() as stack:
        # The tables and pools that the first ones make are not the cost of one more.
        for number in range(-50, 0):
            stack.enter_context(closing(Peer(address, number))).open_stream(command, number)
        before = rss_anon(pid)
        for number in range(count):
            stack.enter_context(closing(Peer(address, number))).open_stream(command, number)
        gc.collect()
        return (rss_anon(pid) - before) / 1_024 / count


def with_broker(given: Mapping[str, object], stack: ExitStack) -> tuple[int, tuple[str, int]]:
    """A broker with the topic; its process and the address of the port."""
    home = stack.enter_context(tempfile.TemporaryDirectory(prefix="aerobee-bench-"))
    port = free_port()
    own = {**DEFAULT_SIZES, "grpcPort": port, "maxConnections": 20_000, **given}
    broker = stack.enter_context(BrokerProcess(data=Path(home) / "data", settings=own))
    with RawConnection(broker.address) as admin:
        create = int(RequestCode.UPDATE_AND_CREATE_TOPIC)
        assert admin.call(create, topic_fields(TOPIC, QUEUES)).code == 0
    return broker.child.pid, (broker.host, port)


@program
def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.grpc_port")
    parser.add_argument("--runs", type=whole, default=3)
    parser.add_argument("--seconds", type=positive, default=5)
    parser.add_argument("--streams", type=whole_or_0, default=1_000)
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    print(describe())
    given: dict[str, object] = dict(arguments.set)
    print(f"{'unary sends of 128 B':<24}{'sends/s':>10}{'us/send':>10}")
    for shape in SHAPES:
        seen = []
        for _ in range(arguments.runs):
            with ExitStack() as stack:
                pid, address = with_broker(given, stack)
                seen.append(of_sends(pid, address, shape, arguments.seconds))
        rate, cpu = (statistics.median(figure) for figure in zip(*seen, strict=True))
        print(f"  {shape[0]:>3} x {shape[1]:<15}{rate:>10.0f}{cpu:>10.1f}", flush=True)
    if arguments.streams:
        with ExitStack() as stack:
            pid, address = with_broker(given, stack)
            size = of_streams(pid, address, arguments.streams)
        print(f"idle Telemetry streams: {size:.1f} KiB each of {arguments.streams}")


if __name__ == "__main__":
    main()
