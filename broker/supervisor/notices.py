"""What the brokers of a supervisor tell it: that they are ready, stop, and that their loops turn.

It is what systemd would be told (`process/service_manager`), over the same kind of socket. The
kernel names the sender of each message, so no other process can speak for a broker. Source:
sd_notify(3).
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Self

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Notice", "Notices"]

MESSAGE_BYTES: Final = 4_096
CREDENTIALS: Final = struct.Struct("3i")
"""Pid, user and group of a sender. Source: unix(7)."""


class Notice(NamedTuple):
    """A message: its sender, and its lines `NAME=value`."""

    pid: int
    values: dict[str, str]


class Notices:
    """The socket, open from its making on."""

    def __init__(self) -> None:
        """Open it. Raises: OSError where the system knows no such socket."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("")  # the kernel chooses a free abstract address
        self.address = "@" + self._socket.getsockname()[1:].decode()
        """As `NOTIFY_SOCKET` has it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    async def run(self, take: Callable[[Notice], None]) -> NoReturn:
        """Hand over every message until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            # One at a time: any process of this host may write here, and not hold up the loop.
            with suppress(BlockingIOError):
                self._receive(take)

    def _receive(self, take: Callable[[Notice], None]) -> None:
        data, extra, _, _ = self._socket.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(CREDENTIALS.size))
        for level, kind, content in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                pid, _, _ = CREDENTIALS.unpack_from(content)
                lines = (
                    line.partition("=") for line in data.decode("utf-8", "replace").split("\n")
                )
                take(Notice(pid, {name: value for name, _, value in lines}))
