"""What the machine says about itself."""

from __future__ import annotations

import errno
import os
import socket
from ipaddress import ip_address

import pytest

from aerobee.broker.config.load import load_config
from aerobee.broker.process import host


@pytest.mark.parametrize(
    ("bound", "where", "is_there"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.1", "names.example", False),
        ("0.0.0.0", "localhost", True),
        ("0.0.0.0", "192.0.2.7", False),
        ("::", "[::1]", True),
    ],
)
def test_it_is_known_without_asking_anybody_whether_a_listener_is_there(
    bound: str, where: str, is_there: bool
) -> None:
    assert host.listens_at(bound, where) is is_there


def test_a_name_server_under_the_name_of_this_broker_is_its_own() -> None:
    """No name is resolved: a member of a group lists all members, itself among them."""
    names = f"a.mq:9876;b.mq:9876;{socket.gethostname()}:9876;b.mq:9877"
    config = load_config(
        None,
        overrides=[f"namesrvAddr={names}", "brokerIP1=192.0.2.7", "brokerIP2=b.mq"],
        environ={"HOME": "/h"},
        cpu_count=1,
        host_addresses=[],
        host_name="b",
    )
    assert host.other_name_servers(config) == ["a.mq:9876", "b.mq:9877"]


def test_there_is_at_least_one_cpu() -> None:
    assert host.cpu_count() >= 1


def test_every_address_is_one_and_none_is_the_loopback() -> None:
    for text in host.addresses():
        assert not ip_address(text).is_loopback


def test_interfaces_are_found_without_a_netlink_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """The systemd unit allows none, and `if_nameindex` fails there."""
    known = [name for _, name in socket.if_nameindex()]

    def refused() -> list[tuple[int, str]]:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    monkeypatch.setattr(socket, "if_nameindex", refused)
    assert host.interfaces() == known
    host.addresses()


def test_the_loopback_interface_gives_no_address_and_neither_does_a_missing_one() -> None:
    assert host.ipv4_of("lo") == ""
    assert host.ipv4_of("none-such") == ""


def test_aliases_are_virtual() -> None:
    assert host.is_virtual("eth0:1")
    assert not host.is_virtual("none-such")


def test_a_host_whose_name_leads_nowhere_has_no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> list[object]:
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert host.resolved() == []
