"""`aerobee context`: named connection profiles."""

from __future__ import annotations

import click

from aerobee.cli.connection import Contexts, contexts_file
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.output import Output, output_options

__all__ = ["context"]


@click.group(cls=CommandGroup, short_help="Named connection profiles.")
def context() -> None:
    """Keep clusters under a name, and choose one of them.

    Example: aerobee context add prod --namesrv 10.0.0.1:9876 --use
    """


@context.command("list")
@output_options
def list_contexts(output: Output) -> None:
    """Print all contexts and which is in use."""
    contexts = Contexts.load()
    output.rows(
        {"name": name, "in_use": name == contexts.current, "namesrv": options.get("namesrv")}
        for name, options in sorted(contexts.known.items())
    )


@context.command()
@click.argument("name")
@click.option("-n", "--namesrv", required=True, metavar="HOST:PORT", help="Its name servers.")
@click.option("--use", "use_it", is_flag=True, help="Use it from now on.")
def add(name: str, namesrv: str, use_it: bool) -> None:
    """Keep a cluster under NAME, or change it."""
    from aerobee.client.config import name_servers

    addresses = ";".join(name_servers(namesrv))
    contexts = Contexts.load()
    contexts.known[name] = {"namesrv": addresses}
    if use_it:
        contexts.current = name
    contexts.save()
    click.echo(f"context {name}: {addresses}, kept in {contexts_file()}")


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Use NAME from now on, where no option says otherwise."""
    contexts = Contexts.load()
    contexts.of(name)
    contexts.current = name
    contexts.save()
    click.echo(f"context {name} is in use")


@context.command()
@click.argument("name")
def remove(name: str) -> None:
    """Forget NAME."""
    contexts = Contexts.load()
    contexts.of(name)
    del contexts.known[name]
    if contexts.current == name:
        contexts.current = None
    contexts.save()
    click.echo(f"context {name} is forgotten")
