"""The lists of the console: read from the tables of the broker on a tick, and shown to everybody.

A snapshot is made while somebody looks, at most once in TICK_S, in steps between which others run.
It costs one pass over topics, groups and their queues, however many look.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aerobee.broker.access.permissions import Action, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.broker.console.viewers import Viewer


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of this broker at one time. Rows of a list have the same columns.

    A value that is not known is None, never 0.
    """

    at_ms: int
    took_ms: float
    overview: Mapping[str, Any]
    """broker, cluster, role, version, up_s, in_per_s, out_per_s, in_today, out_today, connections,
    topics, groups, lag, oldest_unread_s, disk_percent, disk_free_bytes, log_bytes, oldest_at,
    problem (why sends are refused; empty: they are not)."""
    findings: Sequence[Mapping[str, Any]]
    """What is wrong now: severity (error, warning), kind, text, advice, topic, group."""
    topics: Sequence[Mapping[str, Any]]
    """topic, kind (normal, retry, dead, system), type, read_queues, write_queues, perm, messages,
    in_per_s, groups, oldest_at, last_at, delayed, half."""
    groups: Sequence[Mapping[str, Any]]
    """group, members, lag, lag_s, in_flight, per_s, model, topics, enabled, retries, dead_letters,
    system."""
    clients: Sequence[Mapping[str, Any]]
    """kind, group, client, address, language, version, broker, requests_per_s (of its connection,
    since the last look), silent_s."""
    dead_letters: Sequence[Mapping[str, Any]]
    """group, letters, last."""

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
