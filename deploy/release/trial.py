"""The first steps of somebody with an installed Aerobee, done with built wheels and nothing else.

    python -m deploy.release.trial WHEEL…

Each is installed, with the libraries that it asks for, in an empty environment of its own. There
the version is asked for, a broker started, and a message sent and received. Its console answers,
and its port for gRPC speaks HTTP/2. It is stopped, and what it leaves is verified. Compiled wheels
of other interpreters are tried by those. Standard library only.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

WITHIN_S = 60.0
"""How long each step may take."""
TAG = re.compile(r"-cp3(\d+)-")
SMALL = ("mappedFileSizeCommitLog=4194304", "maxHashSlotNum=1000", "maxIndexNum=4000")
QUIET = ("metricsExporterType=DISABLE",)
SETTINGS_FRAME = b"\x00\x00\x00\x04" + bytes(5)
"""An empty one of HTTP/2: length, type, flags, stream (RFC 9113 §6.5)."""
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS_FRAME
HEAD_BYTES = 9


class Ports(NamedTuple):
    """Where the broker listens; 0 is a port that is closed."""

    broker: int
    vip: int
    namesrv: int
    console: int
    grpc: int = 0

    def settings(self) -> list[str]:
        """The ports as values of `--set`."""
        keys = ("listenPort", "vipListenPort", "namesrvListenPort", "consolePort", "grpcPort")
        return [f"{key}={port}" for key, port in zip(keys, self, strict=True)]


def use(programs: Path, place: Path, ports: Ports) -> str:
    """Work with the `aerobee` of that directory; returns its version.

    `place` is an empty directory. Raises: AssertionError with what a program said.
    """
    version = _said(programs, place, "--version")
    settings = (*SMALL, *QUIET, *ports.settings())
    command = (programs / "aerobee", "broker", "run", "--data", place / "data")
    log = place / "log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            (*command, *(f"--set={one}" for one in settings)),
            cwd=place,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as broker,
    ):
        try:
            assert broker.stdout is not None
            ready = broker.stdout.readline()
            assert ready.startswith("aerobee ready "), ready + log.read_text("utf-8")
            namesrv = f"--namesrv=127.0.0.1:{ports.namesrv}"
            _said(programs, place, "produce", "Orders", "paid", namesrv)
            there = ("consume", "Orders", "--from", "first", "--max", "1", "--format", "body")
            got = _said(programs, place, *there, namesrv)
            assert got == "paid", got
            assert "Orders" in _console_says(ports.console, "topics")
            if ports.grpc:
                assert _http2_says(ports.grpc)[3:4] == SETTINGS_FRAME[3:4]
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(WITHIN_S) == 0, log.read_text("utf-8")
        finally:
            broker.kill()
    _said(programs, place, "store", "verify", "data")
    return version


def _console_says(port: int, what: str) -> str:
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}/api/v1/{what}", timeout=WITHIN_S
    ) as found:
        text: str = found.read().decode()
    return text


def _http2_says(port: int) -> bytes:
    """The head of the first frame that a server sends to one that greets it."""
    with socket.create_connection(("127.0.0.1", port), WITHIN_S) as there:
        there.sendall(GREETING)
        head = b""
        while len(head) < HEAD_BYTES and (more := there.recv(HEAD_BYTES - len(head))):
            head += more
    return head


def _said(programs: Path, place: Path, *words: str) -> str:
    done = subprocess.run(
        (programs / "aerobee", *words),
        cwd=place,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def _environment() -> dict[str, str]:
    """Nothing of ours, and nothing that leads Python elsewhere."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def free_ports() -> Ports:
    """Some that nobody listens on now."""
    with ExitStack() as stack:
        bound = [stack.enter_context(socket.socket()) for _ in Ports._fields]
        for each in bound:
            each.bind(("127.0.0.1", 0))
        return Ports(*(each.getsockname()[1] for each in bound))


def tried(wheel: Path, place: Path) -> str:
    """Install a wheel there from the registry of this machine, and use it; returns its version."""
    other = TAG.search(wheel.name)
    python = f"python3.{other[1]}" if other else sys.executable
    programs = place / "environment" / "bin"
    subprocess.run((python, "-m", "venv", programs.parent), check=True)
    install = (programs / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    subprocess.run((*install, "install", f"{wheel.resolve()}[grpc]"), check=True)
    return use(programs, place, free_ports())


def main(wheels: list[str]) -> None:
    """Try them, one after the other."""
    for wheel in wheels:
        with tempfile.TemporaryDirectory(prefix="aerobee-trial-") as place:
            version = tried(Path(wheel), Path(place))
        sys.stdout.write(f"{Path(wheel).name}: {version} works\n")


if __name__ == "__main__":
    main(sys.argv[1:])
