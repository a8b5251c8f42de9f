"""A fork of the process with the modules is what the same command is by itself."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit import prepared
from tests.kit.broker_process import BrokerProcess
from tests.kit.odd_broker import clock_ahead, dies_at
from tests.kit.process import Child, DidNotStart
from tests.kit.raw_client import RawConnection, send_fields
from tests.kit.reading import read_topic

WITHIN_S = 60.0
SEND = 310
AEROBEE = [*prepared.PROGRAM, "aerobee"]
VERSION = [*AEROBEE, "--version"]
BROKER = "from aerobee.cli.main import main; import atexit, sys; atexit.register({told}); main()"
LOADED = "print(*sys.modules, file=sys.stderr)"


def is_fork(pid: int) -> bool:
    """Before it has changed anything, as nobody can who was executed."""
    return prepared.__file__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_it_is_a_child_of_the_test_and_ends_by_its_signals(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data") as broker:
        assert is_fork(broker.child.pid)
        assert parent_of(broker.child.pid) == os.getpid()
        assert broker.stop() == 0
        broker.start()
        assert broker.kill() == -signal.SIGKILL


def test_its_words_and_its_exit_code_are_those_of_the_command(tmp_path: Path) -> None:
    for words in (["--version"], ["topic", "made-up"], ["broker", "run", "--data", ""]):
        command = [*AEROBEE, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        fork = prepared.run(command, env=os.environ, within_s=WITHIN_S)
        assert (fork.returncode, fork.stdout, fork.stderr) == (
            done.returncode,
            done.stdout,
            done.stderr,
        )
    with Child(VERSION, log=tmp_path / "version.log") as child:
        assert child.read_line(within_s=WITHIN_S).startswith("aerobee ")
        with pytest.raises(DidNotStart, match="ended"):
            child.read_line(within_s=WITHIN_S)


def test_it_has_the_environment_and_the_folder_of_who_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = {"AEROBEE_LOG_LEVEL": "error"}
    broker = BrokerProcess(data=Path("here"), env=told, log_path=tmp_path / "log")
    with broker:
        assert is_fork(broker.child.pid)
        assert (tmp_path / "here" / "commitlog").is_dir()
        assert Path(f"/proc/{broker.child.pid}/cwd").readlink() == tmp_path
    assert broker.child.errors() == ""


def test_an_odd_broker_is_odd_as_a_fork(tmp_path: Path) -> None:
    day_ms = 86_400_000
    ahead = BrokerProcess(data=tmp_path / "ahead", module=clock_ahead(86_400))
    with ahead, RawConnection(ahead.address) as connection:
        assert is_fork(ahead.child.pid)
        assert connection.call(SEND, send_fields("t", 0), b"x").code == 0
        [sent] = read_topic(connection, "t", 0)
        assert sent.store_timestamp > time.time() * 1_000 + day_ms / 2
    with BrokerProcess(data=tmp_path / "dies", module=dies_at(9_000)) as broker:
        assert is_fork(broker.child.pid)
    with pytest.raises(DidNotStart) as ended:
        BrokerProcess(data=tmp_path / "dies at once", module=dies_at(3)).start()
    assert ended.value.exit_code == -signal.SIGKILL


def test_it_has_no_file_open_but_its_own(tmp_path: Path) -> None:
    def files(child: Child) -> list[str]:
        found = []
        for link in Path(f"/proc/{child.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since
                if "socket:" in os.readlink(link):
                    found.append(link.name)
        return sorted(found)

    by_itself = {"PYTHONNOUSERSITE": "1"}
    with (
        BrokerProcess(data=tmp_path / "fork") as fork,
        BrokerProcess(data=tmp_path / "itself", env=by_itself) as itself,
    ):
        assert [is_fork(one.child.pid) for one in (fork, itself)] == [True, False]
        assert files(fork.child) == files(itself.child)


def test_what_it_has_imported_is_what_a_broker_imports(tmp_path: Path) -> None:
    """A module that a broker loads late, or never, is not there before."""
    broker = BrokerProcess(data=tmp_path / "data", module=("aerobee",))
    words = broker.command()[3:]
    told = BROKER.format(told=f"lambda: {LOADED}")
    with Child([sys.executable, "-c", told, *words], log=tmp_path / "broker.log") as child:
        child.read_until("aerobee ready ", within_s=WITHIN_S)
        assert child.stop(within_s=WITHIN_S) == 0
        loaded = set(child.errors().splitlines()[-1].split())
    imports = "".join(f"import {module};" for module in prepared.MODULES)
    first = "import sys; from aerobee.cli.lazy import import_structlog; import_structlog();"
    done = subprocess.run(
        [sys.executable, "-c", f"{first}{imports}{LOADED}"],
        capture_output=True,
        text=True,
        check=True,
    )
    before = set(done.stderr.split())
    assert before - loaded == set()
    assert len(before) > 0.95 * len(loaded)


@pytest.mark.parametrize(
    ("command", "env", "at"),
    [
        (VERSION, {"PYTHONUTF8": "0"}, None),
        (VERSION, {"LC_ALL": "tr_TR.UTF-8"}, None),
        (VERSION, {}, Path("/")),
        (["/usr/bin/python3", *VERSION[1:]], {}, None),
        ([sys.executable, "-P", *VERSION[1:]], {}, None),
        ([sys.executable, "-m", "tests.kit.steady"], {}, None),
    ],
)
def test_what_an_interpreter_reads_at_its_start_is_left_to_it(
    command: list[str], env: Mapping[str, str], at: Path | None
) -> None:
    assert prepared.fits(VERSION, os.environ, None)
    assert not prepared.fits(command, {**os.environ, **env}, at)


def test_an_installed_build_is_not_mistaken_for_the_sources() -> None:
    asked = "import os, sys; from tests.kit import prepared as it; "
    asked += "sys.exit(it.fits([*it.PROGRAM, 'aerobee'], os.environ, None))"
    codes = [
        subprocess.run([sys.executable, *safe, "-c", asked], env=env, check=False).returncode
        for safe in ([], ["-P"])
        for env in [{**os.environ, "PYTHONPATH": str(Path.cwd())}]
    ]
    assert codes == [1, 0]
