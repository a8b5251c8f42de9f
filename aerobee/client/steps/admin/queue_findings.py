"""The rules that find problems of a group's queues and offsets. Pure.

Each function checks for one problem and gives its findings, or none. Source: client §8, §10, §12,
semantics §3, §11, §12 (RebalanceImpl, RebalanceLockManager).
"""

from __future__ import annotations

from collections import defaultdict
from shlex import quote
from typing import TYPE_CHECKING

from aerobee.client.steps.admin.group_case import queue_names, total
from aerobee.counted import counted
from aerobee.diagnosis import Finding, Severity
from aerobee.store.format.system_names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aerobee.client.steps.admin.group_case import Case
    from aerobee.diagnosis import QueueState

PULL_HELD_S = 60.0
"""A pull is held for 30 s at most, so an active member has pulled within this time."""
SETTLED_S = 25.0
"""Members rebalance every 20 s."""


# ── Queues ──


def without_owner(case: Case) -> Iterator[Finding]:
    """Members are online, but none holds the queue."""
    if not case.shares:
        return
    young = [case.age_s(member.started_at) for member in case.members if member.started_at]
    settling = any(age is not None and age < SETTLED_S for age in young)
    # An empty queue is no problem while the members rebalance.
    free = [queue for queue in case.queues if not queue.owners and (queue.lag or not settling)]
    if not free:
        return
    lag = total(free)
    kind, severity = "queue_without_owner", Severity.ERROR if lag else Severity.WARNING
    if case.orderly:
        kind = "lock_not_granted"
        text = (
            "the group consumes in order, and no member has the lock of {queues} ({waits}): "
            "another client has it, which may be gone"
        )
        advice = (
            "wait up to 60 s after the last renewal, then a member gets the lock; if it stays, a "
            "member that is not connected here renews it"
        )
    elif settling:
        kind, severity = "rebalancing", Severity.WARNING
        text = "a member has just started, and no owner yet has {queues} ({waits})"
        advice = "look again in 20 s"
    else:
        text = "no member holds {queues}, so nobody pulls what waits there ({waits})"
        advice = (
            "see whether members have the same strategy, client ids of their own and the same view "
            "of the group; restart those that are stuck"
        )
    yield Finding(
        kind=kind,
        severity=severity,
        text=text.format(
            queues=queue_names(free), waits=counted(lag, "message waits", "messages wait")
        ),
        advice=advice,
        queues=[queue.queue for queue in free],
    )


def several_owners(case: Case) -> Iterator[Finding]:
    """Two members hold one queue."""
    shared = [queue for queue in case.queues if len(queue.owners) > 1]
    if case.shares and shared:
        yield Finding(
            kind="queue_with_several_owners",
            severity=Severity.WARNING,
            text=f"{queue_names(shared)} are held by several members: messages come twice",
            advice="look again in 20 s; if it stays, strategies or views of the group differ",
            queues=[queue.queue for queue in shared],
            members=sorted({owner for queue in shared for owner in queue.owners}),
        )


def lock_lost(case: Case) -> Iterator[Finding]:
    """An orderly member holds the queue, but not its lock."""
    orderly = {member.client_id for member in case.members if member.orderly}
    lost = [queue for queue in case.behind if orderly & {*queue.owners} and not queue.locked]
    if lost and not case.broadcasts:
        yield Finding(
            kind="lock_not_granted",
            severity=Severity.ERROR,
            text=f"the owner of {queue_names(lost)} consumes in order and has no lock on it: "
            "another client has it, which may be gone",
            advice="wait up to 60 s after the last renewal, then the owner gets the lock",
            queues=[queue.queue for queue in lost],
        )


def slow(case: Case) -> Iterator[Finding]:
    """The owner has pulled messages, but its handler has accepted none for a while."""
    for owner, queues in by_owner(case, lambda queue: queue.cached > 0):
        stuck = [
            queue for queue in queues if (case.age_s(queue.consumed_at) or 0.0) > case.slow_after_s
        ]
        if not stuck:
            continue
        longest = max(case.age_s(queue.consumed_at) or 0.0 for queue in stuck)
        yield Finding(
            kind="slow_handler",
            severity=Severity.ERROR,
            text=f"{owner} holds {counted(sum(queue.cached for queue in stuck), 'message')} of "
            f"{queue_names(stuck)} and its handler has taken none for {longest:.0f} s: it is slow "
            "or stuck",
            advice="see what its threads do: "
            f"aerobee group doctor {quote(case.look.group)} --stacks",
            queues=[queue.queue for queue in stuck],
            members=[owner],
        )


def not_pulling(case: Case) -> Iterator[Finding]:
    """The owner has no messages and does not pull."""
    for owner, queues in by_owner(case, lambda queue: queue.cached == 0):
        idle = [
            queue
            for queue in queues
            if queue.pulled_at is not None and (case.age_s(queue.pulled_at) or 0.0) > PULL_HELD_S
        ]
        if idle:
            longest = max(case.age_s(queue.pulled_at) or 0.0 for queue in idle)
            yield Finding(
                kind="not_pulling",
                severity=Severity.ERROR,
                text=f"{owner} holds {queue_names(idle)} and has not pulled for {longest:.0f} s: "
                "it is paused or suspended, or its pulls are refused",
                advice="resume it, or read its log for refused pulls",
                queues=[queue.queue for queue in idle],
                members=[owner],
            )


def by_owner(
    case: Case, wanted: Callable[[QueueState], bool]
) -> Iterator[tuple[str, list[QueueState]]]:
    """Queues with a lag, by their first owner."""
    queues: dict[str, list[QueueState]] = defaultdict(list)
    for queue in case.behind:
        if queue.owners and wanted(queue):
            queues[queue.owners[0]].append(queue)
    yield from sorted(queues.items())


# ── Offsets ──


def misplaced(case: Case) -> Iterator[Finding]:
    """Offsets are outside of their queue."""
    beyond = [queue for queue in case.queues if queue.consumer_offset > queue.end]
    if beyond:
        yield Finding(
            kind="offset_beyond_end",
            severity=Severity.ERROR,
            text=f"the group's offset lies behind the end of {queue_names(beyond)}: what is stored "
            "there now is passed over until the end has caught up",
            advice=f"aerobee group reset {quote(case.look.group)} TOPIC --to first (or last)",
            queues=[queue.queue for queue in beyond],
        )
    lost = [queue for queue in case.queues if 0 < queue.consumer_offset < queue.first]
    if lost:
        count = sum(queue.first - queue.consumer_offset for queue in lost)
        yield Finding(
            kind="messages_expired",
            severity=Severity.WARNING,
            text=f"clean-up deleted {counted(count, 'message')} of {queue_names(lost)} before the "
            "group consumed them",
            advice="nothing brings them back; keep messages longer (fileReservedTime) or consume "
            "faster",
            queues=[queue.queue for queue in lost],
        )


def tried_again(case: Case) -> Iterator[Finding]:
    """The retry topic has messages."""
    retries = total(queue for queue in case.queues if queue.queue.topic.startswith(RETRY_PREFIX))
    if retries:
        tried = counted(retries, "message failed and waits", "messages failed and wait")
        yield Finding(
            kind="retries_wait",
            severity=Severity.WARNING,
            text=f"{tried} in the retry topic to be tried again",
            advice="see why the handler fails; retries are consumed beside new messages",
        )


def dead_letters(case: Case) -> Iterator[Finding]:
    """The dead-letter topic has messages."""
    if case.look.dead_letters:
        name, count = quote(case.look.group), case.look.dead_letters
        given_up = counted(count, "message was given up and lies", "messages were given up and lie")
        yield Finding(
            kind="dead_letters",
            severity=Severity.WARNING,
            text=f"{given_up} with the dead letters",
            advice=f"aerobee dlq list {name}; aerobee dlq redrive {name}",
        )


def broadcasting(case: Case) -> Iterator[Finding]:
    """Offsets are stored by the members, not by brokers."""
    if case.broadcasts:
        yield Finding(
            kind="broadcasting",
            severity=Severity.NOTE,
            text="the group broadcasts: each member keeps its offsets in a file of its own, so "
            "brokers do not know how far it is",
            advice="ask the members: aerobee group describe, or their metrics",
        )


def running_late(case: Case) -> Iterator[Finding]:
    """The group consumes, but has a lag."""
    late = [queue for queue in case.behind if (queue.waiting_s or 0.0) > case.slow_after_s]
    if late and case.look.connections:
        longest = max(queue.waiting_s or 0.0 for queue in late)
        waits = counted(total(late), "message waits", "messages wait")
        yield Finding(
            kind="behind",
            severity=Severity.NOTE,
            text=f"{waits}, the oldest of them for {longest:.0f} s; the group is given "
            f"{case.look.consume_tps:.1f} messages a second",
            advice="add members (up to the number of queues) or threads if it does not get less",
            queues=[queue.queue for queue in late],
        )


QUEUE_RULES: Sequence[Callable[[Case], Iterator[Finding]]] = (
    without_owner,
    several_owners,
    lock_lost,
    slow,
    not_pulling,
    misplaced,
    tried_again,
    dead_letters,
    broadcasting,
    running_late,
)
