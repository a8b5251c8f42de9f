"""Machines in namespaces: what is lost one way, what is healed, whose sockets a thread makes."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.kit.machine_network import MachineNetwork, machine_network
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.faults
PORT = 20_000
SHORT_S, WITHIN_S = 0.3, 30.0


@pytest.fixture(scope="module")
def network() -> Iterator[MachineNetwork]:
    with machine_network(["m1", "m2", "c1"]) as network:
        yield network


@pytest.fixture
def listener(network: MachineNetwork) -> Iterator[socket.socket]:
    with network.inside("m1"):
        listener = socket.create_server((network.addresses["m1"], PORT))
    with listener:
        yield listener
    network.heal()


def reaches(network: MachineNetwork, name: str) -> bool:
    """Whether a machine can connect to m1."""
    with network.inside(name):
        try:
            socket.create_connection((network.addresses["m1"], PORT), timeout=SHORT_S).close()
        except OSError:
            return False
    return True


def test_each_machine_has_its_own_address(network: MachineNetwork, listener: socket.socket) -> None:
    for name in ("c1", "m2"):
        assert reaches(network, name)
        connection, (address, _) = listener.accept()
        connection.close()
        assert address == network.addresses[name]


@pytest.mark.usefixtures("listener")
def test_a_way_is_lost_in_one_direction_and_healed(network: MachineNetwork) -> None:
    network.lose("c1", "m1")
    assert not reaches(network, "c1")
    assert reaches(network, "m2")
    network.heal()
    eventually(lambda: reaches(network, "c1"), within_s=WITHIN_S, what="c1 reaches m1 again")
    network.lose("m1", "c1")
    assert not reaches(network, "c1"), "the answer has no way back"


@pytest.mark.usefixtures("listener")
def test_parts_of_a_network_do_not_reach_each_other(network: MachineNetwork) -> None:
    network.part(["m1", "m2"], ["c1"])
    assert not reaches(network, "c1")
    assert reaches(network, "m2")
    with socket.create_connection((network.addresses["m1"], PORT), timeout=WITHIN_S):
        pass  # the test itself reaches everybody


@pytest.mark.usefixtures("listener")
def test_a_slow_link_is_one_until_it_is_healed(network: MachineNetwork) -> None:
    network.slow("c1", kbit=500)
    assert reaches(network, "c1") or reaches(network, "m2")
    network.heal()
    assert network.slowed == set()
