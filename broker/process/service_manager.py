"""The messages to systemd: ready, reloading, stopping, and that the loop turns.

One datagram to the socket that `NOTIFY_SOCKET` names; without it nothing is sent. An address that
begins with @ is abstract. A broker of several tells its supervisor the same, over a socket that it
has inherited. Source: sd_notify(3).
"""

from __future__ import annotations

import math
import os
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

import trio

if TYPE_CHECKING:
    from collections.abc import Mapping

MICROSECONDS: Final = 1_000_000
SEND_S: Final = 0.2
"""How long a message waits for room: the system keeps ten of them."""
EXTEND_EVERY_S: Final = 5.0
START_S: Final = 30
"""While a start recovers the store, it asks for this much more time, again and again."""
STOP_S: Final = 180
"""How long a stop may take: answers in flight, the tables, the last flush."""


class ServiceManager:
    """The connection to systemd; without one every call does nothing."""

    def __init__(self, environ: Mapping[str, str], supervisor: socket.socket | None = None) -> None:
        """`supervisor`: is told in place of systemd, and the socket is closed at the end."""
        address = environ.get("NOTIFY_SOCKET", "") if supervisor is None else ""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = supervisor
        self.watchdog_s = watchdog_s(environ)
        """Without a sign of life for this long systemd ends the process; infinite: it does not."""
        if self._address:
            # Opened once: a sign of life may not fail for want of a descriptor.
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.settimeout(SEND_S)

    def tell(self, *lines: str) -> None:
        """Send one message; one that is not taken is lost."""
        message = "\n".join(lines).encode()
        with suppress(OSError):
            if self._address and self._socket is not None:
                self._socket.sendto(message, self._address)
            elif self._socket is not None:
                self._socket.send(message, socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()

    def ready(self, status: str) -> None:
        """The service serves."""
        self.tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """The settings are being read again; `ready` follows."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def stopping(self) -> None:
        """The service stops, which may take a while."""
        self.tell("STOPPING=1", "STATUS=stopping", f"EXTEND_TIMEOUT_USEC={STOP_S * MICROSECONDS}")

    async def attend(self, ready: trio.Event) -> NoReturn:
        """Ask for time until it is ready, and tell all the while that the loop turns."""
        if self._socket is None:
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._extend_start, ready)
            while True:
                self.tell("WATCHDOG=1")
                await trio.sleep(self.watchdog_s / 3)

    async def _extend_start(self, ready: trio.Event) -> None:
        while not ready.is_set():
            self.tell("STATUS=recovering", f"EXTEND_TIMEOUT_USEC={START_S * MICROSECONDS}")
            with trio.move_on_after(EXTEND_EVERY_S):
                await ready.wait()


def watchdog_s(environ: Mapping[str, str]) -> float:
    """The period of systemd's watchdog for this process; infinite without one."""
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or int(usec) == 0 or pid not in ("", str(os.getpid())):
        return math.inf
    return int(usec) / MICROSECONDS
