"""`aerobee topic`: list, describe, create, alter, delete."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.completing import topic_names
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.dead import end_without, known_count, leave_dead_out
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.options import rate_options, yes_option
from aerobee.cli.output import Output, confirm, output_options
from aerobee.counted import counted
from aerobee.errors import BrokerNotFoundError

if TYPE_CHECKING:
    from aerobee.admin import MessageType, QueueBounds, TopicConfig, TopicDescription
    from aerobee.blocking import AdminClient

QUEUES_MAX = 1_024
"""The most queues of a topic on an Aerobee broker."""
PERMS = {"r": 4, "w": 2, "rw": 6, "4": 4, "2": 2, "6": 6}
PERM_NAMES = {6: "rw", 4: "r", 2: "w"}
TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED")

QUEUES = click.IntRange(1, QUEUES_MAX)
PERM = click.Choice(sorted(PERMS))
type_option = click.option(
    "--type", "kind", type=click.Choice(TYPES, case_sensitive=False), help="What the topic is for."
)


@click.group(cls=CommandGroup, short_help="List, create, alter and delete topics.")
def topic() -> None:
    """List, describe, create, alter and delete topics."""


# ── Looking ──


@topic.command("list")
@click.option("--system", is_flag=True, help="The brokers' own, retry and dead-letter topics too.")
@connection_options
@output_options
def list_topics(system: bool, connection: Connection, output: Output) -> None:
    """Print the names of all topics."""
    with connection.admin() as admin:
        names = admin.topics() if system else of_users(admin)
    output.rows(({"topic": name} for name in names), none="there are no topics")


def of_users(admin: AdminClient) -> list[str]:
    """Topics without system topics, retries and dead letters."""
    from aerobee.store.format.system_names import DLQ_PREFIX, RETRY_PREFIX

    own = {*admin.system_topics()}
    return [
        name
        for name in admin.topics()
        if name not in own and not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    ]


@topic.command()
@click.argument("name", shell_complete=topic_names)
@connection_options
@output_options
def describe(name: str, connection: Connection, output: Output) -> None:
    """Print the settings of topic NAME on each broker, its queues, and the groups on it."""
    with connection.admin() as admin:
        look = leave_dead_out(admin)
        description = admin.describe_topic(name)
    head = {
        "topic": name,
        **known_count("messages", description.messages, description.left_out),
        "groups": list(description.groups),
    }
    brokers = [described_config(config) for config in description.configs]
    queues = [described_queue(queue) for queue in description.queues]
    if output.for_programs:
        output.record(head | {"brokers": brokers, "queues": queues})
    else:
        output.record(head)
        output.rows(brokers)
        output.rows(queues)
    end_without(look, description.left_out)


def described_config(config: TopicConfig) -> dict[str, Any]:
    """A topic's settings on one broker."""
    return {
        "broker": config.broker,
        "read_queues": config.read_queues,
        "write_queues": config.write_queues,
        "perm": PERM_NAMES.get(config.perm & 6, "none"),
        "order": config.order,
        "type": None if config.message_type is None else config.message_type.value,
        "max_messages_per_s": config.max_messages_per_s or None,
        "max_bytes_per_s": config.max_bytes_per_s or None,
    }


def described_queue(bounds: QueueBounds) -> dict[str, Any]:
    """One queue of a topic."""
    return {
        "broker": bounds.queue.broker_name,
        "queue": bounds.queue.queue_id,
        "first": bounds.first,
        "end": bounds.end,
        "messages": bounds.messages,
        "last_stored": bounds.last_stored_at,
    }


# ── Changing ──


@topic.command()
@click.argument("name")
@click.option("--queues", type=QUEUES, default=8, show_default=True, help="Queues per broker.")
@click.option("--perm", type=PERM, default="rw", show_default=True, help="Who may.")
@type_option
@click.option("--cluster", help="Only on the brokers of this cluster.")
@yes_option
@connection_options
@output_options
def create(
    name: str,
    queues: int,
    perm: str,
    kind: str | None,
    cluster: str | None,
    yes: bool,
    connection: Connection,
    output: Output,
) -> None:
    """Create topic NAME on every master, or give it these settings.

    Example: aerobee topic create Orders --queues 16
    """
    with connection.admin() as admin:
        if not yes and name in admin.topics():
            ask_before_shrinking(admin, name, queues, cluster)
        admin.create_topic(
            name, queues=queues, perm=PERMS[perm], message_type=type_of(kind), cluster=cluster
        )
    if output.for_programs:
        output.record({"topic": name, "queues": queues, "perm": perm, "type": kind})
    output.say(f"topic {name}: {counted(queues, 'queue')} per broker, {perm}")


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.option("--queues", type=QUEUES, help="Queues per broker.")
@click.option("--perm", type=PERM, help="Who may.")
@type_option
@rate_options("Messages that clients may send to each broker in a second", "bodies")
@yes_option
@connection_options
@output_options
def alter(
    name: str,
    queues: int | None,
    perm: str | None,
    kind: str | None,
    max_rate: int | None,
    max_bytes: int | None,
    yes: bool,
    connection: Connection,
    output: Output,
) -> None:
    """Change the given settings of topic NAME; the others stay.

    Example: aerobee topic alter Orders --perm r

    Example: aerobee topic alter Orders --max-rate 1000/s --max-bytes 10MiB/s
    """
    if all(option is None for option in (queues, perm, kind, max_rate, max_bytes)):
        raise click.UsageError(
            "say what to change: --queues, --perm, --type, --max-rate or --max-bytes"
        )
    with connection.admin() as admin:
        if queues is not None and not yes:
            ask_before_shrinking(admin, name, queues)
        changed = admin.change_topic(
            name,
            queues=queues,
            perm=None if perm is None else PERMS[perm],
            message_type=type_of(kind),
            max_messages_per_s=max_rate,
            max_bytes_per_s=max_bytes,
        )
    if output.for_programs:
        output.rows({"topic": name, **described_config(config)} for config in changed)
    for there in changed:
        output.say(
            f"topic {name} on {there.broker}: {counted(there.read_queues, 'queue')} to read, "
            f"{there.write_queues} to write, {PERM_NAMES.get(there.perm & 6, 'none')}"
        )


def type_of(kind: str | None) -> MessageType | None:
    """The message type of a topic."""
    from aerobee.admin import MessageType

    return None if kind is None else MessageType[kind.upper()]


def ask_before_shrinking(
    admin: AdminClient, name: str, queues: int, cluster: str | None = None
) -> None:
    """Ask for confirmation if messages would become unreachable. Raises: Abort."""
    hidden = described_in(admin, name, cluster).hidden_by(queues)
    if hidden:
        confirm(
            f"with {counted(queues, 'queue')} per broker consumers will not see "
            f"{counted(hidden, 'message')} of {name}. Go on?"
        )


def described_in(admin: AdminClient, name: str, cluster: str | None) -> TopicDescription:
    """A topic with its queues in one cluster; without a cluster, all of them."""
    description = admin.describe_topic(name)
    if cluster is None:
        return description
    there = brokers_of(admin, cluster)
    queues = [queue for queue in description.queues if queue.queue.broker_name in there]
    return replace(description, queues=queues)


def brokers_of(admin: AdminClient, cluster: str) -> set[str]:
    """The names of the brokers of a cluster. Raises: BrokerNotFoundError where there are none."""
    info = admin.cluster_info()
    known = [*info.brokers, *info.missing_masters]
    names = {broker.name for broker in known if broker.cluster == cluster}
    if not names:
        there = ", ".join(sorted({broker.cluster for broker in known})) or "none"
        text = f"the name server knows no cluster {cluster}; it knows: {there}"
        raise BrokerNotFoundError(text)
    return names


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.option("--cluster", help="Only on the brokers of this cluster.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@yes_option
@connection_options
@output_options
def delete(
    name: str,
    cluster: str | None,
    dry_run: bool,
    yes: bool,
    connection: Connection,
    output: Output,
) -> None:
    """Delete topic NAME with its messages and the offsets of groups on it.

    First it prints what will be lost: messages, and how many each group has not consumed.
    """
    with connection.admin() as admin:
        lost = loss_of(admin, name, cluster)
        groups = ", ".join(f"{group} ({lag} behind)" for group, lag in lost["groups"].items())
        where = "" if cluster is None else f" in cluster {cluster}"
        messages = f"topic {name}{where} with {counted(lost['messages'], 'message')}"
        what = f"{messages}, consumed by {groups or 'no group'}"
        if not dry_run:
            if not yes:
                confirm(f"delete {what}?")
            admin.delete_topic(name, cluster=cluster)
    if output.for_programs:
        output.record({**lost, "deleted": not dry_run})
    output.say(f"{'would delete' if dry_run else 'deleted'} {what}")


def loss_of(admin: AdminClient, name: str, cluster: str | None) -> dict[str, Any]:
    """The messages that are deleted with a topic: its own, and each group's unconsumed ones."""
    description = described_in(admin, name, cluster)
    there = {queue.queue for queue in description.queues}
    behind = {}
    for group in description.groups:
        lags = [
            queue.lag
            for queue in admin.consumer_lag(group, name).queues
            if cluster is None or queue.queue in there
        ]
        if lags or cluster is None:
            behind[group] = sum(lags)
    return {"topic": name, "messages": description.messages, "groups": behind}
