"""Arguments of commands that may hold anything: texts, and files that are read line by line.

An argument comes from a shell, as bytes: what is no UTF-8 has no place in a name, a body or a
request, and is refused with the name of the option before the command begins. Paths are left as
they are: the system takes any bytes for one.
"""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_MAX: Final = 32 << 20
"""Bytes of a line: a body of 4 MiB as JSON, with an escape for every character, and properties."""
VARIABLES: Final = ("AEROBEE", "NAMESRV_ADDR")
"""The first parts of the names of variables that commands read."""
STDIN: Final = "-"


def is_text(value: str) -> bool:
    """Whether a text is UTF-8; bytes of the shell that are not become lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class Text(click.types.StringParamType):
    """A text in UTF-8."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text. Raises: BadParameter."""
        text: str = super().convert(value, param, ctx)
        if not is_text(text):
            self.fail("it is no UTF-8", param, ctx)
        return text


TEXT: Final = Text()


def only_texts(command: click.Command) -> None:
    """Have the parameters of a command that take texts take UTF-8 only."""
    for param in command.params:
        if param.type is click.STRING:
            param.type = TEXT


def check_variables() -> None:
    """Check the variables that commands read. Raises: UsageError, which names one.

    A user id without a name, as containers may have, gets the home that their runtimes give it.
    """
    if os.path.expanduser("~") == "~":
        os.environ["HOME"] = "/"
    for name, value in os.environ.items():
        if name.startswith(VARIABLES) and not is_text(value):
            raise click.UsageError(f"the variable {name} is no UTF-8")


class InputLines:
    """The lines of a file, without their ends. `number`: of the last one that was read."""

    def __init__(self, file: IO[bytes], place: str) -> None:
        """`place`: the option and the name of the file, for errors."""
        self.file = file
        self.place = place
        self.number = 0

    def __iter__(self) -> Iterator[bytes]:
        """Read line by line. Raises: UsageError for one that is too long, OSError."""
        while line := self.file.readline(LINE_MAX + 1):
            self.number += 1
            if len(line) > LINE_MAX:
                raise click.UsageError(f"{self.here}: longer than {LINE_MAX} bytes")
            yield line.rstrip(b"\r\n")

    @property
    def here(self) -> str:
        """The place of the last line that was read."""
        return f"{self.place}, line {self.number}"


class InputFile(click.ParamType[InputLines]):
    """A file to read line by line; `-` is stdin."""

    name = "filename"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> InputLines:
        """Open the file. Raises: BadParameter; PermissionError, which names the option."""
        place = f"{'' if param is None else param.opts[0]} {value}"
        if value == STDIN:
            if sys.stdin is None or getattr(sys.stdin, "name", "") == os.devnull:
                self.fail("stdin is closed", param, ctx)  # See `open_closed`.
            return InputLines(sys.stdin.buffer, place)
        try:
            if os.path.isdir(value):
                self.fail(f"{value} is a directory", param, ctx)
            file = open(value, "rb")  # noqa: SIM115 - closed with the command
        except PermissionError as error:
            raise PermissionError(error.errno, error.strerror, place) from None
        except (OSError, ValueError) as error:
            self.fail(f"{value}: {getattr(error, 'strerror', None) or error}", param, ctx)
        if ctx is not None:
            ctx.call_on_close(file.close)
        return InputLines(file, place)
