"""`aerobee acl`: what users may do. List, show, grant, revoke, and ask which entry decides."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.border import REFUSED
from aerobee.cli.completing import user_names
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.output import Output, output_options
from aerobee.cli.users import acl_row, broker_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aerobee.admin import AclEntry

ACTIONS = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
ACTION = click.Choice(ACTIONS, case_sensitive=False)


class IPAddress(click.ParamType[IPv4Address | IPv6Address]):
    """An address of a client."""

    name = "address"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> IPv4Address | IPv6Address:
        """The address. Raises: BadParameter."""
        try:
            return ip_address(value)
        except ValueError:
            self.fail(f"{value!r} is no IP address.", param, ctx)


default_option = click.option(
    "--default", is_flag=True, help="In the policy that is asked when no other entry matches."
)


@click.group(cls=CommandGroup, short_help="What users may do.")
def acl() -> None:
    """Rights of users: what each may do on topics, groups and the cluster, and from where.

    A RESOURCE is Topic:NAME, Group:NAME or Cluster:NAME, with an asterisk at the end for all names
    that begin so, or just * for everything.
    """


@acl.command("list")
@click.option("--user", help="Only those of this user.")
@click.option("--resource", metavar="TEXT", help="Only resources that contain it.")
@broker_option
@connection_options
@output_options
def list_acl(
    user: str | None,
    resource: str | None,
    broker: str | None,
    connection: Connection,
    output: Output,
) -> None:
    """Print the rights of all users, broker by broker."""
    with connection.admin() as admin:
        rows = [acl_row(entry) for entry in admin.acl(user, resource, broker)]
    output.rows(rows, none="no user has rights")


@acl.command()
@click.argument("user", shell_complete=user_names)
@broker_option
@connection_options
@output_options
def show(user: str, broker: str | None, connection: Connection, output: Output) -> None:
    """Print the rights of USER."""
    with connection.admin() as admin:
        rows = [acl_row(entry) for entry in admin.acl(user, broker=broker)]
    output.rows(rows, none=f"user {user} has no rights")


@acl.command()
@click.argument("user", shell_complete=user_names)
@click.argument("resource")
@click.argument("actions", type=ACTION, nargs=-1, required=True)
@click.option("--deny", is_flag=True, help="Forbid it; of equal entries this one wins.")
@click.option("--from", "sources", multiple=True, metavar="ADDRESS", help="Or a network; several.")
@default_option
@broker_option
@connection_options
@output_options
def grant(
    user: str,
    resource: str,
    actions: Sequence[str],
    deny: bool,
    sources: Sequence[str],
    default: bool,
    broker: str | None,
    connection: Connection,
    output: Output,
) -> None:
    """Allow USER one or more ACTIONS on RESOURCE; replaces the entry on the same resource.

    Example: aerobee acl grant orders-service 'Topic:orders*' Pub Sub --from 10.0.0.0/8
    """
    with connection.admin() as admin:
        admin.grant(
            user,
            resource,
            actions,
            deny=deny,
            sources=sources,
            default=default,
            broker=broker,
        )
    decision = "deny" if deny else "allow"
    if output.for_programs:
        output.record({"user": user, "resource": resource, "decision": decision})
    output.say(f"{user}: {decision} {', '.join(actions)} on {resource}")


@acl.command()
@click.argument("user", shell_complete=user_names)
@click.argument("resource", required=False)
@click.option("--all", "everything", is_flag=True, help="Every entry of USER.")
@default_option
@broker_option
@connection_options
@output_options
def revoke(
    user: str,
    resource: str | None,
    everything: bool,
    default: bool,
    broker: str | None,
    connection: Connection,
    output: Output,
) -> None:
    """Delete the entry of USER on RESOURCE, or with --all every entry."""
    if everything == (resource is not None):
        raise click.UsageError("name a RESOURCE, or --all")
    with connection.admin() as admin:
        admin.revoke(user, resource, default=default, broker=broker)
    if output.for_programs:
        output.record({"user": user, "resource": resource, "revoked": True})
    output.say(f"{user}: no entry on {resource or 'anything'} any more")


@acl.command()
@click.argument("user", shell_complete=user_names)
@click.argument("action", type=ACTION)
@click.argument("resource")
@click.option(
    "--from",
    "source",
    type=IPAddress(),
    metavar="ADDRESS",
    default="127.0.0.1",
    help="Where from.",
)
@broker_option
@connection_options
@output_options
def check(
    user: str,
    action: str,
    resource: str,
    source: IPv4Address | IPv6Address,
    broker: str | None,
    connection: Connection,
    output: Output,
) -> None:
    """Say whether USER may do ACTION on RESOURCE, and which entry decides.

    Exit code 5 when the user may not, on any of the brokers.

    Example: aerobee acl check orders-service Pub Topic:orders --from 10.1.2.3
    """
    with connection.admin() as admin:
        users = [account for account in admin.users(user, broker) if account.name == user]
        rights = admin.acl(user, broker=broker)
    if not users:
        raise click.ClickException(f"there is no user {user}")
    rows = []
    for holder in users:
        if not holder.enabled:
            allowed, why = False, "the user is disabled"
        elif holder.is_super:
            allowed, why = True, "a super user may do everything"
        else:
            theirs = [entry for entry in rights if entry.broker == holder.broker]
            allowed, why = decision(theirs, action, resource, source)
        rows.append({"broker": holder.broker, "allowed": allowed, "because": why})
    output.rows(rows)
    if not all(row["allowed"] for row in rows):
        click.get_current_context().exit(REFUSED)


def decision(
    rights: Iterable[AclEntry],
    action: str,
    resource: str,
    source: IPv4Address | IPv6Address,
) -> tuple[bool, str]:
    """Whether entries allow an action, and which one decides: by the rules of the broker."""
    from aerobee.broker.access.permissions import Action
    from aerobee.broker.access.policies import Policy, PolicyType
    from aerobee.remoting.wire.bodies.auth import PolicyEntryInfo

    actions = frozenset(Action) if action == "All" else frozenset({Action(action)})
    entries: dict[str, list[Any]] = {kind: [] for kind in PolicyType}
    for right in rights:
        entries[right.policy].append(
            PolicyEntryInfo(
                resource=right.resource,
                actions=list(right.actions),
                source_ips=list(right.sources),
                decision="Allow" if right.allow else "Deny",
            )
        )
    for kind in PolicyType:
        entry = Policy(kind, entries[kind]).deciding(resource, actions, source)
        if entry is not None:
            verdict = "allows" if entry.allows else "denies"
            return entry.allows, f"{entry.resource} in the {kind.lower()} policy {verdict} it"
    return False, "no entry matches"
