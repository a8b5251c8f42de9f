"""Peers on the port of the replication that are not what they should be, on either side.

H8: a slave is sent frames that no master sends. It says what is wrong and keeps its log as it was
in front of that, goes on serving, and copies its real master once it is started again. H9:
strangers and liars come to a master. Whatever they report, no send is answered 0 that no slave has;
the real slave gets everything, and nothing is left of them.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Self

from tests.faults.replica_kills import AWAY, Life
from tests.kit.campaign import Campaign
from tests.kit.crowd import more_descriptors
from tests.kit.health import events, open_descriptors, rss_anon
from tests.kit.ports import HOST, free_block
from tests.kit.replicas import (
    SEGMENT_BYTES,
    Replicas,
    expect_prefix,
    ha_status,
    log_end,
    probe,
    segments,
)
from tests.kit.tcp_proxy import TcpProxy
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.kit.broker_process import BrokerProcess
    from tests.kit.campaign import Cycle, Run

HEAD = struct.Struct(">qi")
REPORT = struct.Struct(">q")
FRAME = 32_768
TOLD_WITHIN_S = 30.0
STRANGER, LIAR = "127.0.0.2", "127.0.0.3"
CROWD = 1_000
MORE_KIB = 4_096
"""So much more memory at most when all strangers are gone: what a run of sends moves by itself."""


class FalseMaster:
    """Answers each report with the bytes that `says` makes of the offset, then only listens."""

    def __init__(self, port: int, says: Callable[[int], bytes]) -> None:
        self._says = says
        self._listener = socket.create_server((HOST, port))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.reports: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(TOLD_WITHIN_S)
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        data = connection.recv(4_096)
        if len(data) >= REPORT.size:
            (end,) = REPORT.unpack_from(data)
            self.reports.append(end)
            connection.sendall(self._says(end))
        while connection.recv(4_096):
            pass


def frame(offset: int, data: bytes) -> bytes:
    """A frame as a master would send it."""
    return HEAD.pack(offset, len(data)) + data


class Lies:
    """What a false master sends a slave whose log ends at some offset, by the name of the lie.

    `log` is the real log; each lie begins with some of it, which is true.
    """

    def __init__(self, log: bytes, end: int, rng: random.Random) -> None:
        self.log, self.end, self.rng = log, end, rng

    def true(self, at: int, size: int) -> bytes:
        """Frames with so many bytes of the log, none beyond the end of a segment."""
        found, until = b"", min(at + size, self.end)
        while at < until:
            stop = min(until, at + FRAME, at - at % SEGMENT_BYTES + SEGMENT_BYTES)
            found += frame(at, self.log[at:stop])
            at = stop
        return found

    def changed(self, at: int) -> bytes:
        """Another bit of a record, where it can be noticed: the properties have no checksum."""
        size = int.from_bytes(self.log[at : at + 4], "big")
        record = bytearray(self.log[at : at + size])
        noticed = [*range(12), *range(28, 36), *range(88, 88 + self._body(at))]
        record[self.rng.choice(noticed)] ^= 1 << self.rng.randrange(8)
        # A greater size must not be one that is only waited for.
        return frame(at, bytes(record)) + frame(at + size, self.log[at + size : at + FRAME])

    def _body(self, at: int) -> int:
        return int.from_bytes(self.log[at + 84 : at + 88], "big")

    def negative_size(self, at: int) -> bytes:
        return HEAD.pack(at, -self.rng.randint(1, 1 << 31))

    def greatest_size(self, at: int) -> bytes:
        return HEAD.pack(at, (1 << 31) - 1)

    def negative_offset(self, at: int) -> bytes:
        return HEAD.pack(-1 - at, 100)

    def beyond_every_log(self, at: int) -> bytes:
        return HEAD.pack((1 << 63) - 10, 100)

    def gap(self, at: int) -> bytes:
        return frame(at + self.rng.randint(1, 1_000), b"x" * 100)

    def overlap(self, at: int) -> bytes:
        return frame(max(0, at - self.rng.randint(1, 1_000)), self.log[at : at + 100])

    def other_heartbeat(self, at: int) -> bytes:
        return frame(at + 1, b"")

    def beyond_its_segment(self, at: int) -> bytes:
        left = SEGMENT_BYTES - at % SEGMENT_BYTES
        return frame(at, self.log[at : at + left] + bytes(64))

    def random_bytes(self, at: int) -> bytes:
        return frame(at, b"\x7f" + self.rng.randbytes(FRAME))

    def zeros(self, at: int) -> bytes:
        return frame(at, bytes(FRAME // 2))

    def early_blank(self, at: int) -> bytes:
        """The end of a smaller segment."""
        return frame(at, struct.pack(">II", 1_000, 0xCBD43194) + bytes(992))

    def no_frames(self, at: int) -> bytes:
        return b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10


LIES = (
    "changed",
    "negative_size",
    "greatest_size",
    "negative_offset",
    "beyond_every_log",
    "gap",
    "overlap",
    "other_heartbeat",
    "beyond_its_segment",
    "random_bytes",
    "zeros",
    "early_blank",
    "no_frames",
)


def false_masters(run: Run) -> None:
    """H8: a lie in each cycle, in turn, behind some of the true log."""
    with Replicas(run.directory / "pair") as pair:
        life = Life(run, pair)
        while run.more:
            cycle = run.cycle()
            pair.slave.kill()
            with life.loaded(cycle, alone=True):
                pass
            # It takes back a slave with bytes that it has not sent since its start only if it had
            # them at its start.
            pair.master.kill()
            pair.master.start()
            lied_to(life, cycle, LIES[cycle.number % len(LIES)])
            pair.slave.start()
            life.check_equal()
            run.done()
        life.end()


def lied_to(life: Life, cycle: Cycle, lie: str) -> None:
    """The slave is behind its master, and another one sends it what comes next."""
    pair, slave = life.pair, life.pair.slave
    end = log_end(pair.master.address)
    log = b"".join(path.read_bytes() for path in segments(pair.master.data).values())
    lies, ports = Lies(log, end, cycle.rng), free_block()
    truth = cycle.rng.choice((0, 1, 50, FRAME))

    def says(at: int) -> bytes:
        at_record = next_record(log, at, truth)
        return lies.true(at, at_record - at) + bytes(getattr(lies, lie)(at_record))

    settings = slave.settings
    slave.settings = {**settings, "haMasterAddress": f"{HOST}:{ports.ha}"}
    told = slave.log.stat().st_size
    with (
        FalseMaster(ports.ha, says) as false,
        TcpProxy(pair.master.address, at=(HOST, ports.listen)),
    ):
        slave.start()
        eventually(
            lambda: "replication.diverged" in slave.log.read_text()[told:],
            within_s=TOLD_WITHIN_S,
            what=f"the slave says that what it was sent is wrong: {lie}",
        )
        kept = log_end(slave.address)
        good = next_record(log, false.reports[0], truth)
        assert kept == good, f"{lie}: the log ends at {kept}, and {good} bytes were right"
        expect_prefix(slave.data, pair.master.data, kept)
        slave.kill()
    slave.settings = settings
    (said,) = (
        one
        for one in events(slave.log.read_text()[told:])
        if one["event"] == "replication.diverged"
    )
    assert said["level"] == "error"
    assert said["reason"], said
    life.run.counts[f"sent: {lie.replace('_', ' ')}"] += 1


def next_record(log: bytes, at: int, least: int) -> int:
    """The begin of the first record, at least so many bytes behind one that begins at `at`."""
    until = at + least
    while at < until:
        at += int.from_bytes(log[at : at + 4], "big")
    return at


def strangers(run: Run) -> None:
    """H9: a thousand connections from outside, and liars that may come in."""
    more_descriptors()
    of_master = {"haPeers": f"{HOST};{LIAR}"}
    with Replicas(run.directory / "pair", of_master=of_master) as pair:
        life = Life(run, pair)
        master = pair.master
        with life.loaded(run.cycle()):
            pass
        files, kib = open_descriptors(master.child.pid)["socket"], rss_anon(master.child.pid) >> 10
        for cycle in run.cycles():
            with life.loaded(cycle) as load:
                crowd(master, life)
                lie_to(master, cycle.rng)
                before = load.acks
                load.wait_for_acks(before + 50, within_s=60)
            assert not load.refused, load.refused[:3]
            forged(pair)
            life.check_equal()
            eventually(
                lambda: open_descriptors(master.child.pid)["socket"] <= files,
                within_s=TOLD_WITHIN_S,
                what="the connections of strangers are closed",
            )
            more = (rss_anon(master.child.pid) >> 10) - kib
            run.worst("KiB more", more)
            assert more < MORE_KIB, f"{more} KiB more after {CROWD} strangers"
        life.end()


def crowd(master: BrokerProcess, life: Life) -> None:
    """All at once, from an address that may not come in."""
    with ExitStack() as stack:
        for _ in range(CROWD):
            connection = stack.enter_context(connect(master, STRANGER))
            connection.settimeout(TOLD_WITHIN_S)
            with suppress(OSError):
                connection.sendall(REPORT.pack(0))
            try:
                data = connection.recv(1)
            except ConnectionError:
                data = b""
            assert not data, "a stranger was sent something"
            life.run.counts["strangers turned away"] += 1


def connect(master: BrokerProcess, source: str) -> socket.socket:
    """A connection to the port of the replication, from one of this machine's addresses."""
    return socket.create_connection((HOST, master.ports.ha), source_address=(source, 0))


def lie_to(master: BrokerProcess, rng: random.Random) -> None:
    """Reports of every wrong kind, one connection after the other."""
    end = log_end(master.address)
    reports = [-1, -(1 << 63), (1 << 63) - 1, 1 << 40, end + 1_000_000, end - 7, 1]
    for report in reports:
        with connect(master, LIAR) as liar:
            liar.sendall(REPORT.pack(report) + REPORT.pack(rng.randint(-(1 << 63), (1 << 63) - 1)))
    with connect(master, LIAR) as liar:
        liar.sendall(rng.randbytes(100_000))
    with connect(master, LIAR) as liar:
        # Half a report, and then nothing.
        liar.sendall(bytes(3))
    with connect(master, LIAR) as liar:
        # It asks for everything, and reads nothing.
        liar.sendall(REPORT.pack(0))


def forged(pair: Replicas) -> None:
    """No report of what was never sent makes a send that nobody has one that is on two machines."""
    pair.slave.kill()
    eventually(lambda: probe(pair.master.address) in AWAY, within_s=20, what="the slave is away")
    for report in (1 << 40, (1 << 63) - 1, -1):
        with connect(pair.master, LIAR) as liar:
            liar.sendall(REPORT.pack(report))
            eventually(
                lambda: bool(ha_status(pair.master.address)["haConnectionInfo"]),
                within_s=20,
                what="the liar is shown",
            )
            assert probe(pair.master.address) in AWAY, report
            assert ha_status(pair.master.address)["inSyncSlaveNums"] == 0
    with connect(pair.master, LIAR) as liar:
        # It follows from the end, and says that it has more than it was sent.
        liar.sendall(REPORT.pack(log_end(pair.master.address)))
        liar.sendall(REPORT.pack(1 << 40))
        assert probe(pair.master.address) in AWAY, "a report beyond what was sent counts"
    pair.slave.start()


H8 = Campaign(
    key="H8",
    title="a slave is sent frames that no master sends",
    unit="lies",
    t1=1,
    t2=130,
    run=false_masters,
)
H9 = Campaign(
    key="H9",
    title="strangers and liars on a master's port for slaves",
    unit="crowds",
    t1=1,
    t2=20,
    run=strangers,
)
