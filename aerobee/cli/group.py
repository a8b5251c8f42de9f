"""`aerobee group`: list, describe, lag, doctor, create, alter, pause, resume and the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.bodies import plain
from aerobee.cli.border import complain
from aerobee.cli.completing import group_names, topic_names
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.dead import end_with, known_count, leave_dead_out, unknown_group
from aerobee.cli.doctor import doctor
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.options import dry_run_option, rate_options, yes_option
from aerobee.cli.output import Output, confirm, output_options
from aerobee.cli.times import position_of
from aerobee.counted import counted
from aerobee.errors import GroupNotFoundError
from aerobee.store.format.system_names import REDRIVE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.admin import (
        ConsumerLag,
        GroupConfig,
        GroupDescription,
        LagHistory,
        OffsetChange,
    )
    from aerobee.blocking import AdminClient
    from aerobee.client.send_result import MessageQueue


@click.group(cls=CommandGroup, short_help="Consumer groups: lag, reset, delete.")
def group() -> None:
    """List, describe, diagnose, reset and delete consumer groups."""


group.add_command(doctor)


# ── Looking ──


@group.command("list")
@click.option("--system", is_flag=True, help="The brokers' own groups too.")
@connection_options
@output_options
def list_groups(system: bool, connection: Connection, output: Output) -> None:
    """Print all groups with their members and their lag."""
    from aerobee.cli.output import progress
    from aerobee.client.system_names import is_system_group

    with connection.admin() as admin:
        look = leave_dead_out(admin)
        names = [name for name in admin.groups() if system or not is_system_group(name)]
        rows = []
        with progress(len(names), "groups") as advance:
            for name in names:
                rows.append(summary(admin, name, look.masters))
                advance(1)
    output.rows(rows, none="there are no groups")
    end_with(look.dead)


def summary(admin: AdminClient, name: str, dead: Sequence[str] = ()) -> dict[str, Any]:
    """A group on one line; `dead`: masters that do not answer, and may have more of its lag."""
    lag = admin.consumer_lag(name)
    online = admin.consumers(name)
    return {
        "group": name,
        "members": len(online.members),
        **known_count("lag", lag.total, dead),
        "per_s": lag.consume_tps,
        "model": online.message_model or None,
        "topics": list(lag.topics),
    }


@group.command()
@click.argument("name", shell_complete=group_names)
@connection_options
@output_options
def describe(name: str, connection: Connection, output: Output) -> None:
    """Print the settings of group NAME, its members and what they consume."""
    with connection.admin() as admin:
        look = leave_dead_out(admin)
        try:
            description = admin.describe_group(name)
        except GroupNotFoundError:
            raise unknown_group(name, look) from None
    if output.for_programs:
        import msgspec

        output.record(msgspec.to_builtins(description))
    else:
        show_group(description, output)
    end_with(look.dead)


def show_group(description: GroupDescription, output: Output) -> None:
    """A group for people."""
    online = description.connections
    output.record(
        {
            "group": description.name,
            "topics": list(description.topics),
            "model": online.message_model or None,
            "subscriptions": [
                f"{subscription.topic} ({subscription.expression})"
                for subscription in online.subscriptions
            ],
        }
    )
    output.rows(
        {
            "broker": broker,
            "enabled": config.enabled,
            "orderly": config.orderly,
            "retries": config.retry_max,
            "retry_queues": config.retry_queues,
            **rates_of(config),
        }
        for broker, config in description.configs.items()
    )
    output.rows(
        {
            "member": member.client_id,
            "address": member.address,
            "language": member.language,
            "version": member.version,
        }
        for member in online.members
    )


def total_of(lag: ConsumerLag) -> str:
    """The lag of a group over all queues, in words."""
    return f"{counted(lag.total, 'message')} behind in {counted(len(lag.queues), 'queue')}"


@group.command()
@click.argument("name", shell_complete=group_names)
@click.option("--topic", shell_complete=topic_names, help="Only this topic.")
@click.option("--history", is_flag=True, help="The last hour instead, topic by topic.")
@connection_options
@output_options
def lag(
    name: str, topic: str | None, history: bool, connection: Connection, output: Output
) -> None:
    """Print how far group NAME is in each queue.

    With --history the lag of the last hour: brokers note it every ten minutes from their start on.
    """
    with connection.admin() as admin:
        look = leave_dead_out(admin)
        lag = admin.consumer_lag(name, topic)
        if not look.masters and not lag.queues and name not in admin.groups():
            # A mistyped name must not look like a group without a backlog.
            raise GroupNotFoundError(f"no broker knows group {name}")
        past = admin.lag_history(name, topic) if history else None
    if past is None:
        output.rows([*lag_rows(lag), *(unknown_row(broker, topic) for broker in look.masters)])
    else:
        show_history(past, output)
    unsure = f", unknown at {', '.join(look.masters)}" if look.masters else ""
    least = "at least " if look.masters else ""
    output.say(f"{least}{total_of(lag)}{unsure}")
    end_with(look.dead)


def show_history(past: LagHistory, output: Output) -> None:
    """A row for each sample; a broker that has none to give is told on stderr."""
    output.rows(
        (
            {"topic": sample.topic, "broker": sample.broker, "at": sample.at, "lag": sample.lag}
            for sample in past.samples
        ),
        none="no lag is noted yet: brokers do it every ten minutes from their start on",
    )
    for broker in past.without:
        complain(f"broker {broker} keeps no history of lags, as Java's brokers do not")


def unknown_row(broker: str, topic: str | None) -> dict[str, Any]:
    """The queues of a dead broker, of which nobody knows how many there are."""
    names = ("queue", "end", "consumed", "lag", "in_flight", "last_consumed")
    return {"topic": topic, "broker": broker, **dict.fromkeys(names)}


def lag_rows(lag: ConsumerLag) -> list[dict[str, Any]]:
    """One row per queue."""
    return [
        {
            "topic": queue.queue.topic,
            "broker": queue.queue.broker_name,
            "queue": queue.queue.queue_id,
            "end": queue.broker_offset,
            "consumed": queue.consumer_offset,
            "lag": queue.lag,
            "in_flight": queue.in_flight,
            "last_consumed": queue.last_consumed_at,
        }
        for queue in lag.queues
    ]


# ── Changing ──


@group.command()
@click.argument("name", shell_complete=group_names)
@click.option(
    "--retries",
    type=click.IntRange(0, 2**31 - 1),
    default=16,
    show_default=True,
    help="Tries after the first one, before a message is a dead letter.",
)
@click.option("--orderly", is_flag=True, help="Its members consume queue by queue, in order.")
@click.option("--disabled", is_flag=True, help="It may not consume.")
@connection_options
@output_options
def create(
    name: str,
    retries: int,
    orderly: bool,
    disabled: bool,
    connection: Connection,
    output: Output,
) -> None:
    """Create group NAME on every master, or give it these settings."""
    from aerobee.admin import GroupConfig

    config = GroupConfig(name=name, retry_max=retries, orderly=orderly, enabled=not disabled)
    with connection.admin() as admin:
        admin.create_group(config)
    if output.for_programs:
        output.record(plain(config))
    output.say(f"group {name}: {retries} retries{', disabled' if disabled else ''}")


@group.command()
@click.argument("name", shell_complete=group_names)
@rate_options("Messages that each broker gives its members in a second", "records")
@click.option(
    "--priority-factor",
    type=click.IntRange(0, 100),
    help="How many of a hundred pops read the highest priority of a topic first.",
)
@connection_options
@output_options
def alter(
    name: str,
    max_rate: int | None,
    max_bytes: int | None,
    priority_factor: int | None,
    connection: Connection,
    output: Output,
) -> None:
    """Limit what group NAME receives, or how often its pops go by priority; the rest stays.

    Example: aerobee group alter billing --max-rate 1000/s --max-bytes 10MiB/s
    """
    if max_rate is None and max_bytes is None and priority_factor is None:
        raise click.UsageError("say what to change: --max-rate, --max-bytes or --priority-factor")
    with connection.admin() as admin:
        changed = admin.limit_group(
            name,
            max_messages_per_s=max_rate,
            max_bytes_per_s=max_bytes,
            priority_factor=priority_factor,
        )
    output.rows(
        {"broker": broker, "group": name, **rates_of(config)}
        for broker, config in sorted(changed.items())
    )


def rates_of(config: GroupConfig) -> dict[str, int | None]:
    """The limits of a group on one broker, and how often its pops go by priority."""
    return {
        "max_messages_per_s": config.max_messages_per_s,
        "max_bytes_per_s": config.max_bytes_per_s,
        "priority_factor": config.priority_factor,
    }


@group.command()
@click.argument("name", shell_complete=group_names)
@dry_run_option
@yes_option
@connection_options
@output_options
def pause(name: str, dry_run: bool, yes: bool, connection: Connection, output: Output) -> None:
    """Have brokers give group NAME no more messages until `aerobee group resume`.

    Its members stay connected and ask on, they handle and commit what they have, and its offsets
    stay. New messages wait; those past fileReservedTime expire meanwhile.
    """
    if not (dry_run or yes):
        confirm(f"pause group {name}?")
    switch(name, False, dry_run, connection, output)


@group.command()
@click.argument("name", shell_complete=group_names)
@dry_run_option
@connection_options
@output_options
def resume(name: str, dry_run: bool, connection: Connection, output: Output) -> None:
    """Have brokers give group NAME messages again, from where it was."""
    switch(name, True, dry_run, connection, output)


def switch(name: str, enabled: bool, dry_run: bool, connection: Connection, output: Output) -> None:
    """Pause a group or let it go on, and show what each broker did before."""
    with connection.admin() as admin:
        before = admin.enable_group(name, enabled, dry_run=dry_run)
    output.rows(
        {
            "broker": broker,
            "group": name,
            "consumed": was,
            "consumes": was if dry_run else enabled,
            "changed": was != enabled and not dry_run,
        }
        for broker, was in sorted(before.items())
    )
    done = "would be" if dry_run else "is"
    output.say(f"group {name} {done} {'resumed' if enabled else 'paused'}")


@group.command()
@click.argument("name", shell_complete=group_names)
@click.argument("topic", shell_complete=topic_names)
@click.option("--to", "position", required=True, help="first, last, a time, or offset:N.")
@click.option("--queue", "queue", metavar="BROKER:ID", help="Only this queue of TOPIC.")
@click.option("--back-only", is_flag=True, help="Leave queues that it would move forward.")
@dry_run_option
@yes_option
@connection_options
@output_options
def reset(
    name: str,
    topic: str,
    position: str,
    queue: str | None,
    back_only: bool,
    dry_run: bool,
    yes: bool,
    connection: Connection,
    output: Output,
) -> None:
    """Reset the offsets of group NAME in TOPIC; running consumers continue from there.

    Example: aerobee group reset billing Orders --to 2025-01-31T12:00 --dry-run
    """
    to = position_of(position, "--to")
    which: dict[str, Any] = {"force": not back_only}
    if queue is not None:
        which["queues"] = [queue_of(topic, queue)]
    with connection.admin() as admin:
        check_known(admin, name)
        changes = admin.reset_offsets(name, topic, to, dry_run=True, **which)
        if not dry_run and changes:
            ask_before_moving(name, changes, yes)
            changes = admin.reset_offsets(name, topic, to, **which)
    show_changes(changes, dry_run, output)


def queue_of(topic: str, text: str) -> MessageQueue:
    """The queue that `--queue BROKER:ID` names. Raises: BadParameter."""
    from aerobee.client.send_result import MessageQueue

    broker, _, number = text.rpartition(":")
    if not broker or not number.isascii() or not number.isdigit():
        raise click.BadParameter(
            f"{text!r} is not BROKER:ID, as in broker-a:3", param_hint="--queue"
        )
    return MessageQueue(topic, broker, int(number))


@group.command()
@click.argument("source", shell_complete=group_names)
@click.argument("target", shell_complete=group_names)
@click.option("--topic", shell_complete=topic_names, help="Only this topic.")
@dry_run_option
@yes_option
@connection_options
@output_options
def clone(
    source: str,
    target: str,
    topic: str | None,
    dry_run: bool,
    yes: bool,
    connection: Connection,
    output: Output,
) -> None:
    """Give group TARGET the offsets of group SOURCE."""
    with connection.admin() as admin:
        check_known(admin, source, target)
        changes = admin.clone_offsets(source, target, topic=topic, dry_run=True)
        if not dry_run and changes:
            ask_before_moving(target, changes, yes)
            changes = admin.clone_offsets(source, target, topic=topic)
    show_changes(changes, dry_run, output)


def check_known(admin: AdminClient, *names: str) -> None:
    """Refuse groups that are not there, also before a dry run. Raises: GroupNotFoundError."""
    known = admin.groups()
    for name in names:
        if name not in known:
            raise GroupNotFoundError(f"no broker knows group {name}")


def ask_before_moving(name: str, changes: Sequence[OffsetChange], yes: bool) -> None:
    """Ask for confirmation, unless `--yes` is given. Raises: Abort."""
    if not yes:
        confirm(f"move group {name} in {counted(len(changes), 'queue')}?{consequence(changes)}")


def consequence(changes: Sequence[OffsetChange]) -> str:
    """The effect of a change of offsets on messages, as sentences behind a question."""
    moves = [change.after - change.before for change in changes if change.before is not None]
    back, forward = [-move for move in moves if move < 0], [move for move in moves if move > 0]
    text = ""
    if back:
        text += f" {messages_of(back)} will be delivered again."
    if forward:
        text += f" {messages_of(forward)} will be skipped."
    return text


def messages_of(queues: Sequence[int]) -> str:
    """The sum of the messages of some queues, in words."""
    return f"{counted(sum(queues), 'message')} of {counted(len(queues), 'queue')}"


def show_changes(changes: Sequence[OffsetChange], dry_run: bool, output: Output) -> None:
    """The changed offsets, or those that would change."""
    output.rows(
        {
            "topic": change.queue.topic,
            "broker": change.queue.broker_name,
            "queue": change.queue.queue_id,
            "before": change.before,
            "after": change.after,
        }
        for change in changes
    )
    done = "would be moved" if dry_run else "moved"
    queues = counted(len(changes), "queue")
    output.say(f"{queues} {done}" if changes else "nothing to move")


@group.command()
@click.argument("name", shell_complete=group_names)
@click.option("--keep-offsets", is_flag=True, help="Its offsets stay.")
@dry_run_option
@yes_option
@connection_options
@output_options
def delete(
    name: str, keep_offsets: bool, dry_run: bool, yes: bool, connection: Connection, output: Output
) -> None:
    """Delete group NAME; its retry and dead-letter topics stay."""
    if name.startswith(REDRIVE_PREFIX):
        raise click.ClickException(
            f"group {name} keeps which dead letters of {name.removeprefix(REDRIVE_PREFIX)} are "
            "done with: without it `aerobee dlq redrive` would send all of them again, "
            "as with --again"
        )
    with connection.admin() as admin:
        description = admin.describe_group(name)
        members = len(description.connections.members)
        what = f"group {name} with {counted(members, 'member')} online"
        if not dry_run:
            if not yes:
                confirm(f"delete {what}?")
            admin.delete_group(name, offsets=not keep_offsets)
    if output.for_programs:
        output.record({"group": name, "members": members, "deleted": not dry_run})
    output.say(f"{'would delete' if dry_run else 'deleted'} {what}")
