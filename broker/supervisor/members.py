"""The brokers of a supervisor, each a process: started, watched, started again, signalled, ended.

A member that ends is started again after a pause, which doubles from `FIRST_PAUSE_S` up to
`LONGEST_PAUSE_S` while it does not serve for long. A member without a sign of life is killed first.
The others are never touched by it. Each run has a pair of sockets; the member's end is its stdin.
Over it the member tells what systemd would be told (`process/service_manager`), and nobody else
can. When the supervisor is gone, however it went, stdin ends and the member stops.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from contextlib import ExitStack, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from aerobee.broker.process.service_manager import MICROSECONDS
from aerobee.broker.process.signals import LAME_DUCK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 60.0
"""A member that has served for so long begins with the first pause again."""
SILENCE_S: Final = 60.0
"""Without a sign of life for this long a member is killed, unless systemd's watchdog says less."""
LOOKS: Final = 4
"""The watch looks so many times in that while."""
FIRST_LOOKS: Final = 4 * LOOKS
"""So many more looks a new process has for its first sign: Python and the imports come before."""
END_S: Final = 150.0
"""How long a member may take to stop, before it is killed: more than it takes itself until it gives
up saving and the last flush."""
KILLED_S: Final = 5.0
"""How long a killed one may take to be gone. It is, unless it hangs in a call of the kernel."""
TURN_S: Final = 900.0
"""How long a member may take to leave as a lame duck and to serve again, when all are restarted one
by one."""

MESSAGE_BYTES: Final = 4_096

log = structlog.stdlib.get_logger(__name__)


class State(StrEnum):
    """The state of a member."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    ENDED = "ended"


class Member:
    """One broker, run after run."""

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.state = State.ENDED
        self.starts = 0
        self.exit_code: int | None = None
        """The exit code of its last run, negative for a signal; None before the first end."""
        self.served = False
        """Whether any run of it became ready."""
        self.pause_s = FIRST_PAUSE_S
        self.process: trio.Process | None = None
        self.time = trio.CancelScope()
        """The time of its run, with a deadline once its stop has begun."""
        self.ready_at = 0.0
        self.silent_looks = 0
        """How many looks of the watch there were since its last sign of life."""

    @property
    def trouble(self) -> str | None:
        """Why it does not serve; None: it does."""
        if self.state is State.READY:
            return None
        last = "" if self.exit_code is None else f"; its last run ended with {self.exit_code}"
        if self.state is State.ENDED and self.exit_code is not None:
            return f"ended with {self.exit_code}, is started again after {self.pause_s:g} s"
        return f"{self.state}{last}"

    def stops(self) -> None:
        """Note that its stop has begun."""
        self.time.deadline = min(self.time.deadline, trio.current_time() + END_S)

    def send(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


class Members:
    """All of them. `run` ends when all have ended after `stop`."""

    def __init__(
        self,
        names: Sequence[str],
        command: Callable[[int], Sequence[str]],
        environ: Mapping[str, str],
        *,
        silence_s: float = SILENCE_S,
    ) -> None:
        """`command`: that runs the member with a number."""
        self.all = [Member(number, name) for number, name in enumerate(names)]
        self._command = command
        self._environ = {key: text for key, text in environ.items() if key != "NOTIFY_SOCKET"}
        self._silence_s = min(silence_s, SILENCE_S)
        self._stop_wanted = trio.Event()
        self._changed = trio.Event()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Have all of them end, and start none again. `number`: the signal that they are sent. A
        lame duck takes as long as its settings say until it tells that it stops.
        """
        self._stop_wanted.set()
        for member in self.all:
            member.send(number)
            if number != LAME_DUCK:
                member.stops()

    def signal(self, number: int) -> None:
        """Send all of them a signal."""
        for member in self.all:
            member.send(number)

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stop_wanted.is_set()

    async def change(self) -> None:
        """Wait until the state of a member changes."""
        await self._changed.wait()

    async def run(self) -> None:
        """Keep all of them running until `stop`; cancelled, it ends them first."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            async with trio.open_nursery() as keepers:
                for member in self.all:
                    keepers.start_soon(self._keep, member)
            nursery.cancel_scope.cancel()

    async def roll(self) -> None:
        """Restart all of them, one by one, as lame ducks, each while the others serve; the first
        one that fails is the last.
        """
        for member in self.all:
            done = False
            with trio.move_on_after(TURN_S):
                done = await self._all_ready() and await self._renew(member)
            if self.stopping:
                return
            if not done:
                away = [f"{member.name}: {member.trouble}" for member in self.all if member.trouble]
                log.error("member.not_renewed", broker_name=member.name, reason="; ".join(away))
                return
        log.info("member.all_renewed", brokers=len(self.all))

    async def _all_ready(self) -> bool:
        while not self.stopping:
            if all(member.state is State.READY for member in self.all):
                return True
            await self.change()
        return False

    async def _renew(self, member: Member) -> bool:
        starts = member.starts
        log.info("member.renewing", broker_name=member.name)
        member.send(LAME_DUCK)
        while not self.stopping:
            if member.starts > starts and member.state is State.READY:
                return True
            if member.starts > starts + 1:
                return False
            await self.change()
        return False

    def _set(self, member: Member, state: State) -> None:
        if member.state is not state:
            member.state = state
            changed, self._changed = self._changed, trio.Event()
            changed.set()

    # ── One member ──

    async def _keep(self, member: Member) -> None:
        while not self.stopping:
            self._set(member, State.STARTING)
            member.starts += 1
            member.ready_at = 0.0
            member.exit_code = await self._live(member)
            served_s = trio.current_time() - member.ready_at if member.ready_at else 0.0
            if member.exit_code == 0 or served_s >= STEADY_S:
                member.pause_s = FIRST_PAUSE_S
            self._set(member, State.ENDED)
            if self.stopping:
                return
            facts = {
                "broker_name": member.name,
                "exit_code": member.exit_code,
                "served_s": round(served_s, 1),
                "again_in_s": member.pause_s,
            }
            if member.exit_code == 0:  # as it was asked to
                log.info("member.ended", **facts)
            else:
                log.warning("member.ended", **facts)
            with trio.move_on_after(member.pause_s):
                await self._stop_wanted.wait()
            member.pause_s = min(2 * member.pause_s, LONGEST_PAUSE_S)

    async def _live(self, member: Member) -> int:
        """One run of it; returns its exit code."""
        with ExitStack() as opened:
            try:
                pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                ours, theirs = map(opened.enter_context, pair)
                process = await self._started(member, theirs)
            except OSError as error:
                log.error("member.not_started", broker_name=member.name, reason=str(error))
                return 1
            theirs.close()
            member.process, member.silent_looks = process, -FIRST_LOOKS
            member.time = trio.CancelScope()
            if self.stopping:
                member.send(signal.SIGTERM)
                member.stops()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hear, member, ours)
                try:
                    with member.time:
                        await process.wait()
                finally:
                    code = await self._end(member, process)
                    member.process = None
                    nursery.cancel_scope.cancel()
            return code

    async def _started(self, member: Member, stdin: socket.socket) -> trio.Process:
        environ = {
            **self._environ,
            "WATCHDOG_USEC": str(int(self._silence_s * MICROSECONDS)),
            "WATCHDOG_PID": "",  # systemd's is that of the supervisor
        }
        return await trio.lowlevel.open_process(
            self._command(member.number),
            stdin=stdin.fileno(),
            stdout=subprocess.DEVNULL,
            env=environ,
            # Ctrl-C in a terminal is for the supervisor, which tells the members once.
            process_group=0,
        )

    async def _end(self, member: Member, process: trio.Process) -> int:
        """Its exit code; ends a process that still runs: its time is over, or this was cancelled
        and it has yet to be asked.
        """
        if process.returncode is None and not member.time.cancelled_caught:
            process.terminate()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + END_S):
                await process.wait()
        if process.returncode is None:
            log.error("member.killed", broker_name=member.name, limit_s=END_S)
            process.kill()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + KILLED_S):
                await process.wait()
        return -signal.SIGKILL if process.returncode is None else process.returncode

    # ── What they tell ──

    async def _hear(self, member: Member, ours: socket.socket) -> None:
        """Take what it tells: messages of lines `NAME=value`."""
        hearing = trio.socket.from_stdlib_socket(ours)
        while message := await hearing.recv(MESSAGE_BYTES):
            self._take(member, {line.partition(b"=")[0] for line in message.split(b"\n")})

    def _take(self, member: Member, words: Set[bytes]) -> None:
        member.silent_looks = 0
        if b"STOPPING" in words:
            member.stops()
            self._set(member, State.STOPPING)
        elif b"READY" in words and member.state is State.STARTING:
            self._ready(member)

    def _ready(self, member: Member) -> None:
        member.ready_at = trio.current_time()
        member.served = True
        log.info("member.ready", broker_name=member.name, starts=member.starts)
        self._set(member, State.READY)

    async def _watch(self) -> NoReturn:
        """Kill who is silent. Looks are counted, not seconds: where this process stood still, what
        the members told meanwhile waits to be read, and one look passes.
        """
        while True:
            await trio.sleep(self._silence_s / LOOKS)
            for member in self.all:
                member.silent_looks += 1
                if member.process is not None and member.silent_looks > LOOKS:
                    log.error("member.silent", broker_name=member.name, silent_s=self._silence_s)
                    member.send(signal.SIGKILL)
