"""What systemd is told, over a real datagram socket with a path or an abstract name."""

from __future__ import annotations

import math
import os
import socket
from typing import TYPE_CHECKING

import pytest
import trio

from aerobee.broker.process.service_manager import (
    EXTEND_EVERY_S,
    ServiceManager,
    watchdog_s,
)

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


class Systemd:
    """The other end of the socket."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)

    def told(self) -> list[str]:
        lines = []
        while True:
            try:
                lines += self.socket.recv(4_096).decode().split("\n")
            except BlockingIOError:
                return lines


@pytest.mark.parametrize("abstract", [False, True])
def test_it_is_told_by_one_datagram_at_a_path_or_an_abstract_address(
    tmp_path: Path, abstract: bool
) -> None:
    name = f"@aerobee-{os.getpid()}" if abstract else str(tmp_path / "notify")
    systemd = Systemd(name.replace("@", "\0"))
    manager = ServiceManager({"NOTIFY_SOCKET": name})
    manager.ready("serving")
    assert systemd.told() == ["READY=1", "STATUS=serving"]
    manager.reloading()
    first, second = systemd.told()
    assert first == "RELOADING=1"
    assert second.removeprefix("MONOTONIC_USEC=").isdecimal()
    manager.stopping()
    assert "STOPPING=1" in systemd.told()
    systemd.socket.close()
    manager.ready("nobody listens, and nothing fails")
    manager.close()


def test_without_systemd_nothing_is_sent() -> None:
    manager = ServiceManager({})
    manager.ready("serving")
    assert manager.watchdog_s == math.inf


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, math.inf),
        ({"WATCHDOG_USEC": "0"}, math.inf),
        ({"WATCHDOG_USEC": "soon"}, math.inf),
        ({}, math.inf),
    ],
)
def test_the_watchdog_counts_for_the_process_it_names(
    environ: dict[str, str], seconds: float
) -> None:
    assert watchdog_s(environ) == seconds


@pytest.mark.trio
async def test_a_start_asks_for_time_and_a_loop_that_turns_feeds_the_watchdog(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    systemd = Systemd(str(tmp_path / "notify"))
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}
    manager, ready = ServiceManager(environ), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(manager.attend, ready)
        await trio.sleep(EXTEND_EVERY_S * 1.5)
        told = systemd.told()
        assert told.count("EXTEND_TIMEOUT_USEC=30000000") == 2
        assert "STATUS=recovering" in told
        ready.set()
        await trio.sleep(25)
        told = systemd.told()
        assert told == ["WATCHDOG=1"] * 3, "each third of its period"
        nursery.cancel_scope.cancel()
    manager.close()
    systemd.socket.close()
