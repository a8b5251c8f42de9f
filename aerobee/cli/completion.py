"""`aerobee completion`: the script that makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print a completion script for a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in SHELL.

    Example: aerobee completion bash > ~/.local/share/bash-completion/completions/aerobee
    """
    from aerobee.cli.main import cli

    made = get_completion_class(shell)
    assert made is not None, "click knows these shells"
    click.echo(made(cli, {}, "aerobee", "_AEROBEE_COMPLETE").source())
