"""The examples compile, and every command in them is one that the command line would take."""

import ast
import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aerobee.cli.spark import JOBS

if TYPE_CHECKING:
    import click

EXAMPLES = Path(__file__).parents[1] / "examples" / "spark"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
CRON_FIELDS = re.compile(r"[\d*/,-]+")


def takes(command_line: str) -> None:
    """Raises: click.UsageError for a job or option that is not there."""
    aerobee, spark, job, *arguments = shlex.split(command_line)
    assert (aerobee, spark) == ("aerobee", "spark")
    command: click.Command = import_module(JOBS[job][0]).command
    with command.make_context(job, arguments):
        pass


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_every_program_compiles_and_says_what_it_is(program: Path) -> None:
    text = program.read_text()
    compile(text, str(program), "exec")
    assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_every_command_in_a_program_exists(program: Path) -> None:
    # Texts that stand behind each other are one in the tree.
    for node in ast.walk(ast.parse(program.read_text())):
        if isinstance(node, ast.Constant) and str(node.value).startswith("aerobee spark "):
            takes(re.sub(r"\{\{.*?\}\}", "x", str(node.value)))


def test_every_line_of_the_crontab_has_a_time_and_a_command() -> None:
    entries = 0
    for line in (EXAMPLES / "crontab").read_text().splitlines():
        if not line or line.startswith("#") or re.match(r"[A-Z_]+=", line):
            continue
        *times, command = line.split(maxsplit=5)
        assert len(times) == 5
        assert all(map(CRON_FIELDS.fullmatch, times)), line
        assert not re.search(r"(?<!\\)%", command), "cron ends a command at %"
        takes(re.sub(r"\$\([^)]*\)", "2025-01-31", command))
        entries += 1
    assert entries >= 4
