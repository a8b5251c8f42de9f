"""What the machine says about itself."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING

from broker import host

if TYPE_CHECKING:
    import pytest


def test_there_is_at_least_one_cpu() -> None:
    assert host.cpu_count() >= 1


def test_every_address_is_one_and_none_is_the_loopback() -> None:
    for text in host.addresses():
        assert not ip_address(text).is_loopback


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
