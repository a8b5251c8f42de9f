"""The command `aerobee group doctor`: explains why a group does not consume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.bodies import plain
from aerobee.cli.border import DONE, FAILED
from aerobee.cli.completing import group_names
from aerobee.cli.connection import Connection, connection_options
from aerobee.cli.options import SECONDS_MAX, Number
from aerobee.cli.output import Output, echo, escaped, output_options
from aerobee.counted import counted

if TYPE_CHECKING:
    from aerobee.diagnosis import GroupDiagnosis


@click.command()
@click.argument("name", shell_complete=group_names)
@click.option(
    "--slow-after",
    type=Number(0, SECONDS_MAX, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="A handler that took nothing for so long is slow.",
)
@click.option("--stacks", is_flag=True, help="What the threads of slow members do.")
@connection_options
@output_options
def doctor(
    name: str, slow_after: float, stacks: bool, connection: Connection, output: Output
) -> int:
    """Say why group NAME does not move, and what to do.

    Exit code 0: nothing keeps it from consuming; 1: something does.
    """
    with connection.admin() as admin:
        diagnosis = admin.diagnose_group(name, slow_after=slow_after)
        slow = {member for finding in diagnosis.findings if stacks for member in finding.members}
        held = {
            client_id: admin.running_info(name, client_id, stacks=True).stacks
            for client_id in sorted(slow)
        }
    if output.for_programs:
        more: dict[str, Any] = {"stacks": held} if stacks else {}
        output.record({"moves": diagnosis.moves, "lag": diagnosis.lag, **plain(diagnosis), **more})
    else:
        show(diagnosis, output)
        for member, text in held.items():
            echo(f"\nthreads of {escaped(member)}:\n{text or '(none given)'}")
    return DONE if diagnosis.moves else FAILED


def show(diagnosis: GroupDiagnosis, output: Output) -> None:
    """The diagnosis for people: findings first, the queues below."""
    echo(
        f"group {escaped(diagnosis.group)}: {counted(diagnosis.lag, 'message')} behind "
        f"in {counted(len(diagnosis.queues), 'queue')}, "
        f"{counted(len(diagnosis.members), 'member')}, "
        f"{diagnosis.consume_tps:.1f} messages a second, "
        f"{diagnosis.retries} to try again, {diagnosis.dead_letters} dead"
    )
    for finding in diagnosis.findings:
        echo(f"{finding.severity.value}: {escaped(finding.text)}")
        echo(f"  to do: {escaped(finding.advice)}")
    if not diagnosis.findings:
        echo("nothing is wrong")
    output.rows(
        {
            "topic": queue.queue.topic,
            "broker": queue.queue.broker_name,
            "queue": queue.queue.queue_id,
            "end": queue.end,
            "consumed": queue.consumer_offset,
            "lag": queue.lag,
            "waiting_s": queue.waiting_s,
            "owner": list(queue.owners) or None,
            "cached": queue.cached,
            "lock_s": queue.lock_age_s,
            "pulled": queue.pulled_at,
            "handled": queue.consumed_at,
        }
        for queue in diagnosis.queues
    )
    output.rows(
        {
            "member": member.client_id,
            "address": member.address,
            "version": f"{member.language} {member.version}",
            "in_order": member.orderly,
            "strategy": member.strategy,
            "popped": member.waiting_acks,
        }
        for member in diagnosis.members
    )
    for text in diagnosis.unknown:
        echo(f"not known: {escaped(text)}")
