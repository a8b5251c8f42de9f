"""What brokers tell their supervisor."""

import os
import socket
import sys

import pytest
import trio

from aerobee.broker.supervisor.notices import Notice, Notices

SPEAK = """
import socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
    speaking.sendto(b"READY=1\\nSTATUS=a=b", sys.argv[1].replace("@", chr(0)))
"""


@pytest.mark.trio
async def test_the_kernel_names_the_sender() -> None:
    """A process that is no broker of this supervisor cannot speak for one."""
    heard: list[Notice] = []
    both = trio.Event()

    def take(notice: Notice) -> None:
        heard.append(notice)
        if len(heard) == 2:
            both.set()

    with Notices() as notices, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.sendto(b"WATCHDOG=1", notices.address.replace("@", chr(0)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(notices.run, take)
            other = await trio.lowlevel.open_process([sys.executable, "-c", SPEAK, notices.address])
            await other.wait()
            with trio.fail_after(10):
                await both.wait()
            nursery.cancel_scope.cancel()
    assert heard == [
        Notice(os.getpid(), {"WATCHDOG": "1"}),
        Notice(other.pid, {"READY": "1", "STATUS": "a=b"}),
    ]
