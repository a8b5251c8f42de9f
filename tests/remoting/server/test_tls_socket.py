"""The stage of a connection that encrypts: partial sends, records of any size, its end."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from aerobee.remoting.server.tls_socket import RECORDS_PER_TURN, TlsSocket
from aerobee.remoting.stats import RemotingStats
from tests.kit.tls import Certificate, client_context, server_context
from tests.remoting.server.stage import TrickleSocket

if TYPE_CHECKING:
    from collections.abc import Iterable


class Ends:
    """Our stage above a socket that takes and gives what the test says, and the peer's end."""

    def __init__(self, shown: Certificate, takes: Iterable[int] = ()) -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.peer = client_context(shown).wrap_bio(
            to_client, to_server, server_hostname="127.0.0.1"
        )
        ours = server_context(shown).wrap_bio(to_server, to_client, server_side=True)
        for _ in range(3):
            for side in (self.peer, ours):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        self.to_server, self.to_client = to_server, to_client
        self.sock = TrickleSocket(7, takes)
        self.stats = RemotingStats()
        # What the peer has for us so far is nothing: its end of the handshake was taken above.
        from_peer, to_peer = to_server, to_client
        self.stage = TlsSocket(self.sock, ours, from_peer, to_peer, self.stats)  # type: ignore[arg-type]  # it has the methods that are used

    def say(self, data: bytes) -> None:
        """The peer sends one record."""
        self.peer.write(data)
        self.sock.incoming += self.to_server.read()

    def heard(self) -> bytes:
        """What the peer has of what went out."""
        self.to_client.write(bytes(self.sock.taken))
        self.sock.taken.clear()
        found = bytearray()
        try:
            while True:
                found += self.peer.read(1 << 16)
        except ssl.SSLWantReadError:
            return bytes(found)


def received(stage: TlsSocket, size: int) -> bytes:
    buffer = memoryview(bytearray(size))
    return bytes(buffer[: stage.recv_into(buffer)])


def test_what_the_network_takes_in_parts_counts_as_sent_in_parts(shown: Certificate) -> None:
    ends = Ends(shown, takes=[0, 5_000, 0, 9_000, 20_000, 1])
    left = bytes(range(256)) * 200
    whole, out, steps = left, b"", 0
    while left:
        # The queue of a connection: what was counted is gone, the rest comes again.
        sent = ends.stage.sendmsg([left[:100], left[100:]])
        assert 0 <= sent <= len(left)
        left = left[sent:]
        out += ends.heard()
        assert len(whole) - len(left) <= len(out) + 16_384 + 512
        steps += 1
        assert steps < 20
    assert out == whole


def test_nothing_is_sent_twice_when_more_is_queued_behind_a_part(shown: Certificate) -> None:
    ends = Ends(shown, takes=[1_000])
    first = ends.stage.send(b"a" * 3_000)
    assert first < 3_000
    rest: list[bytes | memoryview] = [b"a" * (3_000 - first), b"b" * 500]
    assert ends.stage.sendmsg(rest) == 3_500 - first
    assert ends.heard() == b"a" * 3_000 + b"b" * 500


def test_a_record_larger_than_the_buffer_is_pending_until_it_is_read(shown: Certificate) -> None:
    ends = Ends(shown)
    ends.say(b"x" * 10_000)
    assert received(ends.stage, 4_096) == b"x" * 4_096
    assert ends.stage.pending
    assert received(ends.stage, 4_096) + received(ends.stage, 4_096) == b"x" * 5_904
    assert not ends.stage.pending
    with pytest.raises(BlockingIOError):
        received(ends.stage, 4_096)


def test_a_cut_record_gives_nothing_until_it_is_whole(shown: Certificate) -> None:
    ends = Ends(shown)
    ends.say(b"whole")
    data, ends.sock.incoming = ends.sock.incoming, bytearray()
    for byte in data[:-1]:
        ends.sock.incoming.append(byte)
        with pytest.raises(BlockingIOError):
            received(ends.stage, 100)
        assert not ends.stage.pending
    ends.sock.incoming.append(data[-1])
    assert received(ends.stage, 100) == b"whole"


def test_a_flood_of_tiny_records_is_read_in_turns(shown: Certificate) -> None:
    ends = Ends(shown)
    for _ in range(600):
        ends.say(b"z")
    seen = 0
    while seen < 600:
        got = len(received(ends.stage, 1 << 18))
        assert 0 < got <= RECORDS_PER_TURN
        seen += got


def test_a_damaged_record_ends_the_connection_with_an_error(shown: Certificate) -> None:
    ends = Ends(shown)
    ends.say(b"x" * 100)
    ends.sock.incoming[50] ^= 1
    # OpenSSL 3.5 names the layer, those before it the check.
    with pytest.raises(ConnectionAbortedError, match=r"TLS: .*(MAC|RECORD_LAYER)"):
        received(ends.stage, 1_000)


def test_both_sides_say_that_nothing_follows(shown: Certificate) -> None:
    ends = Ends(shown)
    with pytest.raises(ssl.SSLWantReadError):
        ends.peer.unwrap()
    ends.sock.incoming += ends.to_server.read()
    assert received(ends.stage, 100) == b""
    other = Ends(shown)
    assert other.stats.tls_connections == 1
    other.stage.close()
    assert (other.sock.closed, other.stats.tls_connections) == (True, 0)
    other.to_client.write(bytes(other.sock.taken))
    # Behind the session tickets; where nothing had been said, it would want to read more.
    assert other.peer.read(10) == b""


def test_half_a_record_on_its_way_is_not_followed_by_an_end(shown: Certificate) -> None:
    ends = Ends(shown, takes=[10])
    ends.stage.send(b"y" * 1_000)
    ends.stage.close()
    assert len(ends.sock.taken) == 10
