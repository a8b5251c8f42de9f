"""Processes of `python -m aerobee` that find its modules imported when they start.

Imports are most of what the start of a broker takes, and the suite starts a thousand of them. One
process imports the modules and does nothing else. Asked for a command, it forks: the fork takes the
arguments, environment, folder and files of that command and runs the same `__main__`. It is a child
of who asked, not of who forked, so it is waited for, signalled and killed like any other.

What an interpreter reads at its own start, a fork cannot be given. So a command for another
interpreter or module, or with other `PYTHON…` variables, starts in the ordinary way.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from importlib import import_module
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROGRAM: Final = (sys.executable, "-m")
"""How the commands begin that a fork can run, with one of the next."""
RUNS: Final = (
    "aerobee",
    *(f"tests.kit.{name}" for name in ("odd_broker", "stall_watch", "step_watch")),
)
"""These change what they want to be different in a module that is loaded, not as it is loaded."""
MODULES: Final = (
    "aerobee.cli.main",
    "aerobee.cli.broker",
    "aerobee.cli.config",
    "aerobee.broker.__main__",
    "aerobee.broker.controller",
    "aerobee.broker.config.load",
    "aerobee.broker.config.members",
    "aerobee.broker.http.app",
)
"""What `aerobee broker run` imports, some of it once it is ready, with all that these import."""
AT_START: Final = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_", "COV")
"""How variables begin that are read before a program runs, or as its modules are imported."""
FAULTHANDLER: Final = "PYTHONFAULTHANDLER"
SYS_CLONE: Final = {"x86_64": 56, "aarch64": 220}
CLONE_PARENT: Final = 0x8000
MESSAGE_BYTES: Final = 1 << 17


def start(
    command: Sequence[str], *, env: Mapping[str, str] | None, at: Path | None, stderr: int
) -> subprocess.Popen[bytes]:
    """Run a command with pipes for its stdin and stdout: in a fork where that is the same."""
    kind = _Fork if fits(command, os.environ if env is None else env, at) else subprocess.Popen
    return kind(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=None if env is None else dict(env),
        cwd=at,
    )


def run(
    command: Sequence[str], *, env: Mapping[str, str], given: str = "", within_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with this on its stdin. Raises: TimeoutExpired; it is gone then."""
    with start(command, env=env, at=None, stderr=subprocess.PIPE) as process:
        try:
            out, err = process.communicate(given.encode(), timeout=within_s)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out.decode(), err.decode())


def fits(command: Sequence[str], env: Mapping[str, str], at: Path | None) -> bool:
    """Whether a fork would be the same as an ordinary start."""
    return (
        tuple(command[:2]) == PROGRAM
        and command[2] in RUNS
        and at is None
        # Then the sources in the current folder are not what is tested, but an installed build.
        and not sys.flags.safe_path
        and platform.machine() in SYS_CLONE
        and _read_at_start(env) == _forking().read_at_start
    )


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in env.items() if k.startswith(AT_START) and k != FAULTHANDLER}


class _Fork(subprocess.Popen[bytes]):
    """As the class above, but that the process is made by a fork of the one with the modules."""

    def _execute_child(self, *given: Any) -> None:
        # Of the arguments these have been the same in each version of Python since 3.9.
        command, env, pipes = given[0], given[6], given[10:16]
        inputs, outputs, errors = pipes[0], pipes[3], pipes[5]
        files = [own if file == -1 else file for own, file in enumerate((inputs, outputs, errors))]
        self.pid = _forking().fork(command, os.environ if env is None else env, files)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # typeshed tells no private one


class _Forking:
    """The process with the modules, seen from here. It ends with this one."""

    def __init__(self) -> None:
        self.read_at_start = _read_at_start(os.environ)
        self._asking, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def fork(self, command: Sequence[str], env: Mapping[str, str], files: Sequence[int]) -> int:
        """The id of a process that runs a command with `files` as its first three."""
        asked = {"command": list(command), "env": dict(env), "folder": str(Path.cwd())}
        with self._lock:
            socket.send_fds(self._asking, [json.dumps(asked).encode()], files)
            answer = int(self._asking.recv(MESSAGE_BYTES) or -1)
        if answer < 0:
            raise OSError(-answer, f"no fork for {command}")
        return answer

    def _end(self) -> None:
        self._asking.close()
        self._process.wait()


@cache
def _forking() -> _Forking:
    return _Forking()


# ── In the process with the modules ──


def serve(asked: socket.socket) -> None:
    """Fork for each request until nobody asks any more. Returns in no fork but with its command."""
    _import()
    while True:
        request, files, _, _ = socket.recv_fds(asked, MESSAGE_BYTES, 3)
        if not request:
            return
        pid = _fork_for_parent()
        if pid == 0:
            asked.close()
            _become(**json.loads(request), files=files)
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
            return
        for file in files:
            os.close(file)
        asked.send(str(pid).encode())


def _import() -> None:
    import_module("aerobee.cli.lazy").import_structlog()
    for module in MODULES:
        import_module(module)
    # Never again written to, so that forks share the memory.
    gc.collect()
    gc.freeze()


def _fork_for_parent() -> int:
    """As `os.fork`, but that the new process is a child of our parent; negative: an errno."""
    here = ctypes.PyDLL(None, use_errno=True)
    here.PyOS_BeforeFork()
    pid: int = here.syscall(
        SYS_CLONE[platform.machine()], CLONE_PARENT | int(signal.SIGCHLD), 0, 0, 0, 0
    )
    error = ctypes.get_errno()
    if pid == 0:
        here.PyOS_AfterFork_Child()
        return 0
    here.PyOS_AfterFork_Parent()
    return pid if pid > 0 else -error


def _become(command: list[str], env: dict[str, str], folder: str, files: list[int]) -> None:
    """Be what an interpreter with this command line is when it has started."""
    for own, file in enumerate(files):
        os.dup2(file, own)
        os.close(file)
    _open_streams()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.orig_argv[:] = command
    sys.argv[:] = command[2:]
    sys.path[0] = folder
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if env.get(FAULTHANDLER):
        faulthandler.enable()
    gc.enable()


def _open_streams() -> None:
    # Those of this process know of the old files whether they have a place, and are a terminal.
    old_in, old_out = sys.stdin, sys.stdout
    assert isinstance(old_in, TextIOWrapper)
    assert isinstance(old_out, TextIOWrapper)
    files = [FileIO(own, "wb", closefd=False) for own in (1, 2)]
    out, err = files if old_out.write_through else map(BufferedWriter, files)
    here: dict[str, Any] = {"encoding": old_out.encoding, "write_through": old_out.write_through}
    given = BufferedReader(FileIO(0, closefd=False))
    sys.stdin = TextIOWrapper(given, old_in.encoding, old_in.errors)
    sys.stdout = TextIOWrapper(out, errors=old_out.errors, **here)
    sys.stderr = TextIOWrapper(err, errors="backslashreplace", line_buffering=True, **here)


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())
    # Ctrl-C is for the tests, which end what they began.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    gc.disable()
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        serve(asked)
