"""The main command: loads a command's module only when that command is called.

`aerobee broker run` must be ready within 0.6 s, so nothing here imports more than click.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import click

from aerobee.cli.lazy import LazyGroup

COMMANDS = {
    "acl": ("aerobee.cli.acl:acl", "What users may do."),
    "backup": ("aerobee.cli.backup:backup", "Copy the store of a running broker."),
    "bench": ("aerobee.cli.bench.command:bench", "Measure sending and consuming."),
    "broker": ("aerobee.cli.broker:broker", "Run a broker, change a running one."),
    "certs": ("aerobee.cli.certs:certs", "Make certificates to try TLS with."),
    "cluster": ("aerobee.cli.cluster:cluster", "What brokers there are."),
    "completion": ("aerobee.cli.completion:completion", "Print a completion script for a shell."),
    "config": ("aerobee.cli.config:config", "Check and convert configuration files."),
    "connections": ("aerobee.cli.cluster:connections", "Who is connected."),
    "console": ("aerobee.cli.console:console", "The console of a cluster, without a broker."),
    "consume": ("aerobee.cli.consume:consume", "Print the messages of a topic."),
    "context": ("aerobee.cli.context:context", "Named connection profiles."),
    "definitions": (
        "aerobee.cli.definitions:definitions",
        "Topics, groups, users and policies as a file.",
    ),
    "dlq": ("aerobee.cli.dlq:dlq", "Dead letters: list, send again, edit, drop."),
    "group": ("aerobee.cli.group:group", "Consumer groups: lag, reset, delete."),
    "ha": ("aerobee.cli.ha:ha", "Masters and slaves: how far, and who."),
    "healthcheck": ("aerobee.cli.healthcheck:healthcheck", "Ask a running broker how it is."),
    "message": ("aerobee.cli.message:message", "Find and show messages."),
    "nameserver": ("aerobee.cli.nameserver:nameserver", "Run a name server alone."),
    "produce": ("aerobee.cli.produce:produce", "Send messages to a topic."),
    "spark": ("aerobee.cli.spark:spark", "Run a Spark job."),
    "store": ("aerobee.cli.store:store", "Verify, show, export and repair a data directory."),
    "support": ("aerobee.cli.support:support", "Collect what helps others to help."),
    "top": ("aerobee.cli.top:top", "A cluster live: rates, lag, connections."),
    "topic": ("aerobee.cli.topic:topic", "List, create, alter and delete topics."),
    "users": ("aerobee.cli.users:users", "Who may sign requests."),
    "why": ("aerobee.cli.why:why", "What became of a message."),
}
"""The module and object of each command, and its description."""


class Trunk(LazyGroup):
    """All commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the first word; for a command of mqadmin, name the one here."""
        if args[0] not in self.table:
            from aerobee.cli.mqadmin import OURS

            if ours := OURS.get(args[0].lower()):
                ctx.fail(f"{args[0]} is a command of mqadmin: here it is 'aerobee {ours}'.")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a pipe whose reader has gone ends it without an error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            from aerobee.cli.border import drop_output

            drop_output()
            return 0


def show_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    """Print the version, and whether it is a compiled build, and exit."""
    if wanted:
        from importlib.util import find_spec

        from aerobee import __version__

        spec = find_spec("aerobee.store.format.record")
        pure = spec is None or str(spec.origin).endswith(".py")
        # The installed version may be the compiled build without its libraries, which is the pure
        # one.
        public = __version__.removesuffix("+compiled")
        click.echo(f"aerobee {public}{'' if pure else ' compiled'}")
        ctx.exit()


@click.group(cls=Trunk, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
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
    from aerobee.cli.border import exit_code_of, open_closed

    open_closed()
    sys.exit(exit_code_of(run, arguments))


def run(arguments: list[str] | None) -> Any:
    """Run the command. Raises: the errors of the command."""
    return cli.main(args=arguments, prog_name="aerobee", standalone_mode=False)
