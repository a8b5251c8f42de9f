"""The examples compile, and every command in them is one that the command line would take."""

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

from aerobee.cli.main import cli

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "spark"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
CRON_FIELDS = re.compile(r"[\d*/,-]+")


def takes(command_line: str) -> None:
    """Raises: click.UsageError for a command or option that is not there."""
    name, *arguments = shlex.split(command_line)
    assert name == "aerobee"
    command: click.Command = cli
    while isinstance(command, click.Group):
        name, *arguments = arguments
        found = command.get_command(click.Context(command), name)
        assert found is not None, name
        command = found
    with command.make_context(name, arguments):
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
        if isinstance(node, ast.Constant) and str(node.value).startswith("aerobee "):
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


COMMAND_LINES = re.compile(r"^aerobee [^\n]*(?:\n +[^\n]*)*|`aerobee ([^`]*)`", re.MULTILINE)
CLI_PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "cli.md",
    *sorted((ROOT / "docs" / "sdk").glob("*.md")),
    *sorted((ROOT / "docs" / "spark").glob("*.md")),
]


@pytest.mark.parametrize("page", CLI_PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_every_command_and_option_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    for found in COMMAND_LINES.finditer(text):
        words = re.split(r"[\s\[\]()]+", found[0].partition(" #")[0].strip("`"))[1:]
        if words[0] not in ("--version", "ready", "COMMAND"):
            check_line(words)


def check_line(words: list[str]) -> None:
    """Raises: AssertionError for a command or a long option that is not there."""
    groups: list[click.Command] = [cli]
    for word in words:
        known = [
            one.get_command(click.Context(one), name)
            for one in groups
            if isinstance(one, click.Group)
            for name in word.split("|")
        ]
        if not known or word.isupper() or word.startswith(("-", "…")):
            break
        assert all(known), (word, words)
        groups = [one for one in known if one is not None]
    taken = {option for one in groups for param in one.params for option in param.opts}
    taken |= {option for one in groups for param in one.params for option in param.secondary_opts}
    named = {word.rstrip(",") for word in words if re.fullmatch(r"--[a-z-]+,?", word)}
    assert named <= taken | {"--help"}, (named - taken, words)
