"""The first steps of somebody with an installed Aerobee, done with built wheels and nothing else.

    python -m deploy.release.trial WHEEL…

Each is installed, with the libraries that it asks for, in an empty environment of its own. There
the version is asked for, a broker started, a message sent and received, and the broker stopped.
Compiled wheels of other interpreters are tried by those. Standard library only.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

WITHIN_S = 60.0
"""How long each step may take."""
TAG = re.compile(r"-cp3(\d+)-")
SMALL = ("mappedFileSizeCommitLog=4194304", "maxHashSlotNum=1000", "maxIndexNum=4000")
QUIET = ("metricsExporterType=DISABLE", "consolePort=0")


def use(programs: Path, place: Path, ports: tuple[int, int, int]) -> str:
    """Work with the `aerobee` of that directory; returns its version.

    `place` is an empty directory, `ports` those of broker, VIP and name server. Raises:
    AssertionError with what a program said.
    """
    version = _said(programs, place, "--version")
    settings = (*SMALL, *QUIET, *_port_settings(ports))
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
            namesrv = f"--namesrv=127.0.0.1:{ports[2]}"
            _said(programs, place, "produce", "Orders", "paid", namesrv)
            there = ("consume", "Orders", "--from", "first", "--max", "1", "--format", "body")
            got = _said(programs, place, *there, namesrv)
            assert got == "paid", got
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(WITHIN_S) == 0, log.read_text("utf-8")
        finally:
            broker.kill()
    return version


def _port_settings(ports: tuple[int, int, int]) -> list[str]:
    keys = ("listenPort", "vipListenPort", "namesrvListenPort")
    return [f"{key}={port}" for key, port in zip(keys, ports, strict=True)]


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


def free_ports() -> tuple[int, int, int]:
    """Three that nobody listens on now."""
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        for each in (one, two, three):
            each.bind(("127.0.0.1", 0))
        first, second, third = (each.getsockname()[1] for each in (one, two, three))
    return first, second, third


def tried(wheel: Path, place: Path) -> str:
    """Install a wheel there from the registry of this machine, and use it; returns its version."""
    other = TAG.search(wheel.name)
    python = f"python3.{other[1]}" if other else sys.executable
    programs = place / "environment" / "bin"
    subprocess.run((python, "-m", "venv", programs.parent), check=True)
    install = (programs / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
    subprocess.run((*install, "install", wheel.resolve()), check=True)
    return use(programs, place, free_ports())


def main(wheels: list[str]) -> None:
    """Try them, one after the other."""
    for wheel in wheels:
        with tempfile.TemporaryDirectory(prefix="aerobee-trial-") as place:
            version = tried(Path(wheel), Path(place))
        sys.stdout.write(f"{Path(wheel).name}: {version}, sent and received\n")


if __name__ == "__main__":
    main(sys.argv[1:])
