"""`aerobee context`: named connection profiles."""

from __future__ import annotations

import os

import click

from aerobee.cli.connection import Connection, Contexts, contexts_file
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.options import asked, not_empty
from aerobee.cli.output import Output, output_options

FILE = click.Path(exists=True, dir_okay=False, resolve_path=True)


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
    rows = [
        {
            "name": name,
            "in_use": name == contexts.current,
            "namesrv": profile.get("namesrv"),
            "namespace": profile.get("namespace"),
            "access_key": profile.get("access_key"),
            "tls": bool(Connection(None, profile).options().get("tls")),
        }
        for name, profile in sorted(contexts.known.items())
    ]
    output.rows(rows, none="there are no contexts: `aerobee context add NAME` makes one")


@context.command()
@click.argument("name")
@click.option(
    "-n",
    "--namesrv",
    required=True,
    metavar="HOST:PORT",
    callback=not_empty,
    help="Its name servers.",
)
@click.option("--namespace", metavar="NAME", help="Of 4.x clients; see any command's --namespace.")
@click.option("--access-key", help="Sign requests; the secret key is AEROBEE_SECRET_KEY, or asked.")
@click.option("--tls", is_flag=True, help="Encrypted connections.")
@click.option("--ca-file", type=FILE, help="Whom to trust; else whom the system trusts.")
@click.option("--cert-file", type=FILE, help="What to show; with --key-file.")
@click.option(
    "--key-file",
    type=FILE,
    help="The private key of --cert-file.",
)
@click.option("--server-hostname", help="The name in the servers' certificates.")
@click.option("--use", "use_it", is_flag=True, help="Use it from now on.")
@output_options
def add(
    name: str, namesrv: str, use_it: bool, tls: bool, output: Output, **profile: str | None
) -> None:
    """Keep a cluster under NAME, or change it.

    Example: aerobee context add prod -n 10.0.0.1:9876 --access-key admin --tls --use
    """
    from aerobee.client.settings.client import name_servers

    if not name.strip():
        raise click.BadParameter("it is empty", param_hint="NAME")
    addresses = ";".join(name_servers(namesrv))
    kept = {key: value for key, value in profile.items() if value} | {"namesrv": addresses}
    if tls:
        kept["tls"] = "true"
    if "access_key" in kept:
        secret = os.environ.get("AEROBEE_SECRET_KEY")
        kept["secret_key"] = secret or asked("secret key", "set AEROBEE_SECRET_KEY")
    Connection(addresses, kept).options()
    with Contexts.changing() as contexts:
        contexts.known[name] = kept
        if use_it:
            contexts.current = name
    if output.for_programs:
        in_use = name == contexts.current
        output.record({"name": name, "in_use": in_use, "namesrv": addresses})
    output.say(f"context {name}: {addresses}, kept in {contexts_file()}")


@context.command()
@click.argument("name")
@output_options
def use(name: str, output: Output) -> None:
    """Use NAME from now on, where no option says otherwise."""
    Contexts.load().of(name)
    with Contexts.changing() as contexts:
        contexts.of(name)
        contexts.current = name
    if output.for_programs:
        output.record({"name": name, "in_use": True})
    output.say(f"context {name} is in use")


@context.command()
@click.argument("name")
@output_options
def remove(name: str, output: Output) -> None:
    """Forget NAME."""
    Contexts.load().of(name)
    with Contexts.changing() as contexts:
        contexts.of(name)
        del contexts.known[name]
        if contexts.current == name:
            contexts.current = None
    if output.for_programs:
        output.record({"name": name, "removed": True})
    output.say(f"context {name} is forgotten")
