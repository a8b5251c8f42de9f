"""conf/systemd, conf/logrotate and the pages about them: rated, parsed, and true to the code."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from aerobee.broker import __main__ as main
from aerobee.broker.config.schema import SCHEMA, canon
from aerobee.cli.main import cli as command_line

ROOT = Path(__file__).parents[1]
UNITS = sorted((ROOT / "conf/systemd").glob("*.service"))
PAGES = sorted((ROOT / "docs/operations").glob("*.md"))
OF_THE_OPERATOR = {"conf/plain_acl.yml", "conf/tools.yml"}
EXPOSURE_MAX = 2.0
ANALYZE = shutil.which("systemd-analyze")


def directives(unit: Path) -> dict[str, list[str]]:
    """Name → its values, in the order of the file."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not on this machine")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_units_are_hardened_and_have_no_mistake(unit: Path) -> None:
    """S17 among others: nothing but its own directories can be written."""
    assert ANALYZE is not None
    command = [ANALYZE, "security", "--offline=true", "--no-pager", str(unit)]
    rated = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", rated.stdout)
    assert exposure, rated.stdout
    assert float(exposure[1]) <= EXPOSURE_MAX, rated.stdout
    checked = subprocess.run(
        [ANALYZE, "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    said = [line for line in checked.stderr.splitlines() if unit.name in line]
    assert all("is not executable" in line for line in said), said


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_says_what_the_program_does(unit: Path) -> None:
    said = directives(unit)
    assert said["Type"] == ["notify"]
    assert said["RestartPreventExitStatus"] == [f"2 {main.STORE_REFUSED}"]
    words = said["ExecStart"][0].split()[1:]
    command: click.Command = command_line
    while isinstance(command, click.Group) and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found, said["ExecStart"]
        command = found
    options = {name for one in command.params for name in one.opts}
    assert {word for word in words if word.startswith("-")} <= options
    data = Path(words[words.index("--data") + 1])
    assert str(data) == f"/var/lib/{said['StateDirectory'][0]}"


def test_a_broker_and_a_name_server_of_one_machine_share_no_port_and_no_variable() -> None:
    (broker, names) = UNITS[1], UNITS[0]
    assert (broker.stem, names.stem) == ("aerobee", "aerobee-nameserver")
    assert directives(broker)["EnvironmentFile"] != directives(names)["EnvironmentFile"]
    page = (ROOT / "docs/operations/install.md").read_text(encoding="utf-8")
    file = directives(names)["ExecStart"][0].split()[4]
    (line,) = re.findall(rf'echo "(.*)" > {re.escape(file)}', page)
    (port,) = yaml.safe_load(line).items()
    setting = SCHEMA[canon(port[0])]
    assert setting.name == "metricsPromExporterPort"
    assert port[1] != setting.default


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_pages_name_commands_files_and_events_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path in set(re.findall(r"conf/[\w./-]+\w", text)) - OF_THE_OPERATOR:
        assert (ROOT / path).exists(), path
    for words in re.findall(r"(?:^|[`/])aerobee ((?:[a-z][a-z-]* )+)", text, re.MULTILINE):
        command: click.Command = command_line
        for word in words.split():
            if isinstance(command, click.Group):
                found = command.get_command(click.Context(command), word)
                assert found, f"{page.name}: aerobee {words}"
                command = found
    events = (ROOT / "docs/events.md").read_text(encoding="utf-8")
    for event in re.findall(r"`((?:broker|log|loop|config)\.(?!yaml|conf`)[a-z_]+)`", text):
        assert f"| `{event}` |" in events, event


@pytest.mark.skipif(shutil.which("logrotate") is None, reason="logrotate is not on this machine")
def test_logrotate_understands_its_file(tmp_path: Path) -> None:
    text = (ROOT / "conf/logrotate/aerobee").read_text(encoding="utf-8")
    file = tmp_path / "aerobee"
    file.write_text(text.replace("su aerobee aerobee\n", "").replace("/var/log", str(tmp_path)))
    file.chmod(0o644)
    command = ["logrotate", "--debug", "--state", str(tmp_path / "state"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert "error" not in (done.stdout + done.stderr).lower(), done.stderr
