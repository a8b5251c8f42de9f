"""`aerobee definitions`: export, import, diff."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from aerobee.cli.border import DONE, FAILED, complain
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.dead import absent_in, end_with, leave_out
from aerobee.cli.files import write_file
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.options import dry_run_option, yes_option
from aerobee.cli.output import Output, confirm, json_text, output_options, write_exactly

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aerobee.admin import ClusterInfo
    from aerobee.blocking import AdminClient
    from aerobee.cli.dead import DeadBroker
    from aerobee.cli.definitions_file import Change, Definitions

SECRETS_BYTES_MAX = 1 << 20

only_option = click.option(
    "--only",
    "kinds",
    type=click.Choice(["topics", "groups", "users", "policies"]),
    multiple=True,
    help="Only these; repeatable.",
)
file_argument = click.argument("file", type=click.File("rb"))


@click.group(cls=CommandGroup, short_help="Topics, groups, users and policies as a file.")
def definitions() -> None:
    """Take what is defined in a cluster into a file, and from a file into a cluster.

    Topics, groups, users without their secrets, and what users may do; no messages and no offsets.
    """


@definitions.command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@only_option
@connection_options
def export(file: str, kinds: tuple[str, ...], connection: Connection) -> None:
    """Write what is defined into FILE; - is stdout.

    Example: aerobee definitions export definitions.json
    """
    import msgspec

    from aerobee import __version__
    from aerobee.cli.definitions_file import KINDS

    with whole(connection).admin() as admin:
        absent = absent_masters(admin.cluster_info())
        leave_out(admin, absent)
        export = defined(admin, kinds or KINDS)
    export.made_at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    export.made_by = f"aerobee {__version__}"
    document = msgspec.json.format(msgspec.json.encode(export), indent=2).decode()
    text = f"{json_text(document)}\n".encode()
    if file == "-":
        write_exactly(text)
    else:
        write_file(Path(file), text)
    end_with(absent)


@definitions.command("import")
@file_argument
@only_option
@click.option(
    "--secrets",
    type=click.File("rb"),
    metavar="FILE",
    help="For users that are not there: a JSON object, name to secret.",
)
@dry_run_option
@yes_option
@connection_options
@output_options
def import_file(
    file: IO[bytes],
    kinds: tuple[str, ...],
    secrets: IO[bytes] | None,
    dry_run: bool,
    yes: bool,
    connection: Connection,
    output: Output,
) -> int:
    """Create or change what FILE defines; what it does not name stays as it is.

    A second import changes nothing. Exit code 1: users without a secret were left out.

    Example: aerobee definitions import definitions.json --dry-run
    """
    known = secrets_in(secrets)
    with whole(connection).admin() as admin:
        absent = absent_masters(admin.cluster_info())
        leave_out(admin, absent)
        changes = planned(admin, file, kinds, absent)
        missing = without_secret(changes, known)
        doable = [
            change for change in changes if change.name not in missing or change.kind in TABLES
        ]
        # Before anything is changed, and on a dry run as well.
        for change in doable:
            check(change)
        if doable and not (dry_run or yes):
            confirm(f"create or change {len(doable)} definitions?")
        for change in () if dry_run else doable:
            make(admin, change, known)
    output.rows(map(row, doable))
    for name in missing:
        complain(f"user {name} is left out: it is not there, and --secrets has no secret for it")
    done = "would be created or changed" if dry_run else "created or changed"
    output.say(f"{len(doable)} definitions {done}" if doable else "nothing to change")
    end_with(absent)
    return FAILED if missing else DONE


@definitions.command()
@file_argument
@only_option
@connection_options
@output_options
def diff(file: IO[bytes], kinds: tuple[str, ...], connection: Connection, output: Output) -> int:
    """Print what FILE defines and the cluster lacks or has otherwise; exit code 1 if anything."""
    with whole(connection).admin() as admin:
        absent = absent_masters(admin.cluster_info())
        leave_out(admin, absent)
        changes = planned(admin, file, kinds, absent)
    output.rows(map(row, changes))
    output.say(f"{len(changes)} definitions differ" if changes else "nothing differs")
    end_with(absent)
    return FAILED if changes else DONE


# ── Parts ──

TABLES = ("topics", "groups")
"""The kinds that need no user."""


def whole(connection: Connection) -> Connection:
    """A connection to the cluster without a namespace: a file is about all of it."""
    return replace(connection, profile={**connection.profile, "namespace": ""})


def absent_masters(info: ClusterInfo) -> list[DeadBroker]:
    """The masters that the name server has lost, and that no other broker has replaced: what they
    have is in no file, and they get nothing.
    """
    there = {broker.name for broker in info.brokers if broker.is_master}
    return [
        entry
        for entry in absent_in(info)
        if entry.broker.is_master and entry.broker.name not in there
    ]


def planned(
    admin: AdminClient, file: IO[bytes], kinds: tuple[str, ...], absent: Iterable[DeadBroker]
) -> list[Change]:
    """The changes that a file asks for, at masters that are there. Raises: ConfigurationError."""
    from aerobee.cli.definitions_file import BYTES_MAX, KINDS, differences, read

    wanted = read(file.read(BYTES_MAX + 1))
    tables = [kind for kind in kinds or KINDS if getattr(wanted, kind)]
    there = defined(admin, tables)
    masters = sorted({broker.name for broker in admin.cluster_info().brokers if broker.is_master})
    gone = {entry.broker.name for entry in absent}
    return list(differences(wanted, there, masters, tables, gone))


def defined(admin: AdminClient, kinds: Iterable[str]) -> Definitions:
    """The definitions of a cluster. Brokers without users have none of these."""
    from aerobee.cli.definitions_file import VERSION, Definitions
    from aerobee.errors import UnsupportedRequestError

    definitions = Definitions(aerobee_definitions=VERSION)
    if "topics" in kinds:
        definitions.topics = admin.topic_definitions()
    if "groups" in kinds:
        definitions.groups = admin.group_definitions()
    try:
        if "users" in kinds:
            for user in admin.users():
                settings = {"super": user.is_super, "enabled": user.enabled}
                definitions.users.setdefault(user.name, {})[user.broker] = settings
        if "policies" in kinds:
            for policy in admin.acl():
                entry = {
                    "allow": policy.allow,
                    "actions": sorted(policy.actions),
                    "sources": sorted(policy.sources),
                }
                by_broker = definitions.policies.setdefault(policy.user, {})
                by_broker.setdefault(policy.broker, {})[f"{policy.resource} {policy.policy}"] = (
                    entry
                )
    except UnsupportedRequestError as error:
        complain(f"users and policies are left out: {error}")
    return definitions


def without_secret(changes: Iterable[Change], secrets: Mapping[str, str]) -> list[str]:
    """The users that would have to be created and cannot be."""
    return sorted(
        {
            change.name
            for change in changes
            if change.kind == "users" and change.before is None and change.name not in secrets
        }
    )


def secrets_in(file: IO[bytes] | None) -> dict[str, str]:
    """The secrets of new users. Raises: ConfigurationError, which does not quote them."""
    if file is None:
        return {}
    import msgspec

    from aerobee.errors import ConfigurationError

    try:
        secrets = msgspec.json.decode(file.read(SECRETS_BYTES_MAX), type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigurationError("--secrets: no JSON object of names and secrets") from None
    return secrets


FLAGS = {"super": "is_super", "enabled": "enabled"}
"""The settings of a user, as the SDK calls them."""


def check(change: Change) -> None:
    """Check what a file wants of one thing. Raises: ConfigurationError."""
    from aerobee.client.steps.admin.definitions import group_config, topic_config
    from aerobee.errors import ConfigurationError

    name, settings = change.name, wanted_of(change)
    if change.kind == "topics":
        topic_config(name, settings)
    elif change.kind == "groups":
        group_config(name, settings)
    elif change.kind == "policies":
        for place, entry in change.after.items():
            granted(name, place, entry)
    elif not all(key in FLAGS and isinstance(value, bool) for key, value in settings.items()):
        raise ConfigurationError(f"user {name}: it has super and enabled, true or false")


def wanted_of(change: Change) -> dict[str, Any]:
    """All settings of one thing, after the change."""
    return {**(change.before or {}), **change.after}


def make(admin: AdminClient, change: Change, secrets: Mapping[str, str]) -> None:
    """Create or change one thing at one broker, which is checked. Raises: BrokerError."""
    name, broker, settings = change.name, change.broker, wanted_of(change)
    if change.kind == "topics":
        admin.define_topic(name, broker, settings)
    elif change.kind == "groups":
        admin.define_group(name, broker, settings)
    elif change.kind == "policies":
        for place, entry in change.after.items():
            if (change.before or {}).get(place) != entry:
                admin.grant(**granted(name, place, entry), broker=broker)
    elif change.before is None:
        is_super = settings.get("super", False)
        try:
            admin.create_user(name, secrets[name], is_super=is_super, broker=broker)
        finally:
            # Also where a slave refused it: the master has the user, enabled.
            if not settings.get("enabled", True):
                admin.change_user(name, enabled=False, broker=broker)
    else:
        options = {FLAGS[key]: value for key, value in change.after.items()}
        admin.change_user(name, broker=broker, **options)


def granted(user: str, place: str, entry: Any) -> dict[str, Any]:
    """One entry of a policy as the SDK takes it. Raises: ConfigurationError."""
    from aerobee.errors import ConfigurationError

    resource, _, policy = place.rpartition(" ")
    try:
        allow, actions, sources = entry["allow"], entry["actions"], entry.get("sources", [])
        texts = all(isinstance(action, str) for action in (*actions, *sources))
        if policy not in ("Custom", "Default") or not (isinstance(allow, bool) and texts):
            raise TypeError
    except (LookupError, TypeError, AttributeError):
        raise ConfigurationError(
            f"policy of {user} on {place!r}: 'RESOURCE Custom' or 'RESOURCE Default', with allow, "
            "actions and sources"
        ) from None
    return {
        "user": user,
        "resource": resource,
        "actions": actions,
        "deny": not allow,
        "sources": sources,
        "default": policy == "Default",
    }


def row(change: Change) -> dict[str, Any]:
    """A change on one line."""
    return {
        "kind": change.kind.removesuffix("s") if change.kind != "policies" else "policy",
        "name": change.name,
        "broker": change.broker,
        "change": "create" if change.before is None else "change",
        "settings": change.settings,
    }
