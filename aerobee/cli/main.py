"""The command line's trunk: loads a command's module only when that command is called.

`aerobee broker run` must be ready within 0.6 s, so nothing here imports more than click.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NoReturn

import click

__all__ = ["cli", "main"]

COMMANDS = {
    "broker": "aerobee.cli.broker:broker",
    "config": "aerobee.cli.config:config",
    "consume": "aerobee.cli.message:consume",
    "healthcheck": "aerobee.cli.healthcheck:healthcheck",
    "produce": "aerobee.cli.message:produce",
    "spark": "aerobee.cli.spark:spark",
    "store": "aerobee.cli.store:store",
    "topic": "aerobee.cli.topic:topic",
}
"""Name of a command → module and object that is it."""
SUMMARIES = {
    "broker": "Run a broker.",
    "config": "Check and convert configuration files.",
    "consume": "Print the messages of a topic.",
    "healthcheck": "Ask a running broker how it is.",
    "produce": "Send messages to a topic.",
    "spark": "Run a Spark job.",
    "store": "Verify, show and repair a data directory.",
    "topic": "Create and list topics.",
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, without importing any of them."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader of our output that goes away is the end and no error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            from aerobee.cli.border import drop_output

            drop_output()
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help's list of commands, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUMMARIES[name]) for name in self.list_commands(ctx)])


def show_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    """Print our version and end."""
    if wanted:
        from importlib.metadata import version

        click.echo(f"aerobee {version('aerobee')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Print the version and end.",
)
def cli() -> None:
    """Aerobee: a RocketMQ broker in Python, and tools for talking to one.

    Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 store refused or damaged,
    4 not reachable, 5 refused for lack of permission.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """The entry point: runs the command line and exits with its code."""
    from aerobee.cli.border import exit_code_of

    sys.exit(exit_code_of(run, arguments))


def run(arguments: list[str] | None) -> Any:
    """The command's own result. Raises: whatever it raises."""
    return cli.main(args=arguments, prog_name="aerobee", standalone_mode=False)
