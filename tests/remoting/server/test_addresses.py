"""Connections counted by client address."""

from __future__ import annotations

from aerobee.remoting.server.addresses import Addresses, packed_host, source_named


def host(address: str) -> bytes:
    return packed_host((address, 50_000))


def test_connections_are_counted_by_address_or_network() -> None:
    addresses = Addresses(2)
    for one in ("10.0.0.1", "10.0.0.1", "2001:db8::1", "2001:db8::ffff:1", "::ffff:10.0.0.2"):
        assert not addresses.full(host(one))
        addresses.opened(host(one))
    assert addresses.full(host("::ffff:10.0.0.1")), "an IPv4 client, however it came"
    assert addresses.full(host("2001:db8::2")), "the same network of 64 bits"
    assert not addresses.full(host("2001:db8:0:1::1"))
    assert not addresses.full(host("10.0.0.2"))
    assert addresses.most() == 2
    for one in ("10.0.0.1", "10.0.0.1", "2001:db8::3", "2001:db8::3", "10.0.0.2"):
        addresses.closed(host(one))
    assert not addresses.open


def test_an_address_as_a_text_is_counted_alike() -> None:
    assert source_named("2001:db8::1") == source_named("2001:db8::ffff:1%eth0")
    assert source_named("2001:db8::1") != source_named("2001:db8:0:1::1")
    assert source_named("::ffff:10.0.0.1") == source_named("10.0.0.1")
    assert source_named("10.0.0.1") != source_named("10.0.0.2")
    assert source_named("") == ""


def test_without_a_limit_there_is_always_room() -> None:
    addresses = Addresses()
    for _ in range(100):
        addresses.opened(host("10.0.0.1"))
    assert not addresses.full(host("10.0.0.1"))
