"""A child process of a test: started, waited for by what it prints, ended by its own pid, always.

Its stderr goes to a file, so that it never blocks and a failed test can show it. What is still
running when the test run ends is killed on the way out.
"""

import atexit
import os
import selectors
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kit import prepared

SHOWN_LINES = 30


class DidNotStart(Exception):
    """The process ended, or said nothing in time, before it was ready."""

    def __init__(self, text: str, exit_code: int | None) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Child:
    """One process with its output: `read_line` from its stdout, `errors()` from its stderr.

    It runs in the folder `at`, which programs that write files where they stand need.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        at: Path | None = None,
    ) -> None:
        self.log = log
        with log.open("ab") as errors:
            self._process = prepared.start(command, env=env, at=at, stderr=errors.fileno())
        self._output = b""
        atexit.register(self.kill)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Of the process itself, no shell between."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Looks once, does not wait."""
        return self._process.poll() is None

    def write_line(self, line: str) -> None:
        """One line to its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def read_line(self, *, within_s: float) -> str:
        """The next line of its stdout, without the line end. Raises: DidNotStart."""
        deadline = time.monotonic() + within_s
        while b"\n" not in self._output:
            data = self._read_some(deadline - time.monotonic())
            if data == b"":
                raise DidNotStart(self._report("ended"), self._process.wait())
            if data is None:
                raise DidNotStart(self._report(f"silent for {within_s:g} s"), None)
            self._output += data
        line, _, self._output = self._output.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r")

    def read_until(self, words: str, *, within_s: float) -> str:
        """The next line of its stdout that has `words`; others are skipped. Raises: DidNotStart."""
        deadline = time.monotonic() + within_s
        while words not in (line := self.read_line(within_s=deadline - time.monotonic())):
            pass
        return line

    def errors(self) -> str:
        """All it wrote to stderr so far."""
        return self.log.read_text(errors="replace")

    def wait(self, *, within_s: float) -> int:
        """Its exit code (negative: the signal). Raises: subprocess.TimeoutExpired."""
        code = self._process.wait(timeout=within_s)
        self._release()
        return code

    def let_run(self, seconds: float) -> None:
        """Leave it alone for that long, or until it ends by itself."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(within_s=seconds)

    def stop(self, *, within_s: float) -> int:
        """SIGTERM, then its exit code. Raises: subprocess.TimeoutExpired; then it still runs."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait(within_s=within_s)

    def kill(self) -> int:
        """SIGKILL and gone; harmless when it has already ended. Its exit code."""
        self._process.kill()
        return self.wait(within_s=10)

    def signal(self, number: signal.Signals) -> None:
        """Any other signal."""
        self._process.send_signal(number)

    def _read_some(self, within_s: float) -> bytes | None:
        """Bytes of its stdout, b"" at its end, None when there were none in time."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            if not waiting.select(max(0.0, within_s)):
                return None
        return os.read(self._process.stdout.fileno(), 65_536)

    def _report(self, what: str) -> str:
        lines = self.errors().splitlines()[-SHOWN_LINES:]
        return f"process {self.pid} {what}; stdout {self._output!r}; stderr:\n" + "\n".join(lines)

    def _release(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue  # What we still had to say to a dead process is of no use.
        atexit.unregister(self.kill)


class Server(ABC):
    """A server on one directory, run after run: `with` starts it, and its end kills it."""

    __slots__ = ()
    _child: Child | None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._kill()

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    @abstractmethod
    def start(self) -> object:
        """Run it until it serves. Raises: DidNotStart."""

    @property
    def child(self) -> Child:
        """The process of the current or last run."""
        assert self._child is not None, "not started"
        return self._child

    def kill(self) -> int:
        """SIGKILL, in the middle of whatever it does."""
        return self.child.kill()
