"""A failure ends the suite red, unless the test passes by itself; nothing else is forgiven."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.kit.waiting import eventually
from tests.suite import AGAIN_MAX, Part, main, naming, room

PART = Part("a part", "", 0)
PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails(): assert False\n"
UNSTEADY = """
from pathlib import Path
def test_unsteady{number}():
    seen = Path(__file__ + "-{number}")
    assert seen.exists() or seen.touch()
"""
HANGS = """
import threading
def test_hangs(): threading.Event().wait()
"""


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is run here needs none but that of the workers: their imports take most of the time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")


def suite(directory: Path, monkeypatch: pytest.MonkeyPatch, *sources: str) -> int:
    monkeypatch.chdir(directory)
    for number, source in enumerate(sources):
        (directory / f"test_{number}.py").write_text(source)
    return main([PART], paths=[str(directory)])


def test_all_that_pass_are_green(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert suite(tmp_path, monkeypatch, PASSES, PASSES) == 0


@pytest.mark.parametrize("source", [FAILS, "import nothing_of_that_name\n"])
def test_what_fails_twice_is_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    assert suite(tmp_path, monkeypatch, PASSES, source) == 1


def test_what_passes_by_itself_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite(tmp_path, monkeypatch, PASSES, UNSTEADY.format(number=1)) == 0
    assert "test_1.py::test_unsteady1" in capsys.readouterr().out


def test_many_are_no_accident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [UNSTEADY.format(number=number) for number in range(AGAIN_MAX + 1)]
    assert suite(tmp_path, monkeypatch, *sources) == 1


def test_the_tests_of_one_file_are_one_accident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [UNSTEADY.format(number=number) for number in range(AGAIN_MAX + 1)]
    assert suite(tmp_path, monkeypatch, "".join(sources)) == 0


def test_one_that_hangs_fails_by_name_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    limit = Path(__file__).with_name("conftest.py").read_text().replace("360.0", "1.0")
    (tmp_path / "conftest.py").write_text(limit)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    assert suite(tmp_path, monkeypatch, HANGS + PASSES, PASSES) == 1
    printed = capfd.readouterr().out
    assert "1 failed, 2 passed" in printed
    assert "test_0.py::test_hangs hangs: it takes more than 1 s" in printed
    assert "beside them:\n  test_0.py::test_hangs" in printed


@pytest.mark.parametrize(("used", "says"), [(75, False), (80, True)])
def test_a_disk_that_is_nearly_full_is_told(
    monkeypatch: pytest.MonkeyPatch, used: int, says: bool
) -> None:
    usage = SimpleNamespace(total=120, used=used, free=100 - used)
    monkeypatch.setattr("shutil.disk_usage", lambda _directory: usage)
    assert (f"/d: {used} % of its disk is used" in room("/d")) == says


def test_a_suite_without_tests_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert suite(tmp_path, monkeypatch, "") == 1


MEETS = """
import time
from pathlib import Path
import pytest
@pytest.mark.{name}
def test_meets():
    Path("{name}").touch()
    until = time.monotonic() + 60
    while not Path("{other}").exists():
        assert time.monotonic() < until, "the other part began only when this one had ended"
        time.sleep(0.05)
"""


MEETING = """
import time
from pathlib import Path
import pytest
@pytest.mark.parametrize(("own", "other"), [("first", "second"), ("second", "first")])
def test_meets(own, other):
    Path(own).touch()
    until = time.monotonic() + 60
    while not Path(other).exists():
        assert time.monotonic() < until, "one worker has both"
        time.sleep(0.05)
"""


def test_parts_run_at_the_same_time_and_all_of_them_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, other in (("first", "second"), ("second", "first")):
        (tmp_path / f"test_{name}.py").write_text(MEETS.format(name=name, other=other))
    parts = [Part(name, name, 1) for name in ("first", "second")]
    assert main(parts, paths=[str(tmp_path)]) == 0
    assert capfd.readouterr().out.count("1 passed") == 2
    (tmp_path / "test_second.py").write_text("import pytest\n@pytest.mark.second\n" + FAILS)
    (tmp_path / "test_first.py").write_text("import pytest\n@pytest.mark.first\n" + PASSES)
    assert main(parts, paths=[str(tmp_path)]) == 1
    assert "test_second.py::test_fails" in capfd.readouterr().out


def test_campaigns_are_shared_out_among_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    (tmp_path / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    file = tmp_path / "tests" / "faults" / "test_campaigns.py"
    file.parent.mkdir(parents=True)
    file.write_text(MEETING)
    assert main([Part("a part", "", 2)], paths=[str(file)]) == 0


PLACED = """
import os
JavaClient = None
def test_is_placed():
    with open("workers", "a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)
"""


def test_files_that_share_jvms_have_one_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    (tmp_path / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    folder = tmp_path / "tests" / "interop"
    folder.mkdir(parents=True)
    for number in range(2):
        (folder / f"test_{number}.py").write_text(PLACED)
    assert main([Part("a part", "", 2)], paths=[str(folder)]) == 0
    workers = Path("workers").read_text().split()
    assert len(workers) == 2
    assert len(set(workers)) == 1


TELLS = """
import pytest
@pytest.mark.{mark}
def test_tells():
    with open("order", "a") as file:
        print("{name}", file=file)
"""


def test_what_takes_longest_begins_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    (tmp_path / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    for name, mark in {"a/test_0": "a", "b/test_1": "interop", "c/test_2": "faults"}.items():
        file = tmp_path / "tests" / f"{name}.py"
        file.parent.mkdir(parents=True)
        file.write_text(TELLS.format(name=name, mark=mark))
    (tmp_path / "tests" / "test_3.py").write_text(TELLS.format(name="test_3", mark="a"))
    assert main([PART], paths=["tests"]) == 0
    assert Path("order").read_text().split() == ["b/test_1", "c/test_2", "test_3", "a/test_0"]


STAYS = """
import os, subprocess, time
from pathlib import Path
def test_stays():
    child = subprocess.Popen(["sleep", "600"])
    Path("children.new").write_text(f"{os.getpid()} {child.pid}")
    Path("children.new").rename("children")
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_that_it_started(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_0.py").write_text(STAYS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  alone:\n  spark:\n  image:\ntestpaths = tests\n"
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "tests.suite"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as suite:
        try:
            eventually((tmp_path / "children").exists, within_s=60, what="the test runs")
            suite.send_signal(number)
            assert suite.wait(60) == 128 + number
        finally:
            suite.kill()
    for pid in (tmp_path / "children").read_text().split():
        assert not Path("/proc", pid).exists() or "\nState:\tZ" in (
            Path("/proc", pid, "status").read_text()
        )


def test_a_part_reads_the_files_that_name_its_mark(tmp_path: Path) -> None:
    (tmp_path / "test_0.py").write_text("pytestmark = pytest.mark.alone\n")
    (tmp_path / "test_1.py").write_text("pytestmark = [pytest.mark.alone_too, mark.spark]\n")
    assert naming("alone", tmp_path) == [str(tmp_path / "test_0.py")]


def test_a_mark_that_a_file_does_not_name_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    hidden = 'import pytest\n@getattr(pytest.mark, "spark")\n' + PASSES
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    assert suite(tmp_path, monkeypatch, hidden) == 1
    assert "test_0.py has to name mark.spark" in capfd.readouterr().err
