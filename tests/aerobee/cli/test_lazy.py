"""Commands load late, and a typo is answered."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from aerobee.cli.main import cli
from tests.kit.ports import free_block, free_port

HEAVY = ("aerobee.client", "aerobee.broker", "aerobee.remoting", "aerobee.store", "rich", "msgspec")
MODULES_AT_MOST = 40
"""More than click, which brings some 30 of the standard library, and our own few."""


def test_help_imports_hardly_more_than_click() -> None:
    script = (
        "import sys; import click; before = set(sys.modules)\n"
        "from aerobee.cli.main import run\n"
        "run(['--help'])\n"
        "print(*(set(sys.modules) - before), sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = done.stderr.split()
    assert not [name for name in loaded if name.startswith(HEAVY)]
    assert len(loaded) <= MODULES_AT_MOST, loaded


def test_the_servers_start_without_rich_and_others_can_import_it_later() -> None:
    script = (
        "import sys; from aerobee.broker.process.signals import block\n"
        "from aerobee.cli.lazy import import_structlog\n"
        "import_structlog()\n"
        "import aerobee.broker.__main__, structlog\n"
        "assert not [name for name in sys.modules if name.startswith('rich')]\n"
        "import rich.console; import_structlog(); assert sys.modules['rich'] is rich\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.service
def test_a_broker_looks_for_garbage_once_it_runs_and_not_among_what_was_imported(
    tmp_path: Path,
) -> None:
    ports = free_block()
    settings = (
        f"listenPort={ports.listen}",
        f"metricsPromExporterPort={ports.metrics}",
        "consolePort=0",
        f"namesrvListenPort={free_port()}",
        f"storePathRootDir={tmp_path / 'data'}",
    )
    arguments = ["broker", "run", "--ephemeral", *(f"--set={setting}" for setting in settings)]
    script = (
        "import gc, os; from aerobee.cli import lazy\n"
        "known = lazy.import_structlog\n"
        "def imported():\n"
        "    from aerobee.broker.life import life\n"
        "    told = lambda _: os._exit(not gc.isenabled() or gc.get_freeze_count() < 50_000)\n"
        "    assert not gc.isenabled(); known(); life.announce = told\n"
        "lazy.import_structlog = imported\n"
        f"from aerobee.cli.main import main; main({arguments!r})"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["topc"], "topic"), (["topic", "lst"], "list"), (["broker", "confg"], "config")],
)
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(words: list[str], meant: str) -> None:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert f"Did you mean '{meant}'?" in done.output


def test_a_word_like_no_command_is_just_wrong() -> None:
    done = CliRunner().invoke(cli, ["xyzzy"])
    assert done.exit_code == 2
    assert "Did you mean" not in done.output


@pytest.mark.parametrize("words", [["-n", "h:1", "topic", "list"], ["topic", "-n", "h", "list"]])
def test_an_option_before_its_command_is_told_where_it_belongs(words: list[str]) -> None:
    done = CliRunner().invoke(cli, words, prog_name="aerobee")
    path = "aerobee" if words[0] == "-n" else "aerobee topic"
    assert done.exit_code == 2
    assert f"No such option: -n. Of a command, it comes after: {path} COMMAND -n …" in done.output
