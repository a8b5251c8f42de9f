from __future__ import annotations

import pytest

from aerobee.broker.config.settings.replication import HA_PEERS_MAX, peers
from aerobee.broker.replication.peers import Peers


def test_an_ipv4_address_may_be_written_as_an_ipv6_one() -> None:
    assert Peers("::ffff:10.0.0.2").admits("10.0.0.2")
    assert Peers("::ffff:10.0.0.0/120").admits("::ffff:10.0.0.9")
    assert not Peers("::ffff:10.0.0.2").admits("10.0.0.3")
    assert Peers("::/0").admits("fe80::1%eth0")


def test_addresses_and_networks_are_admitted_and_no_others() -> None:
    allowed = Peers("10.0.0.2;192.168.7.0/24;fd00::/8;127.0.0.1")
    for host in ("10.0.0.2", "192.168.7.200", "fd00::17", "::ffff:10.0.0.2", "fd00::1%eth0"):
        assert allowed.admits(host), host
    for host in ("10.0.0.3", "192.168.8.1", "fe80::1", "::1", "::ffff:10.0.0.3"):
        assert not allowed.admits(host), host
    assert not Peers("").admits("127.0.0.1")


@pytest.mark.parametrize("text", ["slave-1", "10.0.0.2:10912", "10.0.0.1/24", "10.0.0.0/33", "*"])
def test_a_list_with_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="no address and no network"):
        peers(f"10.0.0.9;{text}")


def test_the_list_is_bounded_and_normalised() -> None:
    assert peers(" 10.0.0.2 ; ; 10.1.0.0/16") == "10.0.0.2;10.1.0.0/16"
    with pytest.raises(ValueError, match="are possible"):
        peers(";".join(["10.0.0.2"] * (HA_PEERS_MAX + 1)))
