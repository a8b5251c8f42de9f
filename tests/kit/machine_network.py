"""A network of several machines, each in a namespace of its own, in which packets can be lost.

    with machine_network(["m1", "m2", "m3", "etcd", "c1"]) as network:
        BrokerProcess(..., network=network.spaces["m1"], host=network.addresses["m1"])
        with network.inside("c1"):                  this thread's sockets are those of a client
            ...
        network.lose("m1", "m2")                    one way
        network.part(["m1", "c1"], ["m2", "m3"])    both ways
        network.slow("m1", kbit=500)                what it sends
        network.heal()

All hang on one bridge, and the test itself reaches each of them, whatever is lost between them. A
lost way is a wrong address of the neighbour, see `split_network`. Needs root; skips the test where
that is missing.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.kit.split_network import NOBODY, ip

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

NUMBERS = itertools.count()
SPACES: Final = Path("/run/netns")
OURS: Final = Path("/proc/thread-self/ns/net")
CLONE_NEWNET: Final = 0x4000_0000
SLOW_QUEUE: Final = ("burst", "32kbit", "latency", "400ms")


class MachineNetwork:
    """The machines by name: their namespaces, their addresses, and what is lost between them."""

    def __init__(self, names: Sequence[str], subnet: int) -> None:
        mark = f"{os.getpid()}-{next(NUMBERS)}"
        self._bridge = f"mb{mark}"
        self._links = {name: f"ml{mark}-{number}" for number, name in enumerate(names)}
        self.spaces = {name: f"mn{mark}-{name}" for name in names}
        # 198.18.0.0/15 is set apart for tests of networks.
        self.here = f"198.18.{subnet}.1"
        self.addresses = {
            name: f"198.18.{subnet}.{number}" for number, name in enumerate(names, start=10)
        }
        self._lost: set[tuple[str, str]] = set()
        self.slowed: set[str] = set()

    def make(self) -> None:
        """The bridge and every machine, up, with addresses."""
        ip("link", "add", self._bridge, "type", "bridge")
        ip("address", "add", f"{self.here}/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        for name, space in self.spaces.items():
            link = self._links[name]
            ip("netns", "add", space)
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", link, "master", self._bridge, "up")
            ip("-n", space, "address", "add", f"{self.addresses[name]}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def end(self) -> None:
        """Nothing of it is left; the links go with their namespaces."""
        for space in self.spaces.values():
            ip("netns", "delete", space, fails=True)
        ip("link", "delete", self._bridge, fails=True)

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """The sockets that this thread makes in the block are those of a machine."""
        home = os.open(OURS, os.O_RDONLY)
        there = os.open(SPACES / self.spaces[name], os.O_RDONLY)
        try:
            _enter(there)
            yield
        finally:
            _enter(home)
            os.close(there)
            os.close(home)

    def lose(self, sender: str, receiver: str) -> None:
        """What one sends to the other is lost from now on; the way back is not touched."""
        words = ("neigh", "replace", self.addresses[receiver], "lladdr", NOBODY, "dev", "eth0")
        ip("-n", self.spaces[sender], *words)
        self._lost.add((sender, receiver))

    def part(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Nothing passes between the ones and the others."""
        for one, other in itertools.product(some, list(others)):
            self.lose(one, other)
            self.lose(other, one)

    def slow(self, name: str, kbit: int) -> None:
        """What it sends goes at so many kbit/s."""
        self._tc(name, "replace", "tbf", "rate", f"{kbit}kbit", *SLOW_QUEUE)
        self.slowed.add(name)

    def heal(self) -> None:
        """Everything passes again."""
        for sender, receiver in self._lost:
            words = ("neigh", "del", self.addresses[receiver], "dev", "eth0")
            ip("-n", self.spaces[sender], *words, fails=True)
        for name in self.slowed:
            self._tc(name, "del")
        self._lost.clear()
        self.slowed.clear()

    def _tc(self, name: str, verb: str, *words: str) -> None:
        command = ["tc", "-n", self.spaces[name], "qdisc", verb, "dev", "eth0", "root", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"faults: no slow link can be made here: {done.stderr.strip()}")


def _enter(space: int) -> None:
    """This thread goes into a namespace, given by an open file. Raises: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(space, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


@contextmanager
def machine_network(names: Sequence[str]) -> Iterator[MachineNetwork]:
    """One that nothing is lost in yet; gone at the end."""
    if os.geteuid() != 0:
        pytest.skip("faults: making a network needs root")
    network = MachineNetwork(names, _free_subnet())
    try:
        network.make()
        yield network
    finally:
        with suppress(pytest.skip.Exception):
            network.end()


def _free_subnet() -> int:
    """A third byte that no interface of ours has."""
    command = ["ip", "-o", "-4", "address"]
    try:
        known = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        pytest.skip("faults: there is no ip here (iproute2)")
    each = ((os.getpid() + number) % 256 for number in range(256))
    return next(number for number in each if f" 198.18.{number}." not in known)
