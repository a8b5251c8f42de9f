"""The bounds of the machine itself: no broker on it, or none in Python, can be faster.

    python -m bench.floor [DIRECTORY]

A round trip over loopback between two processes, a wake-up out of epoll, a copy in memory, an
`fdatasync` of a small write in DIRECTORY, a call of an empty Python function; and a server in the
same interpreter that only reads whole frames and answers each with the same bytes, under the load
generator of the comparison: the rate at which sends that do nothing would be answered.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import select
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.arguments import existing_directory, program
from bench.load import SENDS, Case, build, load
from bench.machine import describe
from tests.kit.ports import HOST
from tests.kit.process import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROUND_TRIPS = 5_000
SYNCS = 200
CALLS = 200_000
MESSAGE = 300
"""Bytes of a send with a body of 128."""
BLOCK = 64 << 20
PIPELINED = ("-m", "produce", "-c", "8", "-d", "32", "-s", "128")
UNITS = {
    "round_trip": "µs, 300 bytes over loopback to another process and back",
    "wake_up": "µs, a process that waits in epoll wakes another and is woken by it",
    "copy": "GB/s, memcpy of 64 MiB",
    "copy_message": "µs, one message of 300 bytes into a mapping, by Python",
    "sync": "µs, fdatasync of 4 KiB, median",
    "sync_p99": "µs, the same, 99th percentile",
    "call": "µs, a call of an empty Python function",
    "echo_64": "msgs/s, a Python server that only answers, 64 × 1",
    "echo_64_cpu": "µs of its CPU for each",
    "echo_8": "msgs/s, the same, 8 × 32",
    "echo_8_cpu": "µs of its CPU for each",
}


def measure(
    directory: Path, seconds: float = 1.0, python: str = sys.executable
) -> dict[str, float]:
    """All of `UNITS`; needs Go for the last four, whose server `python` runs."""
    one, other = socket.socketpair()
    found = {
        "round_trip": round_trip(*tcp_pair(), wait=False),
        "wake_up": round_trip(one, other, wait=True),
        "copy": copies(),
        "copy_message": each(copy_message(), CALLS),
        "call": each(lambda: None, CALLS),
    }
    syncs = sorted(sync_times(directory))
    found |= {"sync": median(syncs), "sync_p99": syncs[int(len(syncs) * 0.99)]}
    for name, options in (("echo_64", SENDS), ("echo_8", PIPELINED)):
        with Child([python, "-m", "bench.floor", "--echo"], log=directory / "echo") as child:
            address = child.read_line(within_s=10)
            seen = load(address, child.pid, Case(name, options), seconds, warm_up_s=0.5)
        found |= {name: seen["rate"], f"{name}_cpu": seen["cpu"]}
    return found


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection over loopback."""
    with socket.create_server((HOST, 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    for end in (one, other):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


def round_trip(one: socket.socket, other: socket.socket, *, wait: bool) -> float:
    """µs to a child process and back, the median; `wait`: both sides in epoll before they read."""
    child = os.fork()
    if not child:
        try:
            one.close()
            answer(other, wait)
        finally:
            os._exit(0)
    other.close()
    data = b"x" * MESSAGE
    ready = waiter(one)
    took = []
    with one:
        for _ in range(ROUND_TRIPS):
            began = time.perf_counter_ns()
            one.send(data)
            if wait:
                ready()
            one.recv(MESSAGE)
            took.append(time.perf_counter_ns() - began)
    os.waitpid(child, 0)
    return median(took) / 1_000


def answer(end: socket.socket, wait: bool) -> None:
    """The child: back with it, until the other end closes."""
    ready = waiter(end)
    while True:
        if wait:
            ready()
        data = end.recv(MESSAGE)
        if not data:
            return
        end.send(data)


def waiter(end: socket.socket) -> Callable[[], object]:
    """A wait in epoll for one socket."""
    epoll = select.epoll()
    epoll.register(end.fileno(), select.EPOLLIN)
    return epoll.poll


def copies() -> float:
    """GB/s of the best of five."""
    source, target = bytearray(BLOCK), memoryview(bytearray(BLOCK))
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        target[:] = source
        best = min(best, time.perf_counter() - began)
    return BLOCK / best / 1e9


def copy_message() -> Callable[[], None]:
    """A copy of one message into an anonymous mapping that has its pages."""
    mapping = mmap.mmap(-1, 1 << 20)
    mapping[:] = bytes(1 << 20)
    message = b"x" * MESSAGE

    def copy() -> None:
        mapping[4_096 : 4_096 + MESSAGE] = message

    return copy


def each(work: Callable[[], object], times: int) -> float:
    """µs of one call, the loop around it left out."""
    began = time.perf_counter()
    for _ in range(times):
        pass
    empty = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - began - empty) / times * 1e6


def sync_times(directory: Path) -> list[float]:
    """µs of each `fdatasync` behind a write of 4 KiB into a file that has its blocks."""
    took = []
    with (directory / "sync").open("w+b", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, SYNCS * 4_096)
        file.write(bytes(SYNCS * 4_096))
        os.fsync(file.fileno())
        for at in range(SYNCS):
            os.pwrite(file.fileno(), b"x" * 4_096, at * 4_096)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1e6)
    return took


def echo() -> None:
    """Answer every frame with a success and its opaque, over one epoll, until the stdin ends."""
    listener = socket.create_server((HOST, 0))
    print(f"{HOST}:{listener.getsockname()[1]}", flush=True)
    epoll = select.epoll()
    epoll.register(listener.fileno(), select.EPOLLIN)
    sockets: dict[int, tuple[socket.socket, bytearray]] = {}
    while True:
        for fd, _ in epoll.poll():
            if fd == listener.fileno():
                connection, _ = listener.accept()
                epoll.register(connection.fileno(), select.EPOLLIN)
                sockets[connection.fileno()] = connection, bytearray()
                continue
            connection, pending = sockets[fd]
            data = connection.recv(1 << 18)
            if not data:
                epoll.unregister(fd)
                sockets.pop(fd)[0].close()
                continue
            pending += data
            connection.send(answers(pending))


def answers(pending: bytearray) -> bytes:
    """The answers to the whole frames at the begin of `pending`, which are taken away."""
    out, at = [], 0
    while len(pending) - at >= 8:
        end = at + 4 + int.from_bytes(pending[at : at + 4], "big")
        if end > len(pending):
            break
        first = pending.index(b'"opaque":', at) + 9
        opaque = bytes(pending[first : pending.index(b",", first)])
        head = b'{"code":0,"flag":1,"language":"JAVA","opaque":%b,"version":479}' % opaque
        out.append((len(head) + 4).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head)
        at = end
    del pending[:at]
    return b"".join(out)


def lines(found: Mapping[str, float]) -> str:
    """One line each."""
    return "\n".join(f"{found[name]:>12,.2f} {unit}" for name, unit in UNITS.items())


@program
def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(prog="python -m bench.floor")
    parser.add_argument("directory", type=existing_directory, nargs="?")
    parser.add_argument("--echo", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.echo:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        echo()
    build()
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        found = measure(Path(directory))
    print(json.dumps(found) if given.json else f"{describe()}\n{lines(found)}")


if __name__ == "__main__":
    main()
