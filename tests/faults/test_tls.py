"""Peers that begin a TLS handshake and do not go on with it, against the real broker (S16)."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from aerobee.remoting.server.tls_handshakes import AT_ONCE
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import metrics_of, open_descriptors, rss_anon
from tests.kit.tls import TlsConnection, certificate, client_context, greeting
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.faults

STALLED = 1_000
BYTES_EACH = 64 << 10
WITHIN_S = 2.0
"""An answer takes milliseconds; the machine may be busy."""
ALL_TOPICS = 206


def test_a_thousand_stalled_handshakes_leave_room_and_harm_nobody(tmp_path: Path) -> None:
    """S16. They end after 10 s, which the tests of the handshakes see with less patience."""
    shown = certificate(tmp_path)
    context, hello = client_context(shown), greeting(shown)
    settings = {
        "tlsServerMode": "enforcing",
        "tlsServerCertPath": shown.cert,
        "tlsServerKeyPath": shown.key,
    }
    with BrokerProcess(data=tmp_path / "data", settings=settings) as broker:
        pid = broker.child.pid
        with TlsConnection(broker.namesrv_address, context) as good:
            good.call(ALL_TOPICS, {})
            before = rss_anon(pid), open_descriptors(pid)["socket"]
            stalled = []
            slowest_s = 0.0
            for number in range(STALLED):
                stalled.append(
                    socket.create_connection((broker.address.split(":")[0], broker.ports.listen))
                )
                stalled[-1].sendall(hello if number % 2 else hello[:5])
                if number % 50 == 0:
                    began = time.monotonic()
                    good.call(ALL_TOPICS, {})
                    slowest_s = max(slowest_s, time.monotonic() - began)

            def crowded() -> bool:
                seen = {
                    labels.get("result"): value
                    for name, labels, value in metrics_of(broker)
                    if name == "aerobee_tls_handshakes_total"
                }
                return seen["crowded"] + seen["timeout"] >= STALLED - AT_ONCE

            eventually(crowded, within_s=10, what="the oldest are closed")
            assert slowest_s < WITHIN_S
            assert open_descriptors(pid)["socket"] <= before[1] + AT_ONCE + 8
            assert rss_anon(pid) <= before[0] + AT_ONCE * BYTES_EACH
            with TlsConnection(broker.address, context) as late:
                assert late.call(31, {}).code != 0, "a request without fields is refused"
            for sock in stalled:
                sock.close()
