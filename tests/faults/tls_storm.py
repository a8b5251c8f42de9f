"""S16H: a storm of TLS handshakes: the loop goes on while a thread signs.

Each cycle a thousand peers connect and say their greeting at once; the broker answers each with a
signature, or closes it where there are too many. Whoever is connected goes on meanwhile, and
somebody new gets in afterwards. The second half of many storms leaves no more memory in use than
the first.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from tests.kit.campaign import Campaign
from tests.kit.health import open_descriptors, rss_anon, slowness
from tests.kit.ports import HOST
from tests.kit.raw_client import send_fields
from tests.kit.stall_watch import WatchedBroker
from tests.kit.steady import p99_ms
from tests.kit.tls import TlsConnection, certificate, client_context, greeting
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    import ssl

    from tests.kit.campaign import Run

PEERS, PEERS_SMALL = 1_000, 200
LARGE = 20
"""From so many cycles on it is a recorded run."""
SEND = 310
HEARD_WITHIN_S = 30.0
STALL_MS = 20.0
GROWN_MAX = 96 << 20
"""512 handshakes in progress, at some 45 kB each, and what the allocator keeps of them."""
LATER_MAX = 4 << 20
"""In the second half of a recorded run: what the allocator keeps, it has by then."""
IDLE_SOCKETS = 16


class Steady(threading.Thread):
    """A client through TLS that was there before."""

    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        super().__init__(daemon=True)
        self.connection = TlsConnection(address, context)
        self.over = threading.Event()
        self.took_ms: list[float] = []

    def run(self) -> None:
        while not self.over.wait(0.005):
            began = time.perf_counter()
            answer = self.connection.call(SEND, send_fields("steady", 0), b"as always")
            assert answer.code == 0, answer
            self.took_ms.append((time.perf_counter() - began) * 1_000)


def handshakes(run: Run) -> None:
    """Storm after storm on one broker."""
    peers = PEERS if run.wanted >= LARGE else PEERS_SMALL
    shown = certificate(run.directory)
    context, hello = client_context(shown), greeting(shown)
    settings = {
        "tlsServerMode": "enforcing",
        "tlsServerCertPath": shown.cert,
        "tlsServerKeyPath": shown.key,
    }
    broker = WatchedBroker(data=run.directory / "data", settings=settings)
    with broker.watched() as gaps:
        pid = broker.child.pid
        steady = Steady(broker.address, context)
        steady.start()
        before = rss_anon(pid)
        for _ in run.cycles():
            answered = storm(broker, hello, peers)
            run.counts["greetings"] += peers
            run.counts["answered"] += answered
            with TlsConnection(broker.address, context) as late:
                assert late.call(SEND, send_fields("steady", 1), b"new").code == 0
            assert answered, "nobody was answered"
            grown = rss_anon(pid) - before
            run.worst("MiB more", grown >> 20)
            if run.executed < run.wanted // 2:
                run.worst("KiB in the first half", grown >> 10)
        steady.over.set()
        steady.join(timeout=30)
        steady.connection.close()
        eventually(
            lambda: open_descriptors(pid)["socket"] <= IDLE_SOCKETS,
            within_s=30,
            what="their sockets are gone",
        )
        run.counts["KiB in the end"] = (rss_anon(pid) - before) >> 10
    later = run.counts["KiB in the end"] - run.counts["KiB in the first half"]
    assert run.counts["KiB in the end"] < GROWN_MAX >> 10
    if run.wanted >= LARGE:
        assert later < LATER_MAX >> 10, f"{later} KiB more in the second half: a leak?"
    run.counts["sends beside them"] = len(steady.took_ms)
    run.counts["p99 us of those"] = round(1_000 * p99_ms(steady.took_ms))
    stall = max((min(gap.stall_ms, gap.cpu_ms) for gap in gaps), default=0.0)
    run.counts["longest turn us"] = round(1_000 * stall)
    assert stall <= STALL_MS * slowness(), f"{stall:.1f} ms"


def storm(broker: WatchedBroker, hello: bytes, peers: int) -> int:
    """So many greetings at once; how many were answered."""
    answered = 0
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(
                socket.create_connection((HOST, broker.ports.listen), HEARD_WITHIN_S)
            )
            for _ in range(peers)
        ]
        for one in sockets:
            with suppress(ConnectionError):
                one.sendall(hello)
        for one in sockets:
            with suppress(ConnectionError):
                answered += bool(one.recv(1))
    return answered


S16H = Campaign(
    key="S16H",
    title="a thousand TLS handshakes at once, beside a client",
    unit="storms",
    t1=2,
    t2=40,
    run=handshakes,
)
