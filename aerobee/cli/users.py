"""`aerobee users`: list, show, create, update, delete.

A secret is never an argument, which other users of the machine could read: it comes from a file,
from AEROBEE_USER_SECRET, or is asked for.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.arguments import InputFile
from aerobee.cli.completing import user_names
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.options import asked, yes_option
from aerobee.cli.output import Output, confirm, output_options
from aerobee.cli.surroundings import surroundings
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from aerobee.admin import AclEntry, User
    from aerobee.cli.arguments import InputLines

SECRET_VARIABLE = "AEROBEE_USER_SECRET"

broker_option = click.option(
    "--broker", metavar="NAME", help="Only this broker; HOST:PORT may be a name server, too."
)
secret_file_option = click.option(
    "--secret-file", type=InputFile(), help="The secret is its first line; - is stdin."
)


@click.group(cls=CommandGroup, short_help="Who may sign requests.")
def users() -> None:
    """Users of the brokers: list, show, create, update and delete them.

    Their rights are told by `aerobee acl`.
    """


@users.command("list")
@click.option("--filter", "part", metavar="TEXT", help="Only names that contain it.")
@broker_option
@connection_options
@output_options
def list_users(
    part: str | None, broker: str | None, connection: Connection, output: Output
) -> None:
    """Print all users, broker by broker."""
    with connection.admin() as admin:
        rows = [row(user) for user in admin.users(part, broker)]
    output.rows(rows, none="there are no such users" if part else "there are no users")


def row(user: User) -> dict[str, Any]:
    """A user as it is printed."""
    kind = "super" if user.is_super else "normal"
    return {"name": user.name, "type": kind, "enabled": user.enabled, "broker": user.broker}


@users.command()
@click.argument("name", shell_complete=user_names)
@broker_option
@connection_options
@output_options
def show(name: str, broker: str | None, connection: Connection, output: Output) -> None:
    """Print user NAME on each broker, and what the user may do."""
    with connection.admin() as admin:
        accounts = [row(user) for user in admin.users(name, broker) if user.name == name]
        rights = [acl_row(entry) for entry in admin.acl(name, broker=broker)]
    if not accounts:
        raise click.ClickException(f"there is no user {name}")
    if output.for_programs:
        output.record({"name": name, "users": accounts, "acl": rights})
        return
    output.rows(accounts)
    output.rows(rights)


def acl_row(entry: AclEntry) -> dict[str, Any]:
    """An entry of an ACL as it is printed."""
    return {
        "user": entry.user,
        "resource": entry.resource,
        "decision": "allow" if entry.allow else "deny",
        "actions": list(entry.actions),
        "sources": list(entry.sources),
        "policy": entry.policy.lower(),
        "broker": entry.broker,
    }


@users.command()
@click.argument("name")
@click.option("--super", "is_super", is_flag=True, help="May do everything.")
@secret_file_option
@broker_option
@connection_options
@output_options
def create(
    name: str,
    is_super: bool,
    secret_file: InputLines | None,
    broker: str | None,
    connection: Connection,
    output: Output,
) -> None:
    """Create user NAME, enabled and without rights.

    The secret is in --secret-file or AEROBEE_USER_SECRET, else it is asked for.

    Example: aerobee users create orders-service --secret-file secret.txt
    """
    secret = secret_from(secret_file)
    with connection.admin() as admin:
        admin.create_user(name, secret, is_super=is_super, broker=broker)
    told(output, name, "created")


@users.command()
@click.argument("name", shell_complete=user_names)
@click.option("--secret", "ask_secret", is_flag=True, help="A new secret, as with `create`.")
@secret_file_option
@click.option("--super/--normal", "is_super", default=None, help="May do everything, or not.")
@click.option("--enable/--disable", "enabled", default=None, help="Serve the user, or no more.")
@broker_option
@connection_options
@output_options
def update(
    name: str,
    ask_secret: bool,
    secret_file: InputLines | None,
    is_super: bool | None,
    enabled: bool | None,
    broker: str | None,
    connection: Connection,
    output: Output,
) -> None:
    """Change user NAME: what is not named stays.

    The user's open connections end, so that the change counts from now on.

    Example: aerobee users update orders-service --disable
    """
    secret = secret_from(secret_file) if ask_secret or secret_file else None
    with connection.admin() as admin:
        admin.change_user(name, secret=secret, is_super=is_super, enabled=enabled, broker=broker)
    told(output, name, "changed")


@users.command()
@click.argument("name", shell_complete=user_names)
@broker_option
@yes_option
@connection_options
@output_options
def delete(
    name: str, broker: str | None, yes: bool, connection: Connection, output: Output
) -> None:
    """Delete user NAME and what the user may do."""
    if not yes:
        confirm(f"Delete user {name}?")
    with connection.admin() as admin:
        admin.delete_user(name, broker)
    told(output, name, "deleted")


def secret_from(lines: InputLines | None) -> str:
    """The secret of a user: the first line of a file, the variable, or what is typed."""
    kept = surroundings()
    if kept is not None:
        if not kept.secret.strip():
            raise ConfigurationError("the secret is blank")
        return kept.secret
    if lines is not None:
        try:
            secret = next(iter(lines), b"").decode()
        except UnicodeDecodeError:
            raise ConfigurationError(f"{lines.place}: the first line is no UTF-8") from None
        if not secret.strip():
            raise ConfigurationError(f"{lines.place}: the first line is blank")
        return secret
    return os.environ.get(SECRET_VARIABLE) or asked(
        "secret", f"give --secret-file, or set {SECRET_VARIABLE}", twice=True
    )


def told(output: Output, name: str, what: str) -> None:
    """Say what has happened to a user."""
    if output.for_programs:
        output.record({"name": name, what: True})
    output.say(f"user {name} is {what}")
