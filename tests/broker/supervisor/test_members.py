"""The processes of a supervisor: what they tell it, who counts as silent, restarts one by one."""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import TYPE_CHECKING

import pytest
import trio
from structlog.testing import capture_logs

from aerobee.broker.process.signals import LAME_DUCK
from aerobee.broker.supervisor import members as members_module
from aerobee.broker.supervisor.members import Members, State

if TYPE_CHECKING:
    from collections.abc import Sequence

SILENCE_S = 0.8
SYSTEMD = {"NOTIFY_SOCKET": "@aerobee-nobody"}
"""Is told by the supervisor alone."""
MEMBER = """
import os, signal, socket, time
assert "NOTIFY_SOCKET" not in os.environ
signal.signal(signal.SIGUSR2, lambda number, frame: os._exit(0))
speaking = socket.socket(fileno=0)
speaking.send(b"READY=1\\nSTATUS=a=b")
while True:
    speaking.send(b"WATCHDOG=1")
    time.sleep({pause_s})
"""


STUBBORN = """
import signal, socket, time
speaking = socket.socket(fileno=0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGUSR2, lambda number, frame: speaking.send(b"STOPPING=1"))
speaking.send(b"READY=1")
while True:
    speaking.send(b"WATCHDOG=1")
    time.sleep({pause_s})
"""
"""Its stop never ends, though it gives signs of life."""


def members(pause_s: float, names: Sequence[str] = ("b-0",), *, program: str = MEMBER) -> Members:
    """Each gives a sign of life after each pause."""
    script = program.format(pause_s=pause_s)
    command = [sys.executable, "-c", script]
    return Members(names, lambda number: command, SYSTEMD, silence_s=SILENCE_S)


@pytest.mark.trio
async def test_a_supervisor_that_stood_still_does_not_take_its_brokers_for_silent() -> None:
    """As after SIGSTOP, or in a machine that was paused: what they told waits to be read."""
    living = members(SILENCE_S / 8)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(living.run)
        for _ in range(5):
            await trio.sleep(SILENCE_S / 2)
            select.select([], [], [], SILENCE_S * 1.6)  # the loop stands still
        await trio.sleep(SILENCE_S / 4)
        assert living.all[0].starts == 1
        living.stop()


@pytest.mark.trio
async def test_a_silent_broker_is_killed() -> None:
    silent = members(600)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(silent.run)
            while silent.all[0].exit_code is None:
                await silent.change()
            assert silent.all[0].exit_code == -signal.SIGKILL
            silent.stop()


@pytest.mark.trio
@pytest.mark.parametrize(("ends_by", "level"), [(LAME_DUCK, "info"), (signal.SIGKILL, "warning")])
async def test_a_broker_that_goes_as_it_was_asked_to_is_no_warning(
    ends_by: int, level: str
) -> None:
    ending = members(0.1)
    with trio.fail_after(20), capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ending.run)
            while ending.all[0].state is not State.READY:
                await ending.change()
            ending.signal(ends_by)
            while ending.all[0].exit_code is None:
                await ending.change()
            ending.stop()
    assert [one["log_level"] for one in lines if one["event"] == "member.ended"] == [level]


@pytest.mark.trio
async def test_a_restart_one_by_one_waits_for_who_is_away() -> None:
    """Where one has crashed, the next to leave would leave none."""
    both = members(0.1, ["b-0", "b-1"])
    first, second = both.all
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(both.run)
            while not first.state == second.state == State.READY:
                await both.change()
            second.send(signal.SIGKILL)
            while second.exit_code is None:
                await both.change()
            nursery.start_soon(both.roll)
            while (first.starts, second.starts) != (2, 3):
                if first.state is not State.READY:
                    assert second.state is State.READY
                await both.change()
            both.stop()


@pytest.mark.trio
@pytest.mark.parametrize("ends_by", [signal.SIGTERM, LAME_DUCK])
async def test_a_broker_whose_stop_takes_too_long_is_killed(
    ends_by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members_module, "END_S", 0.5)
    stubborn = members(0.1, program=STUBBORN)
    (member,) = stubborn.all
    with trio.fail_after(10), capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stubborn.run)
            while member.state is not State.READY:
                await stubborn.change()
            stubborn.stop(ends_by)
    assert (member.exit_code, member.process) == (-signal.SIGKILL, None)
    assert [one["limit_s"] for one in lines if one["event"] == "member.killed"] == [0.5]


@pytest.mark.trio
async def test_who_is_cancelled_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "END_S", 0.5)
    stubborn = members(0.1, program=STUBBORN)
    (member,) = stubborn.all
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stubborn.run)
            while member.state is not State.READY:
                await stubborn.change()
            assert member.process is not None
            pid = member.process.pid
            nursery.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
