"""Peers that only cost: idle ones, ones that read nothing, silent ones, and port scans.

R9: thousands of idle consumers, each with a heartbeat every 30 s. R10: consumers that ask for what
they never read. R17: connections whose packets are lost from one moment on. R18: connections that
come and go, with the bytes of port scanners, on every port. Each goes on beside a client at work.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign
from tests.kit.crowd import Crowd, Member, heartbeat_body, more_descriptors
from tests.kit.health import events, metrics_of, open_descriptors, rss_anon
from tests.kit.ports import HOST
from tests.kit.raw_client import (
    RawConnection,
    pull_fields,
    request_frame,
    send_fields,
    topic_fields,
)
from tests.kit.steady import Producers, fill, p99_ms
from tests.kit.tcp_proxy import TcpProxy
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from tests.kit.campaign import Run

KiB, MiB = 1 << 10, 1 << 20
SEND, PULL, HEART_BEAT, CREATE_TOPIC, MEMBERS = 310, 11, 34, 17, 38
HELD = 2 | 4
HUNDRED = 100
LARGE = 50
"""From so many cycles on it is a recorded run, on a machine with nothing else to do."""


def broker_of(run: Run, **settings: object) -> BrokerProcess:
    """One in the directory of the run, with large files."""
    large: dict[str, object] = {"mappedFileSizeCommitLog": 64 * MiB}
    return BrokerProcess(data=run.directory / "data", settings=large | settings)


def of_limit(broker: BrokerProcess, key: str) -> float:
    """What is used of a limit."""
    for name, labels, value in metrics_of(broker):
        if name == "aerobee_limit_used" and labels["limit"] == key:
            return value
    raise AssertionError(f"no limit {key}")


# ── R9 ──

IDLE_BYTES = 15 * KiB
ACCEPT_S = 10.0
WITH_MS = 5.0
"""A p99 below this says more about the machine than about idle connections."""
CALM_S = 10.0


def idle(run: Run) -> None:
    """So many hundreds of idle consumers beside one producer."""
    more_descriptors()
    count = run.wanted * HUNDRED
    large = run.wanted >= LARGE
    measured_s = CALM_S if large else 0.5
    with broker_of(run) as broker, Crowd(broker.address, log=run.directory / "crowd.log") as crowd:
        with Producers(broker.address, "busy", count=1, body_bytes=KiB, pause_s=0.002) as alone:
            broker.let_run(measured_s)
        before = rss_anon(broker.child.pid)
        began = time.monotonic()
        opened = crowd.open(
            [Member(f"10.0.0.1@{number}", f"g{number % 50}", "news") for number in range(count)]
        )
        took_s = time.monotonic() - began
        assert not opened["missing"], opened
        with Producers(broker.address, "busy", count=1, body_bytes=KiB, pause_s=0.002) as beside:
            broker.let_run(measured_s)
        each = (rss_anon(broker.child.pid) - before) // count
        assert of_limit(broker, "maxConnections") >= count
    p99 = p99_ms(alone.latencies_ms), p99_ms(beside.latencies_ms)
    run.counts["connections"] = count
    run.counts["accepted in ms"] = round(took_s * 1_000)
    run.counts["bytes of RSS each"] = each
    run.counts["p99 us alone"], run.counts["p99 us beside"] = (round(ms * 1_000) for ms in p99)
    assert each <= IDLE_BYTES, f"{each} bytes each"
    assert took_s <= ACCEPT_S, f"{took_s:.1f} s"
    if large:
        assert p99[1] <= max(1.2 * p99[0], WITH_MS), p99
    run.done(run.wanted)


R9 = Campaign(
    key="R9",
    title="idle connections with heartbeats, beside a producer",
    unit="hundreds of connections",
    t1=5,
    t2=100,
    run=idle,
)

# ── R10 ──

OF_ONE_BYTES = 1 * MiB
"""What one reader may leave unsent: the mark of writeBufferHighWaterMark."""
ANSWERS_BYTES = 2 * MiB
"""And the last answers beyond it, those under way when it was reached."""
PULLS = 100
STALL_S = 10.0


def stuck(broker: BrokerProcess) -> RawConnection:
    """A consumer that asks for everything and reads nothing."""
    consumer = RawConnection(broker.address)
    consumer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * KiB)
    fields = pull_fields("stuck", "waits", 0, 0, maxMsgNums=1_000)
    consumer.send_bytes(b"".join(request_frame(PULL, n, fields) for n in range(PULLS)))
    return consumer


def rate_of(broker: BrokerProcess, seconds: float) -> float:
    """What two producers send in a second."""
    with Producers(broker.address, "busy", count=2, body_bytes=KiB, pause_s=0.0) as producers:
        broker.let_run(seconds)
        return len(producers.latencies_ms) / seconds


def slow_readers(run: Run) -> None:
    """So many consumers stop reading at once, where megabytes wait for each of them."""
    readers, large = run.wanted, run.wanted >= LARGE
    stall_s = STALL_S if large else 1.0
    measured_s = 5.0 if large else 0.5
    with broker_of(run, writeStallTimeout=round(stall_s * 1_000)) as broker:
        fill(
            broker.address, "waits", size_bytes=(1_024 if large else 32) * MiB, body_bytes=64 * KiB
        )
        before = rss_anon(broker.child.pid)
        rates = [rate_of(broker, measured_s)]
        with ExitStack() as stack:
            for _ in range(readers):
                stack.enter_context(stuck(broker))
            began = time.monotonic()
            rates.append(rate_of(broker, measured_s))
            most = of_limit(broker, "writeBufferHighWaterMark")
            unsent = of_limit(broker, "maxOutboundBufferBytes")
            grown = rss_anon(broker.child.pid) - before
            # A slow machine refuses pulls that waited long; what is left may fit into the kernel.
            eventually(
                lambda: not of_limit(broker, "maxOutboundBufferBytes"),
                within_s=3 * stall_s + 5,
                what="each reader for which answers wait is closed",
            )
            took_s = time.monotonic() - began
            still_open = of_limit(broker, "maxConnections")
        rates.append(rate_of(broker, measured_s))
    # The host is not as fast all the time: alone is what came before and what came after.
    share = round(200 * rates[1] / (rates[0] + rates[2]))
    run.counts["readers"] = readers
    run.counts["KiB unsent of one"] = round(most) >> 10
    run.counts["MiB unsent of all"] = round(unsent) >> 20
    run.counts["MiB of RSS more"] = grown >> 20
    run.counts["closed within ms"] = round(took_s * 1_000)
    run.counts["sends of others %"] = share
    assert still_open < readers / 2, still_open
    assert 0 < most <= OF_ONE_BYTES + ANSWERS_BYTES, most
    assert grown <= 64 * MiB + readers * OF_ONE_BYTES * large, f"{grown >> 20} MiB"
    assert stall_s <= took_s <= 1.5 * stall_s + 5, took_s
    if large:
        assert share >= 90, share
    run.done(readers)


R10 = Campaign(
    key="R10",
    title="consumers that ask for what waits and read nothing",
    unit="readers",
    t1=20,
    t2=100,
    run=slow_readers,
)

# ── R17 ──

CLOSED_WITHIN_S = 130.0


def member_of(address: str, number: int, hold_ms: int) -> RawConnection:
    """A member of the group with a held pull."""
    member = RawConnection(address)
    beat = heartbeat_body(Member(f"lost-{number}", "half-open", "news"))
    assert member.call(HEART_BEAT, {}, beat).code == 0
    wait = {"sysFlag": HELD, "suspendTimeoutMillis": hold_ms}
    member.ask(PULL, pull_fields("half-open", "news", 0, 0, **wait))
    return member


def half_open(run: Run) -> None:
    """The packets of so many members of a group are lost from one moment on, one member stays."""
    count, large = run.wanted, run.wanted >= LARGE
    settings = {} if large else {"serverChannelMaxIdleTimeSeconds": 4}
    hold_ms, within_s = (15_000, CLOSED_WITHIN_S) if large else (3_000, 30.0)
    with (
        broker_of(run, **settings) as broker,
        TcpProxy(broker.address) as network,
        RawConnection(broker.address, timeout_s=within_s) as stays,
        ExitStack() as stack,
    ):
        assert stays.call(CREATE_TOPIC, topic_fields("news")).code == 0
        beat = heartbeat_body(Member("stays", "half-open", "news"))
        for number in range(count):
            stack.enter_context(member_of(network.address, number, hold_ms))
        assert stays.call(HEART_BEAT, {}, beat).code == 0
        eventually(
            lambda: of_limit(broker, "maxHeldPulls") >= count,
            within_s=within_s,
            what="pulls are held",
        )
        network.silence()
        began = time.monotonic()

        def alone() -> bool:
            assert stays.call(HEART_BEAT, {}, beat).code == 0
            listed = stays.call(MEMBERS, {"consumerGroup": "half-open"}).body
            return listed == b'{"consumerIdList":["stays"]}'

        eventually(alone, within_s=within_s, every_s=0.2, what="the group has one member left")
        took_s = time.monotonic() - began
        assert of_limit(broker, "maxConnections") == 1
        assert not of_limit(broker, "maxHeldPulls")
        assert stays.asked, "who stays is told of it"
    run.counts["closed within ms"] = round(took_s * 1_000)
    run.done(count)


R17 = Campaign(
    key="R17",
    title="members of a group whose packets are lost",
    unit="connections",
    t1=20,
    t2=100,
    run=half_open,
)

# ── R18 ──

PROBES = (
    b"",
    b"GET / HTTP/1.0\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"SSH-2.0-scan\r\n",
    b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",
    b"\x00" * 64,
    b"\xff" * 64,
    b"*1\r\n$4\r\nPING\r\n",
    struct.pack(">II", 1 << 20, 20) + b'{"code":',
)
OF_A_CYCLE = 250
WARM_UP = 2 * OF_A_CYCLE
"""Visits until a broker's memory has come to rest: some 5 MiB more than after its start."""
SCAN_BYTES = 2 * MiB
HTTP_BYTES = 160 * MiB
"""Cyclic garbage of the HTTP server, before the collector searches everything."""


def visit(port: int, rng: random.Random) -> None:
    """Connect, perhaps say something, perhaps listen, and be gone, now and then with a reset."""
    with suppress(OSError), socket.create_connection((HOST, port), timeout=5) as sock:
        sock.sendall(rng.choice(PROBES))
        kind = rng.random()
        if kind < 0.05:
            sock.settimeout(0.02)
            sock.recv(100)
        elif kind < 0.5:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def scan(run: Run) -> None:
    """Thousands of visits, the first half on the ports of the protocol, the others on that of HTTP;
    then everything is as before.
    """
    with broker_of(run) as broker:
        pid, ports = broker.child.pid, broker.ports
        listening = open_descriptors(pid)["socket"]
        targets = (ports.listen, ports.vip, broker.namesrv_port)
        warm = random.Random(0)
        with Producers(broker.address, "busy", count=1, body_bytes=KiB, pause_s=0.01) as beside:
            for _ in range(WARM_UP):
                visit(warm.choice(targets), warm)
            memory = [rss_anon(pid)]
            for cycle in run.cycles():
                of_http = 2 * run.executed >= run.wanted
                for _ in range(OF_A_CYCLE):
                    visit(ports.metrics if of_http else cycle.rng.choice(targets), cycle.rng)
                if not of_http:
                    memory.append(rss_anon(pid))
        eventually(
            lambda: open_descriptors(pid)["socket"] <= listening + 1,
            within_s=20,
            what="as many sockets as before",
        )
        more, of_all = memory[-1] - memory[0], rss_anon(pid) - memory[0]
        with RawConnection(broker.address) as late:
            assert late.call(SEND, send_fields("busy", 0), b"as always").code == 0
        assert broker.stop() == 0
    log = list(events(broker.log.read_text()))
    run.counts["connections"] = run.executed * OF_A_CYCLE
    run.counts["sends beside"] = len(beside.latencies_ms)
    run.counts["KiB of RSS more"] = more >> 10
    run.counts["KiB with HTTP"] = of_all >> 10
    run.counts["log lines"] = len(log)
    assert more < SCAN_BYTES, f"{more >> 10} KiB"
    assert of_all < HTTP_BYTES, f"{of_all >> 10} KiB"
    errors = [one for one in log if one["level"] == "error"]
    assert not errors, errors[:3]


R18 = Campaign(
    key="R18",
    title="connections that come and go, and port scans, on every port",
    unit="rounds of 250 connections",
    t1=4,
    t2=400,
    run=scan,
)
