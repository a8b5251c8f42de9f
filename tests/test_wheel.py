"""What `pip install aerobee` puts into an environment, and that it leaves the rest alone."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = {"aerobee", "pyspark_aerobee.py", "pyspark_aerobee_lag.py", "pyspark_aerobee_store.py"}
"""All that a wheel may put beside other people's packages."""
PACKAGES = ("broker", "remoting", "store")

PROGRAM = """
import broker, remoting, store
from aerobee import Message
from aerobee.blocking import Producer, PullConsumer
from aerobee.client.settings.client import ConsumeFrom
from aerobee.testing import broker as running_broker

assert broker.MINE and remoting.MINE and store.MINE
with running_broker() as running:
    with Producer(running.namesrv, group="g") as producer:
        producer.send(Message("Guests", b"hello"))
    with PullConsumer("readers", running.namesrv, start_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("Guests")
        print(next(iter(consumer)).body.decode())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it would be published."""
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (found,) = out.glob("*.whl")
    return found


def installed(wheel: Path, directory: Path) -> Path:
    """The interpreter of a fresh environment that has the wheel, and the libraries of this one."""
    venv.create(directory, with_pip=False, symlinks=True)
    python = directory / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True)
    site = Path(done.stdout.strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # Paths alone: the .pth file of an editable install in there is not read.
    libraries = [entry for entry in sys.path if Path(entry).name == "site-packages"]
    (site / "libraries.pth").write_text("\n".join(libraries))
    return python


def test_it_adds_nothing_but_our_own_names(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == OURS
    for package in PACKAGES:
        assert f"aerobee/{package}/__init__.py" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    for name in ("templates/base.html", "chinese.toml", "static/vendor/htmx.LICENSE"):
        assert f"aerobee/broker/console/pages/{name}" in names


def test_an_application_may_have_packages_of_the_same_names(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path / "environment")
    application = tmp_path / "application"
    for package in PACKAGES:
        (application / package).mkdir(parents=True)
        (application / package / "__init__.py").write_text("MINE = True\n")
    (application / "main.py").write_text(PROGRAM)
    done = subprocess.run(
        [python, "main.py"],
        cwd=application,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
