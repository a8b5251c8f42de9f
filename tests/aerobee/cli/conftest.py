"""The command line as its users run it: a process, its output and its exit code."""

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.conftest import AnyBroker, StartBroker
from tests.kit.process import Child

_numbers = count()
WITHIN_S = 60

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "aerobee", *arguments]


def environment(namesrv: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AEROBEE", "NAMESRV"))}
    return kept | {"NAMESRV_ADDR": namesrv}


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker()


@pytest.fixture
def run(broker: AnyBroker) -> Run:
    """Run a command to its end; NAMESRV_ADDR leads it to the broker."""

    def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
            env=environment(broker.namesrv_address),
        )

    return run


@pytest.fixture
def start(broker: AnyBroker, tmp_path: Path) -> Callable[..., Child]:
    """Start a command and leave it running."""

    def start(*arguments: str) -> Child:
        log = tmp_path / f"stderr-{next(_numbers)}"
        return Child(command(*arguments), log=log, env=environment(broker.namesrv_address))

    return start


@pytest.fixture
def topic() -> str:
    return f"cli-{next(_numbers)}"
