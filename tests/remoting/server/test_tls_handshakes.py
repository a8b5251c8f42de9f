"""TLS of new connections: which kind is accepted, and peers that stall or storm (S16)."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.remoting.server import tls_handshakes
from aerobee.remoting.wire.codes import ResponseCode
from tests.kit.garbage import no_searches
from tests.kit.tls import Certificate, TlsConnection, greeting
from tests.remoting.server.test_reactor import Running, Way, call, in_thread, running

if TYPE_CHECKING:
    from tests.kit.logged import Logged

pytestmark = pytest.mark.trio


def plain(server: Running) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=10)
    sock.settimeout(10)
    return sock


async def until(wanted: Any) -> None:
    with trio.fail_after(10):
        while not wanted():  # noqa: ASYNC110  (nothing signals it)
            await trio.sleep(0.01)


async def test_a_permissive_port_speaks_both(shown: Certificate) -> None:
    async with running(Way(shown=shown)) as server:
        handshakes = server.reactor.shared.handshakes
        assert handshakes is not None
        handshakes.enforcing = False
        server.trusted = None
        with await server.client() as bare:
            server.trusted = shown
            with await server.client() as sealed:
                for client in (bare, sealed, bare, sealed):
                    assert (await call(client, body=b"x" * 70_000)).body == b"x" * 70_000
                stats = server.reactor.stats
                assert (stats.connections, stats.tls_connections) == (2, 1)
        await until(lambda: server.reactor.stats.tls_connections == 0)


async def test_an_enforcing_port_closes_what_is_plain_and_says_so(
    shown: Certificate, logged: Logged
) -> None:
    """S16: no way down to plain text."""
    async with running(Way(shown=shown)) as server:
        with await server.client() as good:
            server.trusted = None
            for _ in range(30):
                with await server.client() as bare:
                    bare.ask(31, {})
                    await in_thread(bare.hear_close)
            assert (await call(good)).code == 0
            assert server.reactor.stats.tls_failed["plain"] == 30
            assert server.reactor.stats.requests == 1
    lines = [line for line in logged if line["event"] == "tls.handshake_failed"]
    assert len(lines) == 20
    assert (lines[0]["kind"], lines[0]["reason"]) == ("plain", "tlsServerMode is enforcing")


async def test_stalled_handshakes_harm_nobody_and_end(
    shown: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S16: half a greeting, half a handshake, one byte; all are closed when their time is up."""
    monkeypatch.setattr(tls_handshakes, "HANDSHAKE_S", 1.0)
    monkeypatch.setattr(tls_handshakes, "LOOK_S", 0.1)
    hello = greeting(shown)
    async with running(Way(shown=shown)) as server:
        stalled = [plain(server) for _ in range(60)]
        for number, sock in enumerate(stalled):
            sock.sendall(hello[: (1, len(hello) - 1, len(hello))[number % 3]])
        with await server.client() as good:
            assert (await call(good)).code == 0
            await until(lambda: server.reactor.stats.tls_failed["timeout"] == 60)
            assert server.reactor.stats.connections == 1
            assert (await call(good)).code == 0
        for sock in stalled:
            sock.close()


async def test_of_too_many_handshakes_the_oldest_one_ends(
    shown: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_handshakes, "AT_ONCE", 5)
    async with running(Way(shown=shown)) as server:
        stalled = []
        for _ in range(9):
            stalled.append(plain(server))
            stalled[-1].sendall(b"\x16")
            await until(lambda: len(server.reactor.connections) == min(len(stalled), 5))
        assert await in_thread(stalled[0].recv, 1) == b""
        with await server.client() as good:
            assert (await call(good)).code == 0
        assert server.reactor.stats.tls_failed["crowded"] == 5
        for sock in stalled:
            sock.close()


@pytest.mark.parametrize(
    ("data", "kind"),
    [(b"\x16\x03\x01\x00\x05hello", "protocol"), (b"\x16\x03\x01\xff\xff", None)],
    ids=["no greeting", "a record of 65,535 bytes"],
)
async def test_what_only_begins_like_tls_closes_its_connection(
    shown: Certificate, data: bytes, kind: str | None
) -> None:
    async with running(Way(shown=shown)) as server:
        with plain(server) as bad, await server.client() as good:
            bad.sendall(data)
            if kind is None:
                bad.shutdown(socket.SHUT_WR)
            # An alert may come first.
            while await in_thread(bad.recv, 100):
                pass
            assert server.reactor.stats.tls_failed[kind or "closed"] == 1
            assert (await call(good)).code == 0


@pytest.mark.parametrize("kind", ["crowded", "protocol"])
async def test_a_handshake_that_fails_leaves_no_cycle(
    shown: Certificate, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """S16: the search for cycles gives up what survives a storm, so their memory would stay."""
    data = b"\x16\x03\x01\x00\x05hello"
    if kind == "crowded":
        # All of them wait for the thread, so the newest is the one that ends.
        monkeypatch.setattr(tls_handshakes, "AT_ONCE", 2)
        monkeypatch.setattr(tls_handshakes.Handshakes, "step", lambda self, handshake: None)
        data = greeting(shown)
    kept = 2 if kind == "crowded" else 0
    with ExitStack() as peers:
        made = peers.enter_context(no_searches(tls_handshakes.Handshake))
        async with running(Way(shown=shown)) as server:
            stats = server.reactor.stats
            for number in range(10):
                peers.enter_context(plain(server)).sendall(data)
                ended = max(0, number + 1 - kept)
                await until(lambda: stats.tls_failed[kind] == ended)  # noqa: B023  (done here)
            await until(lambda: made() == kept)


async def test_a_request_right_behind_the_handshake_is_served(shown: Certificate) -> None:
    """TLS 1.3: the client's last words and its first request come in one packet."""
    async with running(Way(shown=shown)) as server:
        for _ in range(10):
            with await server.client() as client:
                assert (await call(client, code=9999)).code == (
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                )


async def test_old_versions_are_refused(shown: Certificate) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with running(Way(shown=shown)) as server:
        with pytest.raises(OSError, match=r"(?i)version|closed|protocol"):
            await in_thread(TlsConnection, server.address, old)
        await until(lambda: server.reactor.stats.tls_failed["protocol"] == 1)
