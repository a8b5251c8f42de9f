"""The gRPC port as a feature: a missing extra is named, and without the port nothing is loaded."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from aerobee.broker import __main__ as main
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import rss_anon
from tests.kit.ports import free_port
from tests.kit.process import DidNotStart
from tests.kit.source_tree import ROOT

pytestmark = pytest.mark.service

MiB = 1 << 20
COSTS_BYTES = 8 * MiB
LIBRARIES = re.compile(r"/(ngh2|google)/")
COMMAND = re.compile(r"\(.*?\): (.+?), or set grpcPort to 0")


@pytest.mark.parametrize("module", ["ngh2", "google/protobuf"])
def test_a_missing_extra_refuses_the_start_with_the_command_that_helps(
    module: str, tmp_path: Path
) -> None:
    without = tmp_path / "without"
    (without / module).mkdir(parents=True)
    name = module.replace("/", ".")
    text = f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')\n"
    (without / module.split("/")[0] / "__init__.py").write_text(text)
    broker = BrokerProcess(
        data=tmp_path / "data",
        settings={"grpcPort": free_port()},
        env={"PYTHONPATH": str(without)},
    )
    with pytest.raises(DidNotStart) as refused:
        broker.start()
    assert refused.value.exit_code == main.WRONG_SETTINGS
    told = broker.child.errors()
    assert "Traceback" not in told
    assert f"the extra grpc is not installed (No module named '{name}')" in told
    printed = COMMAND.search(told)
    assert printed is not None, told
    command = shlex.split(printed[1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert command[4:] == project["optional-dependencies"]["grpc"]
    # Here they are installed, so the command has nothing to fetch; another name or number had.
    run = [*command, "--no-index", "--dry-run", "--quiet"]
    subprocess.run(run, check=True, capture_output=True, timeout=60.0)


def test_without_the_port_nothing_of_it_is_loaded_and_with_it_little(tmp_path: Path) -> None:
    held = {}
    for port in (0, free_port()):
        settings = {"grpcPort": port}
        with BrokerProcess(data=tmp_path / f"data-{port}", settings=settings) as broker:
            maps = Path(f"/proc/{broker.child.pid}/maps").read_text()
            held[bool(port)] = rss_anon(broker.child.pid)
        assert bool(LIBRARIES.search(maps)) == bool(port)
    assert held[True] - held[False] < COSTS_BYTES


def test_what_declares_the_feature_loads_nothing_of_it() -> None:
    script = "import sys, aerobee.broker.broker; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    heavy = [name for name in done.stdout.split() if name.split(".")[0] in ("ngh2", "google")]
    assert not heavy
