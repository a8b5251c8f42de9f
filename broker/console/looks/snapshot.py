"""The lists of the console: made on a tick while somebody looks, and what of them a viewer may see.

The own broker's come from its tables (looking.py), and those of other brokers from their answers
(cluster.py); merging.py makes one of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.access.permissions import Action, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aerobee.broker.console.looks.viewers import Viewer
    from aerobee.client.steps.admin.broker_tables import BrokerTables

    Row = Mapping[str, Any]


PERM_NAMES: Final = {6: "rw", 4: "r", 2: "w"}
OVERVIEW: Final = (
    "broker",
    "cluster",
    "address",
    "role",
    "version",
    "up_s",
    "brokers",
    "brokers_up",
    "in_per_s",
    "out_per_s",
    "bytes_in_per_s",
    "in_today",
    "out_today",
    "connections",
    "topics",
    "groups",
    "lag",
    "lag_at_least",
    "oldest_unread_s",
    "dead_letters",
    "disk_percent",
    "disk_free_bytes",
    "disk_full_in_s",
    "log_bytes",
    "oldest_at_ms",
    "problem",
)
"""The figures of an overview. `problem`: why sends are refused; empty: they are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of the brokers at one time. Rows of a list have the same columns.

    A value that is not known is None, never 0. Where a broker does not tell, a count is None, and
    its name with `_at_least` has what the others tell.
    """

    at_ms: int
    """The time of the oldest part."""
    took_ms: float
    overview: Mapping[str, Any]
    """Figures by the names in OVERVIEW."""
    findings: Sequence[Mapping[str, Any]]
    """The findings now, the severest first: severity, kind, text, advice, topic, group."""
    topics: Sequence[Mapping[str, Any]]
    """topic, kind (normal, retry, dead, system), type, read_queues, write_queues, perm, messages,
    messages_at_least, in_per_s, groups, delayed, half."""
    groups: Sequence[Mapping[str, Any]]
    """group, members, lag, lag_at_least, lag_s, in_flight, per_s, model, topics, enabled, retries,
    dead_letters, system."""
    clients: Sequence[Mapping[str, Any]]
    """kind, group, client, address, language, version, broker, requests_per_s (of its connection,
    since the last look), silent_s."""
    dead_letters: Sequence[Mapping[str, Any]]
    """group, letters, last."""
    broker_findings: Sequence[Mapping[str, Any]] = ()
    """Of the findings those that are not about groups."""
    missing: Sequence[str] = ()
    """The brokers of which neither master nor slave tells what it has."""
    brokers: Sequence[Mapping[str, Any]] = ()
    """A row of `aerobee cluster info` for each, with `own` (it runs in this process), `why` (it
    does not tell what it knows; empty: it does), and `lacks` (the right that the account needs).
    """

    def overview_of(self, viewer: Viewer) -> Mapping[str, Any]:
        """The overview, with counts of the topics and groups that the viewer may see."""
        topics, groups = self.topics_of(viewer), self.groups_of(viewer)
        if (len(topics), len(groups)) == (len(self.topics), len(self.groups)):
            return self.overview
        known = not self.missing and self.overview["lag"] is not None
        counted = counts_of(topics, groups, self.dead_letters_of(viewer), known=known)
        return {**self.overview, **counted}

    def topics_of(self, viewer: Viewer) -> list[Mapping[str, Any]]:
        """The topics that the viewer may see."""
        return [row for row in self.topics if viewer.may(Kind.TOPIC, row["topic"], Action.GET)]

    def groups_of(self, viewer: Viewer) -> list[Mapping[str, Any]]:
        """The groups that the viewer may see."""
        return [row for row in self.groups if viewer.may(Kind.GROUP, row["group"], Action.GET)]

    def clients_of(self, viewer: Viewer) -> list[Mapping[str, Any]]:
        """The clients of groups that the viewer may see."""
        return [row for row in self.clients if viewer.may(Kind.GROUP, row["group"], Action.GET)]

    def dead_letters_of(self, viewer: Viewer) -> list[Mapping[str, Any]]:
        """The dead letters of groups that the viewer may see."""
        return [
            row for row in self.dead_letters if viewer.may(Kind.GROUP, row["group"], Action.GET)
        ]

    def findings_of(self, viewer: Viewer) -> list[Mapping[str, Any]]:
        """The findings about what the viewer may see; those about the broker are for everybody."""
        return [
            row
            for row in self.findings
            if (not row["topic"] or viewer.may(Kind.TOPIC, row["topic"], Action.GET))
            and (not row["group"] or viewer.may(Kind.GROUP, row["group"], Action.GET))
        ]

    def brokers_of(self, viewer: Viewer) -> list[Mapping[str, Any]]:
        """All brokers: each has told the viewer itself what it tells."""
        return list(self.brokers)


def total(rows: Iterable[Row], column: str) -> Any:
    """The sum of a column; None where one value is not known."""
    values = [row[column] for row in rows]
    return None if None in values else sum(values)


def counts_of(
    topics: Sequence[Row], groups: Sequence[Row], letters: Sequence[Row], *, known: bool
) -> dict[str, Any]:
    """The figures of an overview that are counts of rows. `known`: no broker is missing."""
    users = [row for row in groups if not row["system"]]
    waits = [row["lag_s"] for row in users if row["lag_at_least"]]
    dead = {row["group"]: row["letters"] for row in letters}
    dead |= {row["group"]: row["dead_letters"] for row in groups}
    all_known = known and None not in dead.values()
    return {
        "topics": sum(row["kind"] == "normal" for row in topics) if known else None,
        "groups": len(users) if known else None,
        "lag": total(users, "lag") if known else None,
        "lag_at_least": sum(row["lag_at_least"] for row in users),
        "oldest_unread_s": max(waits, default=0.0) if known and None not in waits else None,
        "dead_letters": sum(dead.values()) if all_known else None,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLook:
    """The brokers of a cluster at one time."""

    rows: Sequence[Row] = ()
    """As `aerobee cluster info` prints them, with `own` (it runs in this process), `why` (what it
    does not tell, and why; empty: it tells all) and `lacks` (the right that is missing)."""
    tables: Mapping[str, BrokerTables] = field(default_factory=dict)
    """By name of a broker, whose target is not `own`: its master, or a slave in its place."""
    failure: str = ""
    """Why nothing is known of the cluster."""
    at_ms: int | None = None
    """When it began; None: it has not looked."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Address → since when, in ms, the name servers know a broker of an earlier look no more."""
