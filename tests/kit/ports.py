"""Free ports for brokers under test: numbers out, never a default one, never an ephemeral one.

A broker takes a block of four neighbours (the VIP port at -2, its listen port, HA at +1); the
fourth, at -1, is lent to the metrics listener. The kernel hands out its own ports from the
ephemeral range, so a port below that range that could be bound a moment ago is only taken by
another process of tests. Each of these has a share of the ports to itself, by a lock that ends
with it: a broker that is stopped, and starts again in a moment, finds its ports.
"""

import atexit
import itertools
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HOST = "127.0.0.1"
LOWEST = 13_000
"""Above every port that RocketMQ and its tools use by default."""
BLOCK = 4
SHARES = 24
"""So many processes can run tests at the same time before two of them share."""
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_KEPT: set[int] = set()
"""The numbers of blocks that are never given again."""


@dataclass(frozen=True, slots=True)
class PortBlock:
    """Four neighbouring ports that were free a moment ago."""

    listen: int

    @property
    def vip(self) -> int:
        """The broker's second port, always two below."""
        return self.listen - 2

    @property
    def metrics(self) -> int:
        """The one of the block that no RocketMQ rule claims."""
        return self.listen - 1

    @property
    def ha(self) -> int:
        """Replication, always one above."""
        return self.listen + 1


def free_block() -> PortBlock:
    """The next block whose four ports can all be bound on 127.0.0.1. Raises: RuntimeError."""
    return free_row(1, BLOCK)


def free_row(blocks: int, step: int = 10) -> PortBlock:
    """The first of so many free blocks, `step` ports apart; none of them is given twice soon.
    Raises: RuntimeError.
    """
    numbers, count, _ = _share()
    span = -(-step * (blocks - 1) // BLOCK) + 1
    for _ in range(count):
        row = list(itertools.islice(numbers, span))
        if row[-1] < row[0] or not _KEPT.isdisjoint(row):
            continue
        lowest = LOWEST + row[0] * BLOCK
        ports = (lowest + step * number + i for number in range(blocks) for i in range(BLOCK))
        if all(_can_bind(port) for port in ports):
            return PortBlock(listen=lowest + 2)
    raise RuntimeError(f"no {blocks} free blocks {step} apart between {LOWEST} and {_highest()}")


def free_port() -> int:
    """One free port, for a name server; taken from a block of its own."""
    return free_block().listen


def kept_port() -> int:
    """One that nobody else is given as long as this process lives: for the constant of a module,
    which is imported long before its tests run.
    """
    port = free_port()
    _KEPT.add((port - LOWEST) // BLOCK)
    return port


def _highest() -> int:
    """The first port of the ephemeral range; 32768 where the system does not say."""
    if EPHEMERAL_RANGE.exists():
        return int(EPHEMERAL_RANGE.read_text().split()[0])
    return 32_768


def _can_bind(port: int) -> bool:
    with socket.socket() as candidate:
        # As the brokers do, so that a port in TIME_WAIT counts as free.
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((HOST, port))
        except OSError:
            return False
        return True


@cache
def _share() -> tuple[Iterator[int], int, socket.socket | None]:
    """The blocks of this process, round and round, how many they are, and the lock on them."""
    each = (_highest() - LOWEST) // BLOCK // SHARES
    first = os.getpid() % SHARES
    for share in (*range(first, SHARES), *range(first)):
        lock = socket.socket(socket.AF_UNIX)
        try:
            # A name of the network namespace, as ports are; no file is left of it.
            lock.bind(f"\0aerobee-test-ports-{share}")
        except OSError:
            lock.close()
        else:
            atexit.register(lock.close)
            return itertools.cycle(range(share * each, (share + 1) * each)), each, lock
    return itertools.cycle(range(SHARES * each)), SHARES * each, None
