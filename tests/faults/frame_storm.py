"""R8: frames that a stranger makes, by the thousand: from the declared headers of all routes, with
other types, lengths, bodies and bytes.

Each is first taken apart in this process, where only the protocol's own errors may come of it; some
are sent to a broker that is open to all, and to one whose accounts the stranger has none of. Beside
them a client of each works on, in a process of its own. Meanwhile and afterwards: no event of an
error, no turn of the loop that is too long, nothing lost that was acknowledged, no descriptor and
little memory more.
"""

from __future__ import annotations

import gc
import random
import socket
import struct
import sys
import time
from contextlib import ExitStack, suppress
from functools import cache
from typing import TYPE_CHECKING

from aerobee.remoting.errors import FrameError, HeaderError
from aerobee.remoting.wire.codes import Encoding
from aerobee.remoting.wire.command import decode, encode_request
from aerobee.remoting.wire.frame import FrameDecoder
from tests.faults.bad_requests import BadRequest, any_of, routed
from tests.kit.campaign import Campaign
from tests.kit.health import events, open_descriptors, rss_anon, slowness
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection, request_frame, send_fields
from tests.kit.reading import read_topic
from tests.kit.steady import ProducersApart, p99_ms
from tests.kit.step_watch import SteppedBroker, StolenTime, steps_in
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.remoting.wire.header import Header
    from tests.kit.broker_process import BrokerProcess
    from tests.kit.campaign import Run

MiB = 1 << 20
SEND, SUCCESS = 310, 0
IN_PROCESS = 1_000
"""Frames of a cycle that are taken apart here."""
OVER_SOCKETS, OVER_SOCKETS_LARGE = 5, 100
"""And those sent to each broker."""
LARGE = 500
"""From so many cycles on it is a recorded run."""
BASES = 4_000
"""Different requests whose frames are changed."""
SMALL_BYTES = 8_192
"""Longer ones are left out: most of the time would go into copying them."""
OF_A_CONNECTION = 4
"""A bad one ends its connection, and those behind it are not looked at."""
STRANGER = "127.0.0.3"
HEARD_WITHIN_S = 10.0
KEPT = "kept"
MESSAGES = 50
STEP_MS = 50.0
GROWN_MAX = 5 * MiB
DECODED_AGAIN = 6
KEPT_BLOCKS_MAX = 1_000
"""A decoder that keeps one block of every frame keeps five times as many."""
STATE_MAX = 12 * MiB
"""What the open broker keeps on top: topics, groups and clients that it was asked for."""
IDLE_SOCKETS = 14
WITH_MS = 5.0
"""A p99 below this says more about the machine than about the storm."""
ACL = """\
globalWhiteRemoteAddresses: [127.0.0.1]
accounts:
- accessKey: somebody-else
  secretKey: not-for-strangers
"""
LENGTHS = (0, 1, 3, 4, 5, 8, 255, 65_536, MiB, 16 * MiB, 2**31 - 1, 2**31, 2**32 - 1)
HEADERS: dict[int, list[type[Header]]] = {}


@cache
def bases(seed: int) -> tuple[bytes, ...]:
    """Frames of bad requests, each in one of the encodings."""
    rng = random.Random(f"R8 {seed}")
    found: list[bytes] = []
    while len(found) < BASES:
        frame = framed(rng, any_of(rng))
        if len(frame) <= SMALL_BYTES:
            found.append(frame)
    for one in routed():
        HEADERS.setdefault(one.code, []).append(one.kind)
    return tuple(found)


def framed(rng: random.Random, bad: BadRequest) -> bytes:
    """Its frame; JSON where another encoding cannot say it."""
    encoding = rng.choice(list(Encoding))
    with suppress(FrameError, ValueError, struct.error):
        fields = {name: str(value) for name, value in bad.fields.items()}
        return encode_request(bad.code, rng.randrange(1 << 31), fields, bad.body, encoding=encoding)
    return request_frame(bad.code, rng.randrange(1 << 31), bad.fields, bad.body)


def changed(rng: random.Random, seed: int) -> bytes:
    """A frame with nothing, bytes, a length or a part of it changed."""
    frame = bytearray(rng.choice(bases(seed)))
    way = rng.randrange(8)
    if way < 3:
        return bytes(frame)
    if way == 3:
        struct.pack_into(">I", frame, rng.choice((0, 4)), rng.choice(LENGTHS))
    elif way == 4:
        other = rng.choice(bases(seed))
        at = rng.randrange(8, len(frame) + 1)
        frame[at:] = other[rng.randrange(8, len(other) + 1) :]
        _right(frame)
    elif way == 5:
        begin = rng.randrange(8, len(frame) + 1)
        del frame[begin : begin + rng.randrange(1, 64)]
        _right(frame)
    else:
        for _ in range(rng.randrange(1, 5)):
            frame[rng.randrange(8, len(frame))] = rng.randrange(256)
    return bytes(frame)


def _right(frame: bytearray) -> None:
    """Its length is what it is now, and its header no longer than that."""
    length = len(frame) - 4
    (mark,) = struct.unpack_from(">I", frame, 4)
    header = min(mark & 0xFFFFFF, length - 4)
    struct.pack_into(">II", frame, 0, length, mark & 0xFF000000 | header)


def taken_apart(frame: bytes) -> int:
    """Decode it as far as it goes; how many requests were in it. Any other error is a finding."""
    try:
        frames = FrameDecoder().feed(frame)
    except FrameError as error:
        frames = list(error.frames)
    count = 0
    for encoding, header, body in frames:
        with suppress(FrameError):
            command = decode(encoding, header, body)
            count += 1
            for kind in HEADERS.get(command.code, ()):
                with suppress(HeaderError):
                    command.header(kind)
            with suppress(HeaderError):
                command.ext_fields()
    return count


def stranger(broker: BrokerProcess, frames: list[bytes]) -> int:
    """Send these, a few over each connection; how many bytes came back."""
    heard = 0
    address = (HOST, broker.ports.listen)
    for begin in range(0, len(frames), OF_A_CONNECTION):
        data = b"".join(frames[begin : begin + OF_A_CONNECTION])
        with (
            socket.create_connection(address, HEARD_WITHIN_S, (STRANGER, 0)) as one,
            suppress(ConnectionError),
        ):
            one.sendall(data)
            one.shutdown(socket.SHUT_WR)
            while received := len(one.recv(65_536)):
                heard += received
    return heard


class Stormed:
    """A broker in a storm, and what was there before."""

    def __init__(self, directory: Path, name: str, settings: dict[str, object]) -> None:
        self.broker = SteppedBroker(data=directory / name / "data", settings=settings)
        self.grown = 0
        self.before = 0

    def prepare(self) -> None:
        """Messages that must be there afterwards."""
        with RawConnection(self.broker.address) as client:
            for number in range(MESSAGES):
                assert client.call(SEND, send_fields(KEPT, 0), b"%d" % number).code == SUCCESS

    def check(self) -> None:
        """Alive, and as it was."""
        broker = self.broker
        eventually(
            lambda: open_descriptors(broker.child.pid)["socket"] <= IDLE_SOCKETS,
            within_s=30,
            what="as many sockets as before",
        )
        with RawConnection(broker.address) as client:
            kept = [record.body for record in read_topic(client, KEPT, 0)]
        assert kept == [b"%d" % number for number in range(MESSAGES)]

    def check_log(self) -> None:
        """Nothing failed that a stranger asked for."""
        for event in events(self.broker.log.read_text(encoding="utf-8", errors="replace")):
            assert event["level"] != "error", str(event)[:3_000]
            assert event["event"] != "request.failed", str(event)[:3_000]


def frame_storm(run: Run) -> None:
    """Cycle after cycle; the first tenth fills caches, and what grows afterwards is growth."""
    large = run.wanted >= LARGE
    each = OVER_SOCKETS_LARGE if large else OVER_SOCKETS
    acl = run.directory / "plain_acl.yml"
    acl.write_text(ACL)
    acl.chmod(0o600)
    closed = {"aclEnable": True, "aclConfigDir": run.directory}
    stormed = [Stormed(run.directory, "open", {}), Stormed(run.directory, "accounts", closed)]
    for one in stormed:
        one.broker.data.parent.mkdir()
    stolen = StolenTime()
    stolen.start()
    with ExitStack() as stack:
        for one in stormed:
            stack.enter_context(one.broker)
            one.prepare()
        began = time.monotonic()
        warm = max(1, run.wanted // 10)
        addresses = [one.broker.address for one in stormed]
        with ProducersApart(addresses, "healthy", pause_s=0.005) as healthy:
            quiet = quiet_time(run, 5.0 if large else 0.5)
            for cycle in run.cycles():
                if run.executed == warm:
                    for one in stormed:
                        one.before = rss_anon(one.broker.child.pid)
                frames = [changed(cycle.rng, run.seed) for _ in range(IN_PROCESS)]
                run.counts["requests in them"] += sum(map(taken_apart, frames))
                for one in stormed:
                    run.counts["bytes heard"] += stranger(one.broker, frames[:each])
                run.counts["frames in process"] += IN_PROCESS
                run.counts["over sockets"] += each * len(stormed)
            over = time.monotonic()
        for one in stormed:
            one.check()
            one.grown = rss_anon(one.broker.child.pid) - one.before
        for one in stormed:
            assert one.broker.stop() == 0
    stolen.look()
    stolen.over.set()
    alone = p99_ms(healthy.between(*quiet))
    late = p99_ms(healthy.between(quiet[1], over))
    run.counts["p99 us alone"], run.counts["p99 us beside"] = round(1e3 * alone), round(1e3 * late)
    judge(run, stormed, began, stolen)
    if large:
        assert late <= max(2 * alone, WITH_MS), (alone, late)


def judge(run: Run, stormed: list[Stormed], began: float, stolen: StolenTime) -> None:
    """What grew, what failed, what was late."""
    for one, most in zip(stormed, (STATE_MAX, GROWN_MAX), strict=True):
        name = one.broker.data.parent.name
        run.counts[f"KiB of RSS more, {name}"] = one.grown >> 10
        assert one.grown < most, f"{name}: {one.grown >> 10} KiB more"
        one.check_log()
        steps = [step for step in steps_in(one.broker.steps_path) if step.at_s >= began]
        judged = [step.cpu_ms for step in steps if not stolen.within(step)]
        longest_ms = max(judged, default=0.0)
        run.worst("longest step us", round(1_000 * longest_ms))
        assert longest_ms <= STEP_MS * slowness(), f"{name}: {longest_ms:.0f} ms"
    run.counts["blocks of memory kept here"] = kept_by_decoding(run)
    assert run.counts["blocks of memory kept here"] < KEPT_BLOCKS_MAX


def kept_by_decoding(run: Run) -> int:
    """Blocks of memory that Python has more of after frames were decoded once more.

    Not the memory of the process: its progress bar and its watcher take megabytes of that.
    """
    frames = [changed(run.rng, run.seed) for _ in range(IN_PROCESS)]
    counts = []
    for _ in range(DECODED_AGAIN):
        for frame in frames:
            taken_apart(frame)
        gc.collect()
        counts.append(sys.getallocatedblocks())
    return counts[-1] - counts[0]


def quiet_time(run: Run, seconds: float) -> tuple[float, float]:
    """When the clients had no storm beside them: this process works as it will then."""
    began = time.monotonic()
    until = began + seconds
    while time.monotonic() < until:
        taken_apart(changed(run.rng, run.seed))
    return began, until


R8 = Campaign(
    key="R8",
    title="frames from the declared headers, changed, in process and over sockets",
    unit="thousand frames",
    t1=60,
    t2=1_000,
    run=frame_storm,
)
