"""Every command that a message prints as the remedy: one of ours exists with these options, and one
of the shell is run by a test in the state that prints it.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import click

from aerobee.cli.main import cli

ROOT: Final = Path(__file__).parents[1]
TOPS: Final = ("aerobee", "broker", "remoting", "store")
SHELL: Final = re.compile(
    r"(?<![\w-])(chown|chmod|install -d|mkdir|mv|cp|rm|sysctl|systemctl) (?=[-{/\w])"
)
"""The first words of a command of the shell that a text may print."""
OURS: Final = re.compile(r"\baerobee ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)*)([^;,`]*)")
VALUE: Final = "{}"
"""What stands in a text for a value that is not known before."""

RUN_BY: Final = {
    ("broker/users/acl_files.py", "chmod"): "tests/broker/users/test_acl_files.py::"
    "test_the_command_that_is_printed_for_a_file_open_to_others_helps",
    ("broker/saved/json_file.py", "chmod"): "tests/broker/users/test_user_processor.py::"
    "test_a_file_that_others_can_read_refuses_the_start",
    (
        "broker/failover/deciders/controller_identity.py",
        "mv",
    ): "tests/faults/test_failover_start.py::"
    "test_a_directory_of_a_controller_is_refused_with_etcd_and_moves_with_the_printed_command",
    ("broker/topics/topics_file.py", "rm"): "tests/broker/topics/test_topics_file.py::"
    "test_the_printed_command_goes_on_with_the_topics_of_the_queues",
    ("broker/start_checks.py", "chown"): "tests/broker/test___main__.py::"
    "test_a_directory_of_somebody_else_is_refused_with_the_command_that_helps",
    ("broker/start_checks.py", "install -d"): "tests/broker/test___main__.py::"
    "test_a_directory_of_somebody_else_is_refused_with_the_command_that_helps",
    **{
        ("broker/supervisor/layout.py", word): "tests/broker/supervisor/test_layout.py::"
        "test_what_is_moved_is_where_broker_0_looks_wherever_the_moves_were_interrupted"
        for word in ("mkdir", "mv")
    },
    ("remoting/server/tls_files.py", "chmod"): "tests/remoting/server/test_tls_files.py::"
    "test_a_key_that_others_read_is_told_and_one_that_they_write_is_refused",
}
"""The test that runs the commands which a module prints, by their first word."""


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """The path of each module, with each of its texts that are no docstring."""
    return tuple(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    for path in sorted(found for top in TOPS for found in (ROOT / top).rglob("*.py")):
        tree = ast.parse(path.read_text())
        inside = {
            id(piece)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr | ast.Expr)
            for piece in ast.walk(node)
            if piece is not node and not (isinstance(node, ast.Expr) and is_call(node))
        }
        for node in ast.walk(tree):
            text = text_of(node)
            if text is not None and id(node) not in inside:
                yield str(path.relative_to(ROOT)), text


def is_call(node: ast.Expr) -> bool:
    """Whether a statement does something, and is no docstring."""
    return not isinstance(node.value, ast.Constant)


def text_of(node: ast.AST) -> str | None:
    """The text of a literal; None for another node."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        pieces = (text_of(piece) for piece in node.values)
        return "".join(VALUE if piece is None else piece for piece in pieces)
    return None


def test_each_command_of_the_shell_is_run_by_a_test_in_the_state_that_prints_it() -> None:
    printed = {(path, found[1]) for path, text in texts() for found in SHELL.finditer(text)}
    assert printed == set(RUN_BY), "a command that is printed needs a test that runs it"
    for name in RUN_BY.values():
        path, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / path).read_text(), name


def test_no_command_of_the_shell_names_a_directory_above_the_broker_s_own() -> None:
    """`chown -R` and `install -d` are printed in one place, whose test looks at what they name."""
    wide = {path for path, text in texts() if re.search(r"chown|chmod -R|rm -r", text)}
    assert wide <= {"broker/start_checks.py"}


def commands() -> set[tuple[str, str, str]]:
    """Each command of ours that a module prints: module, words, and what stands behind them."""
    return {
        (path, found[1], found[2])
        for path, text in texts()
        for found in OURS.finditer(text)
        if found[1].split()[0] not in ("ready", "needs")
    }


def test_each_command_of_ours_that_is_printed_exists_with_its_options() -> None:
    for path, words, rest in sorted(commands()):
        check_command(path, words, rest)


def check_command(path: str, words: str, rest: str) -> None:
    found: click.Command = cli
    context = click.Context(cli)
    for word in words.split():
        if not isinstance(found, click.Group):
            break
        command = found.get_command(context, word)
        assert command is not None, f"{path}: aerobee {words}: there is no {word}"
        found = command
    options = {name for param in found.params for name in (*param.opts, *param.secondary_opts)}
    named = set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", rest))
    assert named <= options, f"{path}: aerobee {words}{rest}"


def test_the_search_finds_the_commands() -> None:
    assert len(commands()) >= 15
