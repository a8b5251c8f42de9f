"""The table of what is fuzzed, the limits on time and memory, and the seeds of each target."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.remoting.wire.codes import Encoding
from aerobee.remoting.wire.command import decode, encode_request
from aerobee.remoting.wire.frame import FrameDecoder
from aerobee.remoting.wire.header import I32, I64, fields_of
from aerobee.store.format.record import MessageDraft, encode
from tests.broker.users.test_acl_text import BUNDLED
from tests.fuzz import file_targets, wire_targets
from tests.kit.raw_client import batch_body
from tests.kit.strategies import HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CASES: Final = Path(__file__).parent / "cases"
"""A folder for each target; a file is an input that once was a finding, or found something."""
FILTERS: Final = Path(__file__).parents[1] / "broker" / "filters" / "java_answers.jsonl"
RECORDED: Final = sorted((Path(__file__).parents[1] / "contract" / "frames").glob("*.frames"))
"""What Java's clients and brokers sent, in both types of headers."""
CONF: Final = Path(__file__).parents[2] / "conf"

TIME_S: Final = 0.010
"""Of the processor, for each 64 KiB of an input; and for a shorter one."""
UNTIMED_S: Final = 0.5
"""Added to that: the first call of anything, a collection, and the instrumented code are slow."""
MEMORY_BYTES: Final = 64 << 10


class Target(NamedTuple):
    """What is tried; `memory` is how many times its input it may take, 0: that is not looked at."""

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]
    memory: int = 0
    longest: int = 4_096
    """Bytes of an input."""
    timed: bool = True


def recorded() -> Iterator[bytes]:
    """The frames of the recordings, each behind a byte that tells its direction."""
    for path in RECORDED:
        data, at = path.read_bytes(), 0
        while at < len(data):
            end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
            yield data[at + 1 : end]
            at = end


def header_seeds() -> Iterator[bytes]:
    """Every class of headers in every encoding: the number of both, and the header."""
    for number, cls in enumerate(HEADERS):
        filled = {field.attribute: VALUES[field.kind] for field in fields_of(cls)}
        for encoding in Encoding:
            frame = encode_request(int(cls.code), 7, cls(**filled), encoding=int(encoding))
            yield bytes((encoding, number)) + frame[8:]
    for frame in recorded():
        for kind, header, _ in FrameDecoder().feed(frame):
            command = decode(kind, header, b"")
            number = next((n for n, one in enumerate(HEADERS) if one.code == command.code), 0)
            yield bytes((kind, number)) + bytes(header)


def frame_seeds() -> Iterator[bytes]:
    """Two frames in a row, cut here and there, and bad ones."""
    for one in list(header_seeds())[:60:5]:
        frame = encode_request(310, 1, {"a": "b"}, one, encoding=one[0])
        yield b"\x10\x20\x40\x60\x80\xf0" + frame * 2
    yield bytes(6) + b"GET / HTTP/1.1\r\n\r\n"
    for frame in recorded():
        yield b"\x10\x20\x40\x60\x80\xf0" + frame * 2


def record_seeds() -> Iterator[bytes]:
    """Records with addresses of both families, a batch, a string of properties."""
    for host, flag in ((b"\x7f\0\0\x01\0\0\x2a\x9f", 0), (bytes(20), 0x30)):
        text = b"KEYS\x01k\x02TAGS\x01t\x02"
        yield encode(MessageDraft("T", 1, b"body", text, host, host, 0, flag), 5, 0, 1)
    yield batch_body({b"one": "", b"two": "TAGS\x01A\x02"})
    yield b"KEYS\x01k\x02TAGS\x01t"


def filter_seeds() -> Iterator[bytes]:
    """Filters of a test that asks the Java broker, with the properties of a message."""
    for line in FILTERS.read_text().splitlines()[::20]:
        expression, values, _ = json.loads(line)
        pairs = "".join(f"{name}\x01{value}\x02" for name, value in values.items())
        yield f"{expression}\0{pairs}".encode()


def json_seeds() -> Iterator[bytes]:
    """JSON as fastjson writes it."""
    yield b'{"offsetTable":{"T@G":{0:5,1:7}}}'
    yield b'{"table":{{"brokerName":"b","queueId":1,"topic":"T"}:{"min":0}},"x":[1.5,null,true]}'
    yield b'{"a":{"b":[1,2]},"c":{"$ref":"$.a.b"}}'
    yield b'["\\ud83d\\ude00\\n",-1e3]'


def configuration_seeds() -> Iterator[bytes]:
    """The files of conf/, and one of RocketMQ."""
    for path in sorted(CONF.glob("*.yaml")):
        yield b"\0" + path.read_bytes()[:4_000]
    yield b"\xffbrokerName=b\nlistenPort = 10911\nflushDiskType:SYNC_FLUSH\\\n\n# x"
    yield b"\0broker:\n  name: x\nmetricsLabel: 'a:b'\n? [1]\n: &x {a: *x}\n"


def acl_seeds() -> Iterator[bytes]:
    """The file that comes with RocketMQ, and one with mistakes."""
    yield BUNDLED
    yield b"accounts:\n- {accessKey: abcdefg, secretKey: 1234567, topicPerms: [a=PUB, b], x: 1}\n"


def directory_seeds() -> Iterator[bytes]:
    """One damage of each kind."""
    for kind in range(7):
        yield bytes((kind, kind, kind * 5, 3, 0, 1, kind, 1))


VALUES: Final[dict[object, object]] = {str: "a", bool: True, I32: 7, I64: 1 << 40}

TARGETS: Final = {
    "frames": Target(wire_targets.frames, frame_seeds, memory=8),
    "headers": Target(wire_targets.headers, header_seeds),
    "records": Target(wire_targets.records, record_seeds),
    "filters": Target(wire_targets.filters, filter_seeds, longest=512),
    "json": Target(wire_targets.json_bodies, json_seeds),
    "configuration": Target(file_targets.configuration, configuration_seeds),
    "acl": Target(file_targets.acl, acl_seeds),
    "directories": Target(file_targets.directories, directory_seeds, longest=49, timed=False),
}


def cases(name: str) -> Iterator[Path]:
    """The kept inputs of a target."""
    folder = CASES / name
    if folder.is_dir():
        yield from sorted(path for path in folder.iterdir() if path.is_file())


def checked(target: Target, data: bytes, *, memory: bool = False) -> None:
    """Try one input, with an eye on time and, if asked for, on memory."""
    if memory and target.memory:
        tracemalloc.start()
    began = time.thread_time()
    try:
        target.run(data)
        took_s = time.thread_time() - began
        peak = tracemalloc.get_traced_memory()[1] if tracemalloc.is_tracing() else 0
    finally:
        tracemalloc.stop()
    allowed_s = UNTIMED_S + TIME_S * max(1, len(data) >> 16)
    assert not target.timed or took_s < allowed_s, f"{took_s:.3f} s for {len(data)} bytes"
    allowed = MEMORY_BYTES + target.memory * len(data)
    assert peak < allowed, f"{peak} bytes for {len(data)}"
