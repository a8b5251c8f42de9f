"""The rules that find problems of a group from its collected state. Pure.

Each function checks for one problem and gives its findings, or none. Source: client §8, §10, §12,
semantics §3, §5, §11, §12 (RebalanceImpl, RebalanceLockManager).
"""

from __future__ import annotations

from collections import defaultdict
from shlex import quote
from typing import TYPE_CHECKING

from aerobee.client.steps.admin.clients import subscriptions
from aerobee.client.steps.admin.group_case import Case, names, total
from aerobee.client.steps.admin.queue_findings import QUEUE_RULES
from aerobee.client.steps.admin.topics import instant
from aerobee.counted import counted
from aerobee.diagnosis import Finding, GroupDiagnosis, Severity
from aerobee.errors import PermissionDeniedError
from aerobee.store.format.system_names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aerobee.admin import RunningInfo
    from aerobee.client.steps.admin.group_look import GroupLook

PERM_READ = 4
RETRIES_UNSEEN = (
    "failed messages that still wait for their next try lie in SCHEDULE_TOPIC_XXXX and are not "
    "counted as retries yet"
)
COMMIT_TIMES = "brokers keep no time of commits: the last one was between two looks at the offsets"
LOCKS_UNSEEN = "brokers do not tell who holds the lock of a queue, only members that hold it do"


def diagnosis_of(look: GroupLook, slow_after_s: float) -> GroupDiagnosis:
    """The diagnosis. A handler without a new message for `slow_after_s` seconds is slow."""
    online = next(iter(look.connections.values()), None)
    case = Case(look, slow_after_s)
    retries = [queue for queue in case.queues if queue.queue.topic.startswith(RETRY_PREFIX)]
    unknown = [*look.unknown, COMMIT_TIMES, RETRIES_UNSEEN]
    if case.orderly:
        unknown.append(LOCKS_UNSEEN)
    rank = list(Severity)
    findings = [finding for rule in RULES for finding in rule(case)]
    at = instant(look.at_ms)
    assert at is not None, "the clock is behind 1970"
    return GroupDiagnosis(
        group=look.group,
        at=at,
        consume_type=online.consume_type if online else "",
        message_model=online.message_model if online else "",
        consume_tps=look.consume_tps,
        members=case.members,
        queues=case.queues,
        findings=sorted(findings, key=lambda finding: rank.index(finding.severity)),
        retries=sum(retry.lag for retry in retries),
        dead_letters=look.dead_letters,
        held_pops=look.held_pops,
        unknown=unknown,
    )


# ── Brokers and settings ──


def unreachable(case: Case) -> Iterator[Finding]:
    """A broker does not answer, or does not tell."""
    for broker, why in case.look.unreachable.items():
        yield Finding(
            kind="broker_unreachable",
            severity=Severity.ERROR,
            text=f"broker {broker} did not answer, so nothing is consumed from it, unless from a"
            f" slave: {why}",
            advice="start it, correct the address that it registers (brokerIP1), or see why its"
            " group has no master: aerobee ha doctor",
        )
    for broker, error in case.look.refusing.items():
        denied = isinstance(error, PermissionDeniedError)
        yield Finding(
            kind="broker_forbidden" if denied else "broker_failing",
            severity=Severity.ERROR,
            text=f"broker {broker} does not tell all about the group: {error}",
            advice="ask with an account that has the right to that"
            if denied
            else "look into its log",
        )


def disabled(case: Case) -> Iterator[Finding]:
    """The group is disabled on brokers."""
    off = [name for name, config in case.look.configs.items() if not config.consume_enable]
    if off:
        yield Finding(
            kind="consumption_disabled",
            severity=Severity.ERROR,
            text=f"consumption of the group is switched off on {names(off)}: pulls are refused",
            advice=f"let it go on: aerobee group resume {quote(case.look.group)}",
        )
    no_broadcast = [
        name for name, config in case.look.configs.items() if not config.consume_broadcast_enable
    ]
    if case.broadcasts and no_broadcast:
        yield Finding(
            kind="broadcast_disabled",
            severity=Severity.ERROR,
            text=f"the group broadcasts, which its settings on {names(no_broadcast)} forbid",
            advice="set consumeBroadcastEnable of the group (mqadmin updateSubGroup -d true)",
        )


def unreadable(case: Case) -> Iterator[Finding]:
    """Brokers or topics lack the read permission."""
    for broker in case.look.unreadable:
        yield Finding(
            kind="broker_not_readable",
            severity=Severity.ERROR,
            text=f"brokerPermission of {broker} has no read permission: it serves no consumer",
            advice=f"aerobee broker config set brokerPermission=6 --broker {quote(broker)}",
        )
    for topic, configs in case.look.topics.items():
        closed = [config.broker for config in configs if not config.perm & PERM_READ]
        if closed:
            yield Finding(
                kind="topic_not_readable",
                severity=Severity.ERROR,
                text=f"topic {topic} has no read permission on {names(closed)}: pulls are refused",
                advice=f"aerobee topic alter {quote(topic)} --perm rw",
            )
        if not (configs or topic.startswith(RETRY_PREFIX) or case.look.is_partial):
            yield Finding(
                kind="topic_missing",
                severity=Severity.ERROR,
                text=f"the group subscribes to topic {topic}, which no broker has",
                advice="create the topic, or correct its name in the subscription",
            )
    for topic, broker in case.look.forbidden:
        yield Finding(
            kind="topic_forbidden",
            severity=Severity.ERROR,
            text=f"the group is forbidden to read topic {topic} on {broker} (request 353)",
            advice="allow it again with that request, or delete the group's settings",
        )


# ── Members ──


def nobody(case: Case) -> Iterator[Finding]:
    """No member is connected."""
    if case.look.connections or case.look.is_partial:
        return
    lag = total(case.queues)
    waits = counted(lag, "message waits", "messages wait") if lag else "no messages wait"
    yield Finding(
        kind="nobody_online",
        severity=Severity.ERROR if lag else Severity.NOTE,
        text=f"no member of the group is connected, and {waits}",
        advice="start a consumer of the group; check its name server and group name if one runs",
    )


def twins(case: Case) -> Iterator[Finding]:
    """Two connections have one client id, so each computes the same share of queues."""
    addresses: dict[tuple[str, str], set[str]] = defaultdict(set)
    for broker, connection in case.look.members():
        addresses[broker, connection.client_id].add(connection.client_addr)
    twice = sorted({client for (_, client), places in addresses.items() if len(places) > 1})
    if twice:
        yield Finding(
            kind="client_id_twice",
            severity=Severity.ERROR,
            text=f"several members have the client id {names(twice)}: they take the same queues "
            "and leave others to nobody",
            advice="give each an instance name of its own; in containers addresses and process "
            "numbers are often the same",
            members=twice,
        )


def conflicting(case: Case) -> Iterator[Finding]:
    """Members have different subscriptions; brokers keep only the last one."""
    wanted: dict[str, dict[tuple[str, str] | None, list[str]]] = defaultdict(dict)
    for client_id, info in sorted(case.look.infos.items()):
        own = subscribed(info)
        for topic in all_subscribed(case.look):
            wanted[topic].setdefault(own.get(topic), []).append(client_id)
    for topic, by_expression in sorted(wanted.items()):
        if len(by_expression) > 1:
            differences = "; ".join(
                f"{names(clients)}: {'nothing' if wish is None else f'{wish[0]} {wish[1]!r}'}"
                for wish, clients in by_expression.items()
            )
            yield Finding(
                kind="subscriptions_differ",
                severity=Severity.ERROR,
                text=f"members do not want the same of topic {topic} ({differences}): "
                "brokers filter by what was said last, so messages are passed over, or lie in "
                "queues of members that do not read them",
                advice="let all members subscribe to the same topics with the same expressions, or "
                "give each kind of member a group of its own",
                members=[client for clients in by_expression.values() for client in clients],
            )


def subscribed(info: RunningInfo) -> dict[str, tuple[str, str]]:
    """The subscriptions of a member: topic → kind and text of the expression."""
    return {
        subscription.topic: (subscription.expression_type, subscription.expression)
        for subscription in info.subscriptions
        if not subscription.topic.startswith(RETRY_PREFIX)
    }


def all_subscribed(look: GroupLook) -> list[str]:
    """The topics to which any member subscribes."""
    return sorted({topic for info in look.infos.values() for topic in subscribed(info)})


def brokers_differ(case: Case) -> Iterator[Finding]:
    """Brokers have different subscriptions of the group."""
    if len(case.look.infos) > 1:
        # `conflicting` has compared the members.
        return
    tables = {
        name: [
            (subscription.topic, subscription.expression)
            for subscription in subscriptions(table.subscription_table.values())
        ]
        for name, table in case.look.connections.items()
    }
    if len({tuple(table) for table in tables.values()}) > 1:
        yield Finding(
            kind="subscriptions_differ",
            severity=Severity.WARNING,
            text=f"brokers {names(tables)} have different subscriptions of the group",
            advice="wait for the next heartbeats (30 s); if it stays, members differ",
        )


def silent(case: Case) -> Iterator[Finding]:
    """A member is connected, but does not answer the request for its running info."""
    if case.look.silent:
        first = next(iter(case.look.silent.values()))
        yield Finding(
            kind="member_silent",
            severity=Severity.WARNING,
            text=f"{names(case.look.silent)} did not say how it is doing, so owners of queues are "
            f"not known: {first}",
            advice="see whether the process hangs; clients before 3.1.8 and some other libraries "
            "cannot answer",
            members=list(case.look.silent),
        )


def mixed(case: Case) -> Iterator[Finding]:
    """Members differ in their kind of consumption."""
    kinds = sorted({f"{member.language} {member.version}" for member in case.members})
    if len(kinds) > 1:
        yield Finding(
            kind="versions_differ",
            severity=Severity.NOTE,
            text=f"members are of different versions or languages: {names(kinds)}",
            advice="nothing, unless queues have no owner or several: then their strategies differ",
        )
    strategies = sorted({member.strategy for member in case.members if member.strategy})
    if len(strategies) > 1:
        yield Finding(
            kind="strategies_differ",
            severity=Severity.ERROR,
            text=f"members share the queues out by different strategies: {names(strategies)}",
            advice="give all members the same allocateMessageQueueStrategy",
        )
    if case.orderly and not all(member.orderly for member in case.members if member.answered):
        yield Finding(
            kind="order_differs",
            severity=Severity.ERROR,
            text="some members consume in order and lock their queues, others do not",
            advice="let all members consume in order, or none",
        )


RULES: Sequence[Callable[[Case], Iterator[Finding]]] = (
    unreachable,
    disabled,
    unreadable,
    nobody,
    twins,
    conflicting,
    brokers_differ,
    silent,
    mixed,
    *QUEUE_RULES,
)
