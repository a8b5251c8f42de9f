"""A network of one process, whose packets can be lost one way, both ways, or be slow.

    with split_network() as network:
        BrokerProcess(..., network=network.name, host=network.there)    we are network.here
        network.lose(outward=True, inward=True)     a partition: both live, and nothing passes
        network.lose(outward=False, inward=True)    what it sends is lost, what is sent to it is not
        network.heal()

A lost direction has a wrong address of its neighbour: the packets leave, and nobody takes them, so
no connection learns of it. Needs root; skips the test where that is missing.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = "02:00:00:00:00:01"
NUMBERS = itertools.count()


class SplitNetwork:
    """A network namespace, joined to ours by a pair of interfaces."""

    def __init__(self, number: int) -> None:
        self.name, self._ours, self._theirs = (f"sp{kind}{os.getpid()}-{number}" for kind in "nhc")
        # 198.18.0.0/15 is set apart for tests of networks.
        subnet = f"198.19.{os.getpid() % 256}"
        self.here, self.there = f"{subnet}.{4 * number + 1}", f"{subnet}.{4 * number + 2}"

    def make(self) -> None:
        """Both sides, up, with addresses."""
        ours, theirs = self._ours, self._theirs
        ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", self.name)
        ip("address", "add", f"{self.here}/30", "dev", ours)
        ip("link", "set", ours, "up")
        self._inside("address", "add", f"{self.there}/30", "dev", theirs)
        self._inside("link", "set", theirs, "up")
        self._inside("link", "set", "lo", "up")

    def lose(self, *, outward: bool, inward: bool) -> None:
        """`outward`: what we send to it is lost; `inward`: what it sends to us."""
        if outward:
            ip("neigh", "replace", self.there, "lladdr", NOBODY, "dev", self._ours)
        if inward:
            self._inside("neigh", "replace", self.here, "lladdr", NOBODY, "dev", self._theirs)

    def slow(self, kbit: int) -> None:
        """What we send to it goes at so many kbit/s, until `heal`."""
        queue = ("rate", f"{kbit}kbit", "burst", "32kbit", "latency", "400ms")
        command = ["tc", "qdisc", "replace", "dev", self._ours, "root", "tbf", *queue]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"faults: no slow link can be made here: {done.stderr.strip()}")

    def heal(self) -> None:
        """Everything passes again."""
        ip("neigh", "del", self.there, "dev", self._ours, fails=True)
        self._inside("neigh", "del", self.here, "dev", self._theirs, fails=True)
        fast = ["tc", "qdisc", "del", "dev", self._ours, "root"]
        subprocess.run(fast, capture_output=True, check=False)

    def _inside(self, *words: str, fails: bool = False) -> None:
        ip("-n", self.name, *words, fails=fails)


@contextmanager
def split_network() -> Iterator[SplitNetwork]:
    """One that nothing is lost in yet; gone at the end."""
    if os.geteuid() != 0:
        pytest.skip("faults: making a network needs root")
    network = SplitNetwork(next(NUMBERS) % 60)
    ip("netns", "add", network.name)
    try:
        network.make()
        yield network
    finally:
        # The interfaces go with the namespace.
        ip("netns", "delete", network.name)


def ip(*words: str, fails: bool = False) -> None:
    """As the command; skips the test, saying why, where it does not work."""
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("faults: there is no ip here (iproute2)")
    if done.returncode and not fails:
        pytest.skip(f"faults: ip {' '.join(words)} failed: {done.stderr.strip()}")
