"""White addresses: every form that RocketMQ knows, and texts that have none."""

from ipaddress import ip_address

import pytest

from aerobee.broker.access.white_addresses import WhiteAddresses


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("", "", "10.0.0.1 ::1"),
        ("10.0.0.1", "10.0.0.1", "10.0.0.2 10.0.0.11 ::1"),
        ("*", "10.0.0.1 ::1", ""),
        ("*.*.*.*", "10.0.0.1 ::1", ""),
        ("*:*:*:*:*:*:*:*", "10.0.0.1 ::1", ""),
        ("192.168.0.*", "192.168.0.0 192.168.0.255", "192.168.1.0 192.169.0.1"),
        ("192.168.*", "192.168.0.0 192.168.255.255", "192.169.0.1"),
        ("192.168.*.*", "192.168.9.9", "192.169.9.9"),
        ("192.168.0.1-20", "192.168.0.1 192.168.0.20", "192.168.0.0 192.168.0.21"),
        ("192.168.1-20.*", "192.168.1.0 192.168.20.255", "192.168.21.0"),
        ("10.1.1.{1,3}", "10.1.1.1 10.1.1.3", "10.1.1.2 10.1.1.13"),
        ("10.1.1.{1, 7-9},10.2.0.1", "10.1.1.1 10.1.1.8 10.2.0.1", "10.1.1.2"),
        ("10.0.0.1, 10.0.0.2", "10.0.0.1 10.0.0.2", "10.0.0.3"),
        ("::1", "::1", "::2 0.0.0.1"),
        ("fe80::{1,2a}", "fe80::1 fe80::2a", "fe80::2 fe81::1"),
        ("2001:db8:0:0:0:0:0:1-ff", "2001:db8::1 2001:db8::ff", "2001:db8::100"),
        ("2001:db8::*:*", "2001:db8::ffff:1", "2001:db8::1:0:0"),
    ],
)
def test_the_forms(text: str, inside: str, outside: str) -> None:
    white = WhiteAddresses([text])
    assert bool(white) is bool(text)
    assert all(white.covers(ip_address(host)) for host in inside.split())
    assert not any(white.covers(ip_address(host)) for host in outside.split())


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0",
        "10.0.0.0.1",
        "10.0.0.256",
        "10.0.0.20-1",
        "10.0.0.-5",
        "10.0.0.{}",
        "10.0.0.{1,",
        "10.0.0.1/24",
        "10..0.1",
        "localhost",
        "1::2::3",
        "fe80::g",
        "1:2:3",
        "١.1.1.1",
        "10.0.0.1,",
    ],
)
def test_what_has_no_form_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        WhiteAddresses([text])
