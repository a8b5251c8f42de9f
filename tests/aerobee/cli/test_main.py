"""The trunk of the command line: help, version, what each command is called."""

import re
import subprocess
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import aerobee
from aerobee.cli.border import FAILED, NOT_REACHABLE, REFUSED, WRONG_USAGE, code_of, explained
from aerobee.cli.main import COMMANDS, cli
from aerobee.cli.mqadmin import OURS
from aerobee.cli.options import SIZE_MAX
from aerobee.client.settings.producer import ProducerConfig
from aerobee.errors import (
    AccessDeniedError,
    AerobeeError,
    Attempt,
    BatchSendError,
    ConfigurationError,
    NoNameServerError,
    PermissionDeniedError,
    RouteNotFoundError,
    SendFailedError,
    TransportError,
    UndeliveredError,
)
from tests.aerobee.cli.conftest import command


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, timeout=60
    )


def test_the_version_is_that_of_the_distribution() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"aerobee {version('aerobee')}\n")


def test_the_compiled_build_without_its_libraries_is_the_pure_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(vars(aerobee), "__version__", "1.2.3+compiled")
    done = CliRunner().invoke(cli, ["--version"])
    assert done.output == "aerobee 1.2.3\n"


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["config", "check"]])
def test_a_full_disk_under_the_output_is_one_clear_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(*words), stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    text = "aerobee: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (FAILED, text)


def test_help_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert summary in done.stdout


def groups(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        yield path
        context = click.Context(command)
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from groups(member, (*path, name))


def test_no_summary_in_a_help_is_cut() -> None:
    cut = []
    for path in groups(cli):
        done = CliRunner().invoke(cli, [*path, "--help"], terminal_width=80)
        title, summaries = re.split("^(?:Commands|Jobs):$", done.output, flags=re.MULTILINE)
        assert title.startswith("Usage:")
        cut += [line for line in summaries.splitlines() if "..." in line]
    assert not cut


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_table_says(name: str) -> None:
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(module), attribute)
    assert isinstance(found, click.Command)
    assert cli.get_command(click.Context(cli), name) is found


def options_of(one: click.Command, *path: str) -> Iterator[tuple[str, click.Option]]:
    """Each option below a command, with the words that lead to it."""
    for option in one.params:
        if isinstance(option, click.Option):
            yield " ".join((*path, option.opts[0])), option
    if isinstance(one, click.Group):
        context = click.Context(one)
        for name in one.list_commands(context):
            found = one.get_command(context, name)
            assert found is not None
            yield from options_of(found, *path, name)


def test_every_option_says_what_it_is_for() -> None:
    options = dict(options_of(cli))
    assert len(options) > 100
    assert [where for where, option in options.items() if not option.help] == []


NUMBERS: dict[str, Any] = {
    where: option.type
    for where, option in options_of(cli)
    if isinstance(option.type, click.FloatRange | click.types.FloatParamType)
}


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e300"])
@pytest.mark.parametrize("where", NUMBERS)
def test_a_number_is_one_that_can_be_reached(where: str, text: str) -> None:
    with pytest.raises(click.BadParameter):
        NUMBERS[where].convert(text, None, None)


def test_bodies_have_the_bound_of_a_producer() -> None:
    assert ProducerConfig().max_message_size == SIZE_MAX


@pytest.mark.parametrize("arguments", [("no-such-command",), ("--no-such-option",), ("topic", "x")])
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == WRONG_USAGE
    assert "Traceback" not in done.stderr


NO_PERMISSION = AccessDeniedError(16, "no", "b", "a:1", "SEND")
FOR_NOBODY = PermissionDeniedError(16, "the topic is closed", "b", "a:1", "SEND")
CLOSED = RouteNotFoundError("no queue of topic t can be written")
CLOSED.code = 16


def test_a_request_without_an_account_names_the_variables() -> None:
    error = AccessDeniedError(16, "username cannot be null.", "b", "a:1", "SEND")
    assert "set AEROBEE_ACCESS_KEY and AEROBEE_SECRET_KEY" in explained(error)
    assert explained(NO_PERMISSION) == str(NO_PERMISSION)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), WRONG_USAGE),
        (NoNameServerError("x"), NOT_REACHABLE),
        (TransportError("x"), NOT_REACHABLE),
        (NO_PERMISSION, REFUSED),
        (SendFailedError("x", [Attempt("b", NO_PERMISSION)]), REFUSED),
        (SendFailedError("x", [Attempt("b", FOR_NOBODY), Attempt("b", NO_PERMISSION)]), REFUSED),
        (BatchSendError([NO_PERMISSION, FOR_NOBODY]), REFUSED),
        (UndeliveredError([(None, SendFailedError("x", [Attempt("b", NO_PERMISSION)]))]), REFUSED),
        (FOR_NOBODY, FAILED),
        (SendFailedError("x", [Attempt("b", NO_PERMISSION), Attempt("b", FOR_NOBODY)]), FAILED),
        (BatchSendError([FOR_NOBODY, NO_PERMISSION]), FAILED),
        (UndeliveredError([(None, FOR_NOBODY)]), FAILED),
        (SendFailedError("x", []), FAILED),
        (CLOSED, FAILED),
        (SendFailedError("x", [Attempt("b", TransportError("y"))]), NOT_REACHABLE),
        (AerobeeError("x"), 1),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: AerobeeError, code: int) -> None:
    assert code_of(error) == code


@pytest.mark.parametrize("theirs", sorted(OURS))
def test_a_command_of_mqadmin_leads_to_one_that_exists(theirs: str) -> None:
    group: click.Command | None = cli
    for word in OURS[theirs].split():
        assert isinstance(group, click.Group)
        group = group.get_command(click.Context(group), word)
    assert group is not None


def test_a_command_of_mqadmin_is_answered_with_ours() -> None:
    done = run("updateTopic", "-t", "x")
    assert done.returncode == WRONG_USAGE
    assert "here it is 'aerobee topic create'" in done.stderr
