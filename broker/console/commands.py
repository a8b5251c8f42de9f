"""Runs commands of `aerobee` inside the broker: words in, what they print with --json out.

A command is parsed by its own declaration, so the console takes what the command takes, and no
more: options are given as `--name=value` and arguments behind `--`, so that no value is read as
another option. Files of this machine are never read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from aerobee.broker.console.looks.rights import explained_with_right
from aerobee.broker.console.looks.viewers import Failure, Outcome
from aerobee.broker.console.operations import SECRETS
from aerobee.cli.arguments import InputFile, is_text
from aerobee.cli.border import EXIT_CODES, noted, reason_of
from aerobee.cli.main import cli
from aerobee.cli.surroundings import Question, Surroundings
from aerobee.errors import (
    AerobeeError,
    BrokerError,
    ConfigurationError,
    GroupNotFoundError,
    PermissionDeniedError,
    RouteNotFoundError,
    TopicNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aerobee.broker.console.operations import Operation
    from aerobee.cli.connection import Connection

T = TypeVar("T")

OF_SHELLS: Final = frozenset(
    {"namesrv", "context", "namespace", "output_style", "help", "json", "jsonl", "yes"}
)
"""Parameters that the console sets by itself."""
TEXT_MAX: Final = 4_096
"""Characters of an argument; the new body of a dead letter may have BODY_MAX."""
BODY_MAX: Final = 48 * 1024
VALUES_MAX: Final = 128
"""Values of an argument that takes several."""
STATUS: Final[tuple[tuple[type[AerobeeError], int, str], ...]] = (
    (PermissionDeniedError, 403, "forbidden"),
    (GroupNotFoundError, 404, "not_found"),
    (TopicNotFoundError, 404, "not_found"),
    (RouteNotFoundError, 404, "not_found"),
    (ConfigurationError, 400, "usage"),
    (BrokerError, 409, "refused"),
)
"""The first class that an error is of; any other: the cluster was not reached."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a command, as the API names it."""

    name: str
    param: click.Parameter
    most: int | None = None

    @property
    def is_flag(self) -> bool:
        """Whether it is yes or no."""
        return isinstance(self.param, click.Option) and self.param.is_flag

    @property
    def is_list(self) -> bool:
        """Whether it takes several values."""
        return self.param.nargs == -1 or getattr(self.param, "multiple", False)


@cache
def command_of(operation: Operation) -> click.Command:
    """The command of an operation."""
    command: click.Command = cli
    for word in operation.words:
        assert isinstance(command, click.Group)
        context = click.Context(command, info_name=word)
        inner = command.get_command(context, word)
        assert inner is not None, f"there is no command for {operation.name}"
        command = inner
    return command


@cache
def parameters_of(operation: Operation) -> Mapping[str, Parameter]:
    """The parameters that the console takes, by name."""
    return {parameter.name: parameter for parameter in _parameters(operation)}


def _parameters(operation: Operation) -> Iterator[Parameter]:
    most = dict(operation.most)
    for param in command_of(operation).params:
        is_file = isinstance(param.type, (InputFile, click.File, click.Path))
        name = name_of(param)
        if not (is_file or name in OF_SHELLS | operation.leaves_out or param.name in OF_SHELLS):
            yield Parameter(name, param, most.get(name))


def name_of(param: click.Parameter) -> str:
    """The name of an argument; of an option what is behind its dashes."""
    if isinstance(param, click.Argument):
        return param.name or ""
    return long_option(param).lstrip("-").replace("-", "_")


def long_option(param: click.Parameter) -> str:
    """An option as it is written; a short one takes no `=`."""
    return next((name for name in param.opts if name.startswith("--")), param.opts[0])


def words_of(operation: Operation, arguments: Mapping[str, Any]) -> list[str]:
    """The command line of a call, without the command. Raises: Failure."""
    known = parameters_of(operation)
    unknown = sorted(arguments.keys() - known.keys())
    if unknown:
        takes = ", ".join(known) or "none"
        raise Failure(400, "usage", f"unknown argument {unknown[0]!r:.80}; there are: {takes}")
    options: list[str] = []
    places: list[str] = []
    for name, parameter in known.items():
        value = arguments.get(name)
        if value is None:
            if isinstance(parameter.param, click.Argument) and parameter.param.required:
                raise Failure(400, "usage", f"{name} is missing")
            continue
        if parameter.is_flag:
            options += flag(parameter, value)
            continue
        values = value if isinstance(value, list) else [value]
        if len(values) > (VALUES_MAX if parameter.is_list else 1):
            raise Failure(400, "usage", f"{name} takes fewer values")
        for text in (checked(parameter, item) for item in values):
            if isinstance(parameter.param, click.Argument):
                places.append(text)
            else:
                options.append(f"{long_option(parameter.param)}={text}")
    return [*options, "--", *places]


def flag(parameter: Parameter, value: Any) -> list[str]:
    """The words of a flag. Raises: Failure."""
    if value in ("true", "false"):
        value = value == "true"
    if not isinstance(value, bool):
        raise Failure(400, "usage", f"{parameter.name} is true or false")
    if value:
        return [long_option(parameter.param)]
    return list(parameter.param.secondary_opts[:1])


def checked(parameter: Parameter, value: Any) -> str:
    """The text of a value. Raises: Failure."""
    name = parameter.name
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Failure(400, "usage", f"{name} is a text or a number")
    text = str(value)
    longest = BODY_MAX if name == "body" else TEXT_MAX
    if len(text) > longest:
        raise Failure(400, "usage", f"{name} has at most {longest} characters")
    if not is_text(text) or "\0" in text:
        raise Failure(400, "usage", f"{name} is no text in UTF-8")
    if name == "broker" and ":" in text:
        # Else anybody with an account has the broker connect to any address.
        raise Failure(400, "usage", "broker is the name of a broker, not an address")
    if parameter.most is not None and not (
        text.isascii() and text.isdigit() and len(text) < 9 and 0 < int(text) <= parameter.most
    ):
        raise Failure(400, "usage", f"{name} is a number from 1 to {parameter.most}")
    return text


def run(
    operation: Operation,
    arguments: Mapping[str, Any],
    connection: Connection,
    *,
    confirmed: bool = False,
    bodies: bool = False,
) -> Outcome:
    """Run an operation, or say what it would do. Blocks; for a thread. Raises: Failure."""
    options = dict(arguments)
    secret = options.pop("secret", "") if operation.name in SECRETS else ""
    if not isinstance(secret, str):
        raise Failure(400, "usage", "secret is a text")
    if operation.name == "users.update" and secret:
        options["secret"] = True
    for name, parameter in parameters_of(operation).items():
        if parameter.most is not None:
            options.setdefault(name, min(parameter.most, 32))
    words = words_of(operation, options)
    dry = options.get("dry_run") in (True, "true")
    if operation.changes and not confirmed and not dry and operation.asks:
        parse(operation, words, Surroundings(connection=connection))
        return Outcome(asks=operation.asks.format_map(Spelling(spelled(options))))
    if confirmed and any(param.name == "yes" for param in command_of(operation).params):
        words.insert(0, "--yes")
    around = Surroundings(connection=connection, secret=secret, bodies=bodies)
    try:
        code = invoke(operation, words, around)
    except Question as question:
        return Outcome(asks=str(question), notes=around.notes)
    value = around.values[-1] if around.values else None
    value = msgspec.json.decode(msgspec.json.encode(value))
    asks = ""
    if operation.dry_unless_yes and not confirmed:
        asks = around.remarks[-1].partition(";")[0] if around.remarks else ""
        asks = asks if value else ""
    return Outcome(value=value, notes=around.notes, asks=asks, complete=not code)


def spelled(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Arguments as they stand in a sentence."""
    return {
        name: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in arguments.items()
    }


class Spelling(dict[str, str]):
    """Arguments in a sentence; absent ones are left out."""

    def __missing__(self, name: str) -> str:
        return "all of it"


def parse(operation: Operation, words: list[str], around: Surroundings) -> click.Context:
    """The context of a call, of which nothing has run. Raises: Failure."""
    return guarded(
        lambda: command_of(operation).make_context(operation.words[-1], list(words), obj=around)
    )


def invoke(operation: Operation, words: list[str], around: Surroundings) -> int:
    """Run a command; its exit code. Raises: Failure, Question."""
    context = parse(operation, words, around)

    def run_in_context() -> Any:
        with context:
            try:
                return context.command.invoke(context)
            except click.exceptions.Exit as end:
                return end.exit_code

    code = guarded(run_in_context)
    return code if isinstance(code, int) else 0


def guarded(run_command: Callable[[], T]) -> T:
    """The result of a function, its errors as failures. Raises: Failure, Question."""
    try:
        return run_command()
    except click.UsageError as error:
        raise Failure(400, "usage", error.format_message()) from None
    except click.ClickException as error:
        raise Failure(409, "refused", error.format_message()) from None
    except click.Abort:
        raise Failure(409, "refused", "nothing has been changed") from None
    except AerobeeError as error:
        raise failure_of(error) from None
    except (OSError, UnicodeError) as error:
        raise Failure(500, "failed", str(error)) from None


def failure_of(error: AerobeeError) -> Failure:
    """An error of the SDK as a failure."""
    cause = reason_of(error)
    for kind, status, name in STATUS:
        if isinstance(cause, kind):
            return Failure(status, name, explained_with_right(error))
    reached = any(isinstance(cause, kind) and code != 4 for kind, code in EXIT_CODES)
    return Failure(500 if reached else 503, "failed" if reached else "unreachable", noted(error))
