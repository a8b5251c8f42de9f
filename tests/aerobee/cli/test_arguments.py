"""Whatever a command is given, it ends with a line and an exit code: every parameter of the tree.

The commands run in this process, against a name server that is not there: an argument that gets
past the checks is an error all the same. What they would start, brokers and Spark, is left out.
"""

import errno
import io
import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click
import pytest

from aerobee.broker import __main__ as servers
from aerobee.cli import certs
from aerobee.cli.arguments import InputFile
from aerobee.cli.border import FAILED, WRONG_USAGE, exit_code_of
from aerobee.cli.main import cli
from aerobee.cli.main import run as run_line
from aerobee.errors import ConfigurationError
from aerobee.spark.jobs import common
from tests.aerobee.cli.conftest import command

NOWHERE = "127.0.0.1:1"
NO_UTF8 = "caf\udce9"
"""As Python gives a command line the bytes of `café` in Latin-1."""
ODD_TEXTS = ("", " ", "²", "9" * 5_000, "x" * 100_000, "a\x00b", "\x1b[31m\r\n", "=", "-", "é" * 70)
NO_NUMBERS = ("", "x", "²", "nan", "inf", "-inf", "1e999", "9" * 5_000, "-1e9", NO_UTF8)
NUMBERS = (click.types.IntParamType, click.types.FloatParamType)


class Leaf(NamedTuple):
    """A command, and the words that lead to it."""

    words: tuple[str, ...]
    command: click.Command

    def line(self, param: click.Parameter | None = None, value: str = "") -> list[str]:
        """A command line with this value for a parameter, and ordinary ones for the others."""
        line = [*self.words]
        for one in self.command.params:
            text = value if one is param else ordinary(one)
            if isinstance(one, click.Option) and one.is_flag:
                line += [one.opts[-1]] if one.required else []
            elif isinstance(one, click.Option):
                line += [f"{one.opts[-1]}={text}"] if one is param or one.required else []
            elif one is param or one.required:
                line.append(text)
        return line


def ordinary(param: click.Parameter) -> str:
    """A value that a parameter takes."""
    kind = param.type
    if isinstance(kind, click.Choice):
        return str(kind.choices[0])
    if isinstance(kind, click.Path):
        return "file" if not kind.dir_okay else "."
    return "1" if isinstance(kind, NUMBERS) else "a=b"


def leaves(one: click.Command, *words: str) -> Iterator[Leaf]:
    """Every command of the tree."""
    if not isinstance(one, click.Group):
        yield Leaf(words, one)
        return
    context = click.Context(one)
    for name in one.list_commands(context):
        found = one.get_command(context, name)
        assert found is not None
        yield from leaves(found, *words, name)


LEAVES = {" ".join(leaf.words): leaf for leaf in leaves(cli)}


def params_of(leaf: Leaf, wanted: Callable[[Any], bool]) -> list[click.Parameter]:
    """The parameters with such a type, and a value."""
    return [
        one
        for one in leaf.command.params
        if not getattr(one, "is_flag", False) and wanted(one.type)
    ]


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Given = Callable[[list[str]], Ended]


@pytest.fixture
def given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Given:
    """Run a command line in an empty directory, and hold it to what every command promises."""
    for name in list(os.environ):
        if name.startswith("AEROBEE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NAMESRV_ADDR", NOWHERE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    monkeypatch.setattr(servers, "run", not_run)
    monkeypatch.setattr(servers, "run_nameserver", not_run)
    monkeypatch.setattr(certs.Maker, "openssl", no_program)
    monkeypatch.setattr(common.Session, "opened", no_session)

    def given(line: list[str]) -> Ended:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        capsys.readouterr()
        try:
            code = exit_code_of(run_line, line)
        except SystemExit as exited:
            code = int(exited.code or 0)
        ended = Ended(code, *capsys.readouterr())
        assert 0 <= code <= 5
        assert code == 0 or ended.err or ended.out, (line, ended)
        return ended

    return given


def not_run(*_: object, **__: object) -> NoReturn:
    raise ConfigurationError("no server is run here")


def no_program(*_: object) -> None:
    raise ConfigurationError("no program is run here")


def no_session(*_: object) -> None:
    raise ConfigurationError("no session is started here")


def names_of(param: click.Parameter) -> tuple[str, ...]:
    """How a message may name a parameter."""
    if isinstance(param, click.Option):
        return tuple(param.opts)
    return (param.make_metavar(click.Context(cli)).strip("[]").removesuffix("..."),)


def refused(ended: Ended, param: click.Parameter) -> None:
    """Check that it is wrong usage, and that the message names the parameter."""
    assert ended.code == WRONG_USAGE, ended
    assert any(name in ended.err for name in names_of(param)), (names_of(param), ended.err)


@pytest.mark.parametrize("name", LEAVES)
def test_a_text_that_is_no_utf8_is_refused_by_the_name_of_its_option(
    given: Given, name: str
) -> None:
    leaf = LEAVES[name]
    for param in params_of(leaf, lambda kind: isinstance(kind, click.types.StringParamType)):
        refused(given(leaf.line(param, NO_UTF8)), param)


@pytest.mark.parametrize("name", LEAVES)
def test_no_number_is_refused_by_the_name_of_its_option(given: Given, name: str) -> None:
    leaf = LEAVES[name]
    for param in params_of(leaf, lambda kind: isinstance(kind, (*NUMBERS, click.Choice))):
        for text in NO_NUMBERS:
            refused(given(leaf.line(param, text)), param)


@pytest.mark.parametrize("name", LEAVES)
def test_any_text_ends_with_a_line_and_a_code(given: Given, name: str) -> None:
    leaf = LEAVES[name]
    for param in params_of(leaf, lambda kind: isinstance(kind, click.types.StringParamType)):
        for text in ODD_TEXTS:
            given(leaf.line(param, text))


# ── Files ──


FILES: dict[str, bytes] = {
    "no_text": b"\xff\xfe\x00\x01",
    "empty": b"",
    "nul": b"\x00\n\x00",
    "deep": b"[" * 100_000,
    "deep_object": b'{"a":' * 100_000,
    "long_number": b'{"body": 1' + b"0" * 5_000 + b"}\na = 1" + b"0" * 5_000,
    "surrogate": b'{"body": "\\ud800"}\n',
    "long_line": b"a" * 1_000_000,
}
ODD_PATHS = (".", "missing/file", "x" * 5_000, NO_UTF8, "/proc/self/mem", "/dev/null", "", *FILES)
"""A directory, no file, a name that no file has, one in other letters, one that cannot be read."""


def test_any_file_ends_with_a_line_and_a_code(given: Given) -> None:
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    tried = 0
    for leaf in LEAVES.values():
        for param in params_of(leaf, lambda kind: isinstance(kind, click.Path | InputFile)):
            for path in ODD_PATHS:
                tried += 1
                given(leaf.line(param, path))
                if leaf.words == ("produce",):
                    given([*leaf.line(param, path), "--format=json"])
    assert tried > 200


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_contexts_that_cannot_be_read_are_named_by_every_command(
    given: Given, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "config" / "aerobee").mkdir(parents=True)
    (tmp_path / "config" / "aerobee" / "contexts.json").write_bytes(content)
    for line in (["context", "list"], ["topic", "list", "--context", "a"]):
        ended = given(line)
        assert (ended.code, "contexts.json" in ended.err) == (WRONG_USAGE, True)


# ── Variables and streams ──


@pytest.mark.parametrize("name", ["NAMESRV_ADDR", "AEROBEE_NAMESPACE", "AEROBEE_LISTEN_PORT"])
def test_a_variable_that_is_no_utf8_is_named(
    given: Given, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, NO_UTF8)
    for line in (["topic", "list"], ["broker", "run"], ["nameserver", "run"], ["config", "check"]):
        ended = given(line)
        assert (ended.code, name in ended.err) == (WRONG_USAGE, True)


class FullStream(io.TextIOWrapper):
    """A stream that takes nothing."""

    def __init__(self, number: int) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("name", LEAVES)
def test_an_output_that_is_full_is_told_where_it_can_be(
    given: Given, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(sys, "stdout", FullStream(errno.ENOSPC))
    ended = given([*LEAVES[name].words, "--help"])
    assert (ended.code, "the output cannot be written" in ended.err) == (FAILED, True)
    monkeypatch.setattr(sys, "stderr", FullStream(errno.ENOSPC))
    assert exit_code_of(run_line, [*LEAVES[name].words, "--no-such-option"]) == WRONG_USAGE


def closed(redirection: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a shell that closes one of its streams."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command(*words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"NAMESRV_ADDR": NOWHERE},
    )


def test_a_closed_stdin_is_named_where_it_is_read() -> None:
    done = closed("<&-", "produce", "Orders", "--file", "-")
    assert (done.returncode, "'--file': stdin is closed" in done.stderr) == (WRONG_USAGE, True)


def test_a_closed_stdin_answers_no_question() -> None:
    done = closed("<&-", "users", "delete", "someone")
    assert (done.returncode, "Traceback" in done.stderr) == (FAILED, False)


def test_a_closed_stdout_is_an_error_for_who_prints_to_it() -> None:
    done = closed(">&-", "config", "check")
    text = "aerobee: the output cannot be written: Bad file descriptor\n"
    assert (done.returncode, done.stderr) == (FAILED, text)


def test_a_closed_stderr_leaves_the_exit_code() -> None:
    assert closed("2>&-", "produce", "--no-such-option").returncode == WRONG_USAGE


@pytest.mark.parametrize("words", [("--help",), ("config", "check", "--all")])
def test_a_reader_that_has_gone_is_no_error(words: tuple[str, ...]) -> None:
    done = closed("| true", *words)
    assert "Traceback" not in done.stderr


def test_what_the_encoding_of_stdout_does_not_have_is_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    done = closed("", "spark", "audit", "--help")
    assert (done.returncode, "\\u2026" in done.stdout) == (0, True)


def test_a_user_id_without_a_name_has_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as any user id, where nothing sets HOME."""

    def without_name(number: int) -> NoReturn:
        raise KeyError(number)

    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", without_name)
    assert exit_code_of(run_line, ["context", "list"]) == 0
    assert os.environ["HOME"] == "/"
