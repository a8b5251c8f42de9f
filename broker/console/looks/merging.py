"""Makes one snapshot of a broker's own and of what the other brokers of its cluster told. Pure.

A figure that a broker does not tell is not known: where one is missing, a count is None, and
`…_at_least` has what the others told.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aerobee.broker.console.looks.findings import disk_findings, finding, findings_of, ranked
from aerobee.broker.console.looks.snapshot import OVERVIEW, PERM_NAMES, Snapshot, counts_of, total
from aerobee.client.steps.admin.topics import instant
from aerobee.client.system_names import is_system_group, is_system_topic
from aerobee.remoting.wire.bodies.topic import MESSAGE_TYPE
from aerobee.remoting.wire.version import describe
from aerobee.store.format.system_names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aerobee.broker.console.looks.snapshot import ClusterLook
    from aerobee.client.steps.admin.broker_tables import BrokerTables

    Row = Mapping[str, Any]

UP: Final = "up"
PERCENT: Final = 100


def merged(own: Snapshot | None, look: ClusterLook, at_ms: int) -> Snapshot:
    """One snapshot of all brokers. `own`: of the broker in this process, if there is one. Where
    that is a slave whose master has told, the master's rows are taken in place of its own.
    """
    tables = list(look.tables.values())
    rows_here = own if own and own.overview["broker"] not in look.tables else None
    missing = missing_of(look)
    known = not missing and (own is not None or not look.failure)
    clients = [
        *(rows_here.clients if rows_here else ()),
        *(row for broker in tables for row in clients_in(broker)),
    ]
    members = members_by_group(clients)
    topic_rows = joined(
        "topic",
        rows_here.topics if rows_here else (),
        *(list(topics_in(broker)) for broker in tables),
    )
    topics = [topic_of(rows, known) for rows in topic_rows]
    letter_rows = joined(
        "group",
        rows_here.dead_letters if rows_here else (),
        *(list(letters_in(broker)) for broker in tables),
    )
    letters = {rows[0]["group"]: letters_of(rows) for rows in letter_rows}
    unasked = {
        row["topic"].removeprefix(DLQ_PREFIX): None
        for row in topics
        if row["kind"] == "dead" and row["messages"] is None
    }
    counts = unasked | {group: row["letters"] for group, row in letters.items()}
    group_rows = joined(
        "group",
        rows_here.groups if rows_here else (),
        *(list(groups_in(broker)) for broker in tables),
    )
    groups = [group_of(rows, members, counts, known) for rows in group_rows]
    overview = overview_of(own, look, topics, groups, [*letters.values()], known=known)
    findings = [*cluster_findings(look), *(own.broker_findings if own else ())]
    for row in groups:
        findings += findings_of(row)
    return Snapshot(
        at_ms=min(own.at_ms if own else at_ms, at_ms if look.at_ms is None else look.at_ms),
        took_ms=own.took_ms if own else 0.0,
        overview=overview,
        broker_findings=findings,
        findings=ranked(findings),
        topics=topics,
        groups=groups,
        clients=clients,
        dead_letters=list(letters.values()),
        missing=missing,
        brokers=look.rows,
    )


def missing_of(look: ClusterLook) -> list[str]:
    """The brokers of which neither master nor slave tells its tables."""
    brokers = look.tables.keys() | {row["broker"] for row in look.rows if row["own"]}
    return sorted({row["broker"] for row in look.rows} - brokers)


def joined(column: str, *lists: Sequence[Row]) -> Iterator[list[Row]]:
    """The rows of one name together, in the order of names."""
    by_name: dict[str, list[Row]] = defaultdict(list)
    for rows in lists:
        for row in rows:
            by_name[row[column]].append(row)
    return (by_name[name] for name in sorted(by_name))


# ── What one broker told, as rows ──


def topics_in(tables: BrokerTables) -> Iterator[Row]:
    """The topics of a broker, with the columns of a snapshot."""
    readers: dict[str, set[str]] = defaultdict(set)
    for group, progress in (tables.progress or {}).items():
        for topic in progress.topics:
            readers[topic].add(group)
    named = {tables.target.name, tables.target.cluster}
    for name, config in tables.topics.items():
        extent = tables.extents.get(name)
        messages = None if extent is None else extent.messages
        yield {
            "topic": name,
            "kind": kind_of(name, named),
            "type": config.attributes.get(MESSAGE_TYPE),
            "read_queues": config.read_queue_nums,
            "write_queues": config.write_queue_nums,
            "perm": PERM_NAMES.get(config.perm & 6, "none"),
            "messages": messages,
            "messages_at_least": messages or 0,
            "in_per_s": None if extent is None else extent.per_s,
            "groups": readers[name],
            "delayed": None,
            "half": None,
        }


def kind_of(topic: str, named: Iterable[str]) -> str:
    """The kind of a topic by its name; `named`: topics that a broker has for itself."""
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dead"
    return "system" if is_system_topic(topic) or topic in named else "normal"


def letters_in(tables: BrokerTables) -> Iterator[Row]:
    """The groups with dead letters at a broker, and when the newest came."""
    for topic, extent in tables.extents.items():
        if topic.startswith(DLQ_PREFIX) and extent.messages:
            group = topic.removeprefix(DLQ_PREFIX)
            yield {"group": group, "letters": extent.messages, "last": text_of(extent.last_ms)}


def text_of(ms: int) -> str | None:
    """A time as commands print it; None: there is none."""
    at = instant(ms)
    return None if at is None else str(msgspec.to_builtins(at))


def groups_in(tables: BrokerTables) -> Iterator[Row]:
    """The groups of a broker, with the columns of a snapshot."""
    # A group that is not in the list of all has read nothing; without the list nothing is known.
    none = None if tables.progress is None else 0
    for name, config in tables.groups.items():
        progress = (tables.progress or {}).get(name)
        lag = None if progress is None else progress.lag
        online = tables.members.get(name)
        yield {
            "group": name,
            "members": None if name not in tables.members else 0,
            "lag": 0 if tables.progress is not None and lag is None else lag,
            "lag_at_least": lag or 0,
            "lag_s": tables.waits_s.get(name) if lag else 0.0 if lag == 0 else None,
            "in_flight": progress.in_flight if progress else none,
            "per_s": progress.per_s if progress else none,
            "model": online.message_model if online else None,
            "topics": progress.topics if progress else (),
            "enabled": config.consume_enable,
            "system": is_system_group(name),
            "retries": progress.retries if progress else none,
        }


def clients_in(tables: BrokerTables) -> Iterator[Row]:
    """The clients of a broker, with the columns of a snapshot."""
    for group, online in tables.members.items():
        for reader in online.connection_set if online else ():
            yield client_row(
                tables,
                "consumer",
                group,
                reader.client_id,
                reader.client_addr,
                reader.language,
                reader.version,
            )
    for group, listed in (tables.producers or {}).items():
        for sender in listed:
            yield client_row(
                tables,
                "producer",
                group,
                sender.client_id,
                sender.remote_ip,
                sender.language,
                sender.version,
            )


def client_row(
    tables: BrokerTables,
    kind: str,
    group: str,
    client: str,
    address: str,
    language: str,
    version: int,
) -> Row:
    """A client of another broker: what it does there is not known."""
    return {
        "kind": kind,
        "group": group,
        "client": client,
        "address": address.removeprefix("/"),
        "language": language,
        "version": describe(version),
        "broker": tables.target.name,
        "requests_per_s": None,
        "silent_s": None,
    }


# ── Rows of several brokers as one ──


def first_known(rows: Sequence[Row], column: str) -> Any:
    """The first value that is known; None without one."""
    return next((row[column] for row in rows if row[column] is not None), None)


def topic_of(rows: Sequence[Row], known: bool) -> dict[str, Any]:
    """A topic by its rows at all brokers. `known`: no broker is missing."""
    perms = {row["perm"] for row in rows}
    return {
        "topic": rows[0]["topic"],
        "kind": rows[0]["kind"],
        "type": first_known(rows, "type"),
        "read_queues": total(rows, "read_queues"),
        "write_queues": total(rows, "write_queues"),
        "perm": perms.pop() if len(perms) == 1 else "differs",
        "messages": total(rows, "messages") if known else None,
        "messages_at_least": total(rows, "messages_at_least"),
        "in_per_s": total(rows, "in_per_s"),
        "groups": sorted({group for row in rows for group in row["groups"]}),
        "delayed": total(rows, "delayed"),
        "half": total(rows, "half"),
    }


def letters_of(rows: Sequence[Row]) -> Row:
    """The dead letters of a group by its rows at all brokers."""
    last = [row["last"] for row in rows if row["last"]]
    return {
        "group": rows[0]["group"],
        "letters": total(rows, "letters"),
        "last": max(last, default=None),
    }


def members_by_group(clients: Iterable[Row]) -> dict[str, set[str]]:
    """The members of each group: each connects to several brokers, and counts once."""
    members: dict[str, set[str]] = defaultdict(set)
    for row in clients:
        if row["kind"] == "consumer":
            members[row["group"]].add(row["client"])
    return members


def group_of(
    rows: Sequence[Row],
    members: Mapping[str, set[str]],
    letters: Mapping[str, int | None],
    known: bool,
) -> dict[str, Any]:
    """A group by its rows at all brokers. `known`: no broker is missing."""
    name = rows[0]["group"]
    online = len(members.get(name, ()))
    # Some may be at a broker that has not told: those that are known are no proof of none.
    are_known = online or (known and all(row["members"] is not None for row in rows))
    enabled = [row["enabled"] for row in rows if row["enabled"] is not None]
    waits = [row["lag_s"] for row in rows]
    return {
        "group": name,
        "members": online if are_known else None,
        "lag": total(rows, "lag") if known else None,
        "lag_at_least": total(rows, "lag_at_least"),
        "lag_s": None if None in waits else max(waits),
        "in_flight": total(rows, "in_flight"),
        "per_s": total(rows, "per_s"),
        "model": first_known(rows, "model"),
        "topics": sorted({topic for row in rows for topic in row["topics"]}),
        "enabled": all(enabled) if enabled else None,
        "system": rows[0]["system"],
        "retries": total(rows, "retries"),
        "dead_letters": letters.get(name, 0 if known else None),
    }


# ── The whole ──


def cluster_findings(look: ClusterLook) -> Iterator[Row]:
    """The brokers that do not tell what they know, and the disks that fill."""
    if look.failure:
        text = f"the brokers of the cluster are not known: {look.failure}"
        yield finding("warning", "cluster_unknown", text, "aerobee cluster info")
    words = {
        "dead": ("error", "broker_unreachable", "does not answer"),
        "forbidden": ("error", "broker_forbidden", "does not tell this account"),
        "failing": ("error", "broker_failing", "does not tell"),
    }
    missing = missing_of(look)
    for row in look.rows:
        # A slave that does not tell lacks nobody, where its master does.
        if row["state"] in words and (row["state"] == "dead" or row["broker"] in missing):
            severity, kind, says = words[row["state"]]
            state, advice = f"({row['address']}) {says}", "aerobee cluster info"
            if not row["address"]:
                state, advice = "has no master now", "aerobee ha doctor"
            yield finding(severity, kind, f"broker {row['broker']} {state}: {row['why']}", advice)
        if not row["own"] and row["disk"] is not None:
            yield from disk_findings(row["broker"], row["disk"] * PERCENT, None)


def overview_of(
    own: Snapshot | None,
    look: ClusterLook,
    topics: Sequence[Row],
    groups: Sequence[Row],
    letters: Sequence[Row],
    *,
    known: bool,
) -> dict[str, Any]:
    """The figures of the whole. Rates are of the brokers that tell them."""
    some = own is not None or bool(look.tables)
    masters = [row for row in look.rows if row["id"] == 0]
    up = [row for row in masters if row["state"] == UP]
    disks = [row["disk"] * PERCENT for row in look.rows if row["disk"] is not None]
    clusters = sorted({row["cluster"] for row in look.rows})
    base = dict(own.overview) if own else dict.fromkeys(OVERVIEW)
    return base | {
        "cluster": ", ".join(clusters) or base["cluster"],
        "in_per_s": rate_of(up, "in_per_s", base["in_per_s"]),
        "out_per_s": rate_of(up, "out_per_s", base["out_per_s"]),
        "in_today": rate_of(up, "in_today", base["in_today"]),
        "out_today": None if look.tables or not own else base["out_today"],
        **counts_of(topics, groups, letters, known=known and some),
        "disk_percent": max([*disks, base["disk_percent"] or 0]) if disks else base["disk_percent"],
        "problem": base["problem"] or "",
        "brokers": len(look.rows),
        "brokers_up": sum(row["state"] == UP for row in look.rows),
    }


def rate_of(rows: Sequence[Row], column: str, own: float | None) -> float | None:
    """The sum of what the others tell now, and the newer figure of the own broker."""
    values = [own if row["own"] else row[column] for row in rows]
    known = [value for value in values if value is not None]
    return sum(known) if known else own
