"""The command line as its users run it: a process, its output and its exit code."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aerobee.cli.border import exit_code_of
from aerobee.cli.main import run as run_line
from tests.conftest import AnyBroker, StartBroker
from tests.kit import prepared
from tests.kit.logged import Logged
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
def broker(shared_broker: StartBroker) -> AnyBroker:
    return shared_broker()


@pytest.fixture
def run(broker: AnyBroker) -> Run:
    """Run a command to its end; NAMESRV_ADDR leads it to the broker."""

    def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        env = environment(broker.namesrv_address)
        return prepared.run(command(*arguments), env=env, given=given, within_s=WITHIN_S)

    return run


class Done(NamedTuple):
    """How a command ended that ran in this process."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON that it printed."""
        return json.loads(self.out)


Call = Callable[..., Done]


@pytest.fixture
def call(
    broker: AnyBroker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    logged: Logged,
) -> Call:
    """Run a command to its end in this process, which is quicker; contexts are those of the test.

    Logs of this process are kept from its output: a broker of another test may not have ended yet.

    `given` is typed by the user.
    """
    for name in list(os.environ):
        if name.startswith("AEROBEE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv_address)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def call(*arguments: str, given: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        capsys.readouterr()
        code = exit_code_of(run_line, list(arguments))
        return Done(code, *capsys.readouterr())

    return call


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


def consumed(call: Call, topic: str, *options: str) -> list[dict[str, object]]:
    """What is in a topic now."""
    done = call("consume", topic, "--no-follow", "--json", *options)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]
