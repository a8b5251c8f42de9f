"""The signals of the process, which a thread of their own waits for.

They are blocked in all threads from the first line of the command on, so none is lost or ends the
process before the loop runs, or after it. No code runs inside a signal handler: a flood of signals
cannot interrupt itself, and a second stop signal ends the process even when the loop stands still.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
"""Ctrl-\\ sends SIGQUIT: it must stop the broker cleanly."""
RELOAD: Final = signal.SIGHUP
"""Reads the settings again. A terminal that closes sends it too: then it is a stop."""
REOPEN: Final = signal.SIGUSR1
"""Opens the log file again, after it was renamed."""
LAME_DUCK: Final = signal.SIGUSR2
"""Has clients leave, then stops."""
RENEW: Final = signal.SIGRTMIN
"""Has a supervisor restart its brokers, one by one."""
TAKEN: Final = frozenset({*STOPS, RELOAD, REOPEN, LAME_DUCK, RENEW})
PAUSE_S: Final = 0.02
"""After a signal before the same one is taken again; of those that come meanwhile the kernel keeps
one."""
KILLED: Final = 1
"""The exit code after a second stop signal."""


def block() -> None:
    """Block the signals in this thread and in those that it starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)


class Terminal:
    """The terminal that the process was started from, if any."""

    def __init__(self) -> None:
        self._descriptors = [descriptor for descriptor in range(3) if os.isatty(descriptor)]

    @property
    def closed(self) -> bool:
        """Whether there was one, and it is gone."""
        return bool(self._descriptors) and not any(map(os.isatty, self._descriptors))


class Signals:
    """Calls `stop` in the loop at the first stop signal, and ends the process at the second.

    `actions`: what the loop calls for each other signal; one without an action means nothing.
    `patient`: a second stop signal means nothing, as it may be the first one from somebody else.
    """

    def __init__(
        self,
        stop: Callable[[], None],
        actions: Mapping[int, Callable[[], None]],
        *,
        patient: bool,
    ) -> None:
        self._stop = stop
        self._patient = patient
        self._actions = actions
        self._terminal = Terminal()
        self._token = trio.lowlevel.current_trio_token()
        self._stopping = False
        self._over = False

    def start(self) -> None:
        """Begin to take signals, those that are pending first."""
        block()
        # Not above: signals are blocked before most modules are loaded.
        from aerobee.threads import start

        start(threading.Thread(target=self._take_all, name="signals", daemon=True))

    def end(self) -> None:
        """The process ends by itself, with an exit code of its own: ignore what comes now."""
        self._over = True

    def _take_all(self) -> NoReturn:
        # nohup: a hang-up that was ignored at the start stays so.
        nohup = signal.getsignal(RELOAD) is signal.SIG_IGN
        signals = TAKEN - {RELOAD} if nohup else TAKEN
        while True:
            # The kernel gives the lowest number first: a flood of SIGHUP would hide all others.
            left = signals
            number: int | None = signal.sigwait(signals)
            while number is not None:
                self._take(number)
                left -= {number}
                info = signal.sigtimedwait(left, PAUSE_S)
                number = info.si_signo if info is not None else None

    def _take(self, number: int) -> None:
        if number not in STOPS and not (number == RELOAD and self._terminal.closed):
            self._in_loop(self._actions.get(number, _nothing))
        elif not self._stopping:
            self._stopping = True
            self._in_loop(self._stop)
        elif not self._over and not self._patient:
            # The abort file stays, and the next start recovers.
            os._exit(KILLED)

    def _in_loop(self, action: Callable[[], None]) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(action, idempotent=True)


def _nothing() -> None:
    """The action of a signal that has none."""
