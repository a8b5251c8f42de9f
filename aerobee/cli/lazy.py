"""Groups of commands that suggest the nearest name for a typo and load their modules late; and a
library of the broker without what it would load in turn.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import click

from aerobee.cli.arguments import only_texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType


def import_structlog() -> None:
    """Import structlog without rich, which it takes for colourful tracebacks; ours are plain.

    That is a sixth of the time of a broker's start. Rich can be imported later, by others.
    """
    absent = cast("ModuleType", None)
    if sys.modules.setdefault("rich", absent) is None:
        import structlog  # noqa: F401 - for its place among the loaded modules

        del sys.modules["rich"]


class CommandGroup(click.Group):
    """A group that says which command may have been meant, and whose commands take only UTF-8."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what comes before the command. Raises: UsageError for an option of the command."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            path = f"{ctx.command_path} COMMAND {error.option_name} …"
            ctx.fail(f"No such option: {error.option_name}. Of a command, it comes after: {path}")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names. Raises: UsageError with a proposal."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(name, self.list_commands(ctx), n=1)
            meant = f" Did you mean '{close[0]}'?" if close else ""
            ctx.fail(f"No such command '{name}'.{meant}")
        command = super().resolve_command(ctx, args)
        if command[1] is not None:
            only_texts(command[1])
        return command

    def summary(self, ctx: click.Context, name: str) -> str:
        """The first sentence of a command's help, whole; empty of a hidden command."""
        command = self.get_command(ctx, name)
        if command is None or command.hidden:
            return ""
        return command.get_short_help_str(limit=sys.maxsize)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help's list of commands; a long summary takes two lines."""
        summaries = {name: self.summary(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, text in summaries.items() if text])


class LazyGroup(CommandGroup):
    """A group that imports a command's module when the command is asked for by name.

    `table`: name → where the command is, as `module:object`, and what it does.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **named: Any) -> None:
        super().__init__(*args, **named)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, without importing any of them."""
        return sorted([*self.table, *self.commands])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported; None for an unknown name."""
        if cmd_name not in self.table:
            return super().get_command(ctx, cmd_name)
        module, _, name = self.table[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def summary(self, ctx: click.Context, name: str) -> str:
        """The first sentence of a command's help, from the table."""
        return self.table[name][1] if name in self.table else super().summary(ctx, name)
