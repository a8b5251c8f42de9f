"""A client made of the protocol's text and a socket: bytes out, answers in, nothing of the product.

Tests that use it test the codec, too, since no line here is shared with it. Headers are JSON (type
0). It blocks, keeps its place in the stream and never retries, so a test sees exactly what the
broker did. Source: remoting §1.3, §1.4, §3.2, §3.6, §4.1.
"""

import json
import socket
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

Fields = Mapping[str, object]
RECEIVE_BYTES = 65_536
ONEWAY = 2


class Closed(Exception):
    """The broker closed this connection, or reset it."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """One frame from the broker; `request_code` is set when it is a request of its own."""

    code: int
    opaque: int
    flag: int
    remark: str | None
    ext: Mapping[str, str]
    body: bytes
    header: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_answer(self) -> bool:
        """False for what the broker asks of us."""
        return bool(self.flag & 1)


def request_frame(
    code: int, opaque: int, ext: Fields | None = None, body: bytes = b"", *, flag: int = 0
) -> bytes:
    """A whole frame with a JSON header, as a Java client of 5.3.3 would send it."""
    head: dict[str, object] = {
        "code": code,
        "flag": flag,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
    }
    if ext is not None:
        head["extFields"] = {name: _text(value) for name, value in ext.items() if value is not None}
    header = json.dumps(head, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class RawConnection:
    """One socket to a broker or a name server. Answers are matched to calls by opaque alone."""

    def __init__(self, address: str, *, timeout_s: float = 10.0, source: str = "") -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection(
            (host, int(port)), timeout=timeout_s, source_address=(source, 0) if source else None
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.opaque = 0
        self.asked: list[RawAnswer] = []
        """Requests that the broker made of us while we waited for answers."""
        self._pending = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closed at once; what was not read is lost."""
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        """Any bytes, whole frames or not. Raises: Closed."""
        try:
            self.socket.sendall(data)
        except ConnectionError as error:
            raise Closed(str(error)) from error

    def ask(
        self, code: int, ext: Fields | None = None, body: bytes = b"", *, oneway: bool = False
    ) -> int:
        """Send one request and do not wait: its opaque. Raises: Closed."""
        self.opaque += 1
        flag = ONEWAY if oneway else 0
        self.send_bytes(request_frame(code, self.opaque, ext, body, flag=flag))
        return self.opaque

    def call(self, code: int, ext: Fields | None = None, body: bytes = b"") -> RawAnswer:
        """Send one request and wait for its answer; others' answers are an error of the test.

        Raises: Closed; TimeoutError when nothing came within the socket's time-out.
        """
        opaque = self.ask(code, ext, body)
        answer = self.hear()
        assert answer.opaque == opaque, f"asked {opaque}, heard {answer}"
        return answer

    def hear(self) -> RawAnswer:
        """The next answer; requests of the broker are put aside. Raises: Closed, TimeoutError."""
        while not (answer := self.hear_any()).is_answer:
            self.asked.append(answer)
        return answer

    def hear_any(self) -> RawAnswer:
        """The next frame, whatever it is. Raises: Closed, TimeoutError."""
        length, header_length = struct.unpack(">II", self._take(8))
        encoding, header_length = header_length >> 24, header_length & 0xFFFFFF
        assert encoding == 0, f"asked in JSON, answered in type {encoding}"
        header = json.loads(self._take(header_length))
        body = self._take(length - 4 - header_length)
        ext = header.get("extFields") or {}
        for name, value in ext.items():
            assert isinstance(value, str), f"{name} is {value!r}: some clients read strings only"
        known = (header["code"], header["opaque"], header["flag"], header.get("remark"))
        return RawAnswer(*known, ext=ext, body=body, header=header)

    def hear_close(self) -> None:
        """Wait until the broker closes. Raises: AssertionError if it answers, TimeoutError."""
        try:
            answer = self.hear_any()
        except Closed:
            return
        raise AssertionError(f"expected a close, heard {answer}")

    def _take(self, count: int) -> bytes:
        while len(self._pending) < count:
            try:
                data = self.socket.recv(RECEIVE_BYTES)
            except ConnectionError as error:
                raise Closed(str(error)) from error
            if not data:
                raise Closed(f"{len(self._pending)} bytes short of a frame")
            self._pending += data
        taken = bytes(self._pending[:count])
        del self._pending[:count]
        return taken


def send_fields(topic: str, queue_id: int, **other: object) -> dict[str, object]:
    """The fields of SEND_MESSAGE_V2 (310); `other` replaces or adds, None takes away."""
    fields: dict[str, object] = {
        "a": "raw-producer",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": 1_700_000_000_000,
        "h": 0,
        "i": "",
        "j": 0,
        "k": False,
        "m": False,
    }
    return fields | other


def pull_fields(
    group: str, topic: str, queue_id: int, queue_offset: int, **other: object
) -> dict[str, object]:
    """The fields of PULL_MESSAGE (11) with its own subscription, not held; `other` replaces."""
    fields: dict[str, object] = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 15_000,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    return fields | other


def topic_fields(topic: str, queues: int = 4) -> dict[str, object]:
    """The fields of UPDATE_AND_CREATE_TOPIC (17): as many queues to read as to write."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": False,
    }


def properties_text(**properties: str) -> str:
    """The property string, closed by the last separator as clients from 5.2 on write it."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def batch_body(items: Mapping[bytes, str]) -> bytes:
    """The body of SEND_BATCH_MESSAGE (320): body → property string. Source: remoting §4.6."""
    return b"".join(_batch_item(body, text.encode()) for body, text in items.items())


def _batch_item(body: bytes, properties: bytes) -> bytes:
    tail = struct.pack(">I", len(body)) + body + struct.pack(">H", len(properties)) + properties
    return struct.pack(">IIII", 16 + len(tail), 0, 0, 0) + tail


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One stored message as a pull delivers it. Source: remoting §4.1."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int
    body: bytes
    properties: str


HEAD = struct.Struct(">IIIIIqqI q 4sI q 4sI I q I")
assert HEAD.size == 88


def records(body: bytes) -> Iterator[RawRecord]:
    """The records of a pull answer, each checked: sizes, magic, CRC. IPv4 hosts and V1 only."""
    at = 0
    while at < len(body):
        yield _record(body, at)
        at += int.from_bytes(body[at : at + 4], "big")
    assert at == len(body), "the last record is cut"


def _record(data: bytes, at: int) -> RawRecord:
    (
        size,
        magic,
        crc,
        queue_id,
        _,
        queue_offset,
        physical,
        sys_flag,
        _,
        _,
        _,
        stored,
        _,
        _,
        _,
        _,
        n,
    ) = HEAD.unpack_from(data, at)
    assert magic == 0xDAA320A7, f"magic {magic:08x} at {at}"
    assert not sys_flag & 0x30, "an IPv6 host in a test on 127.0.0.1"
    rest = memoryview(data)[at + HEAD.size : at + size]
    body, topic_at = bytes(rest[:n]), n + 1
    assert zlib.crc32(body) & 0x7FFFFFFF == crc, f"CRC of the record at {physical}"
    topic_end = topic_at + rest[n]
    (properties_length,) = struct.unpack_from(">H", rest, topic_end)
    assert topic_end + 2 + properties_length == len(rest), f"lengths of the record at {physical}"
    topic, properties = bytes(rest[topic_at:topic_end]), bytes(rest[topic_end + 2 :])
    # A client may have stored any bytes as properties.
    text = properties.decode("utf-8", "surrogateescape")
    return RawRecord(topic.decode(), queue_id, queue_offset, physical, stored, body, text)
