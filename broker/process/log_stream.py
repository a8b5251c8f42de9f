"""Log output to a descriptor whose reader may be slow or gone: it never blocks or fails.

A line is written at once when the descriptor takes it. Otherwise it waits, up to a bound, for a
thread that writes it when it can; lines beyond the bound, or that cannot be written, are dropped
and counted. So a pipe without a reader, a closed terminal and a full disk cost log lines only.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO

from aerobee.threads import start

if TYPE_CHECKING:
    from pathlib import Path

PIECE_BYTES: Final = 4_096
"""The most that a ready pipe takes without blocking (PIPE_BUF)."""
WAITING_BYTES_MAX: Final = 1 << 20
DRAIN_S: Final = 1.0
"""How long `drain` waits for queued lines."""


class LineStream:
    """A text stream over the descriptor of another, for whole lines; callable from any thread.

    Invariant: while lines are queued, all new lines are queued behind them.
    """

    def __init__(self, stream: TextIO | int | None) -> None:
        """`stream`: also an open descriptor."""
        number = -1 if stream is None else stream if isinstance(stream, int) else stream.fileno()
        self._descriptor = number
        self._terminal = number >= 0 and os.isatty(number)
        self._lock = threading.Lock()
        self.waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._written = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._dropped = 0

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._terminal

    def write(self, line: str) -> int:
        """Write one line or more; returns their length, even when they are dropped."""
        data = line.encode("utf-8", "backslashreplace")
        with self._lock:
            if not self.waiting:
                data = self._write_now(data)
            if data:
                self._wait(data)
        return len(line)

    def flush(self) -> None:
        """A no-op: nothing is buffered."""

    def take_dropped(self) -> int:
        """How many lines were dropped since the last call, once lines get through again."""
        with self._lock:
            if self.waiting:
                return 0
            dropped, self._dropped = self._dropped, 0
            return dropped

    def drain(self) -> None:
        """Wait a moment for queued lines: the process ends."""
        with self._lock:
            self._written.wait_for(lambda: not self.waiting, DRAIN_S)

    def _write_now(self, data: bytes) -> bytes:
        """Write what the descriptor takes at once; returns the rest. Unwritable data is dropped."""
        while data:
            try:
                if not _ready(self._descriptor):
                    return data
                data = data[os.write(self._descriptor, data[:PIECE_BYTES]) :]
            except BlockingIOError:
                return data
            except OSError:
                self._dropped += 1
                return b""
        return data

    def _wait(self, data: bytes) -> None:
        if self._waiting_bytes + len(data) > WAITING_BYTES_MAX:
            self._dropped += 1
            return
        self.waiting.append(data)
        self._waiting_bytes += len(data)
        if self._thread is None:
            thread = threading.Thread(target=self._write_waiting, daemon=True)
            # Where the system gives no thread, the next line asks again.
            with suppress(OSError):
                start(thread)
                self._thread = thread

    def _write_waiting(self) -> None:
        """Write queued data, one piece after the other, until there is none."""
        while True:
            with self._lock:
                if not self.waiting:
                    self._thread = None
                    self._written.notify_all()
                    return
                data = self.waiting[0]
            failed = not _write_all(self._descriptor, data)
            with self._lock:
                self.waiting.popleft()
                self._waiting_bytes -= len(data)
                self._dropped += failed


class LogFile(LineStream):
    """The lines of a file, which may be renamed and opened again while lines are written."""

    def __init__(self, path: Path) -> None:
        """Open the file for appending. Raises: OSError naming the path."""
        self.path = path
        super().__init__(_opened(path))

    def reopen(self) -> None:
        """Go on in a file of this name, which may be new. Raises: OSError; then all is as before.

        The descriptor keeps its number, so a thread that writes meanwhile needs no lock.
        """
        opened = _opened(self.path)
        try:
            os.dup2(opened, self._descriptor, inheritable=False)
        finally:
            os.close(opened)


def _opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _ready(descriptor: int) -> bool:
    """Whether a write of one piece does not block. Raises: OSError without a descriptor."""
    if descriptor < 0:
        raise OSError(errno.EBADF, "there is no stream")
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    # The write finds out about an error or a hang-up.
    return bool(poll.poll(0))


def _write_all(descriptor: int, data: bytes) -> bool:
    """Write all of it, however long that takes; False when it cannot be written."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    try:
        while data:
            poll.poll()
            with suppress(BlockingIOError):
                data = data[os.write(descriptor, data[:PIECE_BYTES]) :]
    except OSError:
        return False
    return True


def fill_standard_descriptors() -> None:
    """Open those of 0, 1 and 2 that are closed on /dev/null: no store file may get such a number.

    Otherwise anything that a library prints would be written into the file.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is this one: those below are open by now.
            opened = os.open(os.devnull, os.O_RDWR)
            assert opened == descriptor, "somebody else opens files meanwhile"
            os.set_inheritable(opened, True)
