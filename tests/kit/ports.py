"""Free ports for brokers under test: numbers out, never a default one, never an ephemeral one.

A broker takes a block of four neighbours (the VIP port at -2, its listen port, HA at +1); the
fourth, at -1, is lent to the metrics listener. The kernel hands out its own ports from the
ephemeral range, so a port below that range that could be bound a moment ago is only taken by
another test run; each run therefore starts its search at another place.
"""

import itertools
import os
import socket
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
LOWEST = 13_000
"""Above every port that RocketMQ and its tools use by default."""
BLOCK = 4
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


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
    for _ in range(_BLOCKS):
        lowest = LOWEST + next(_numbers) % _BLOCKS * BLOCK
        if all(_can_bind(lowest + i) for i in range(BLOCK)):
            return PortBlock(listen=lowest + 2)
    raise RuntimeError(f"no four free neighbouring ports between {LOWEST} and {_highest()}")


def free_row(blocks: int, step: int = 10) -> PortBlock:
    """The first of so many free blocks, `step` apart. Raises: RuntimeError."""
    for _ in range(_BLOCKS):
        first = free_block()
        others = (first.listen + step * number for number in range(1, blocks))
        if all(_can_bind(port + i) for port in others for i in range(-2, 2)):
            return first
    raise RuntimeError(f"no {blocks} free blocks {step} apart below {_highest()}")


def free_port() -> int:
    """One free port, for a name server; taken from a block of its own."""
    return free_block().listen


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


_BLOCKS = (_highest() - LOWEST) // BLOCK
_numbers = itertools.count(os.getpid() * 61 % _BLOCKS)
