"""The broker in whose process the console runs: what is read from its tables, without a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.broker.config.explained import default_text, meaning
from aerobee.broker.config.report import shown
from aerobee.broker.config.schema import SCHEMA
from aerobee.broker.console.looks.looking import Looking

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aerobee.broker.access.audit import Audit
    from aerobee.broker.console.looks.looking import Tables
    from aerobee.broker.console.looks.snapshot import Snapshot

STORE_FIGURES = ("disk_percent", "disk_free_bytes", "disk_full_in_s", "log_bytes", "oldest_at_ms")


class OwnBroker:
    """One broker. `is_own`: whether a client at an IP address knows it under an address."""

    def __init__(self, tables: Tables, audit: Audit, is_own: Callable[[str, str], bool]) -> None:
        self._tables = tables
        self._audit = audit
        self.is_own = is_own
        self.snapshot = Looking(tables).snapshot
        """The newest snapshot of it."""

    @property
    def name(self) -> str:
        """The name under which others know it."""
        return self._tables.core.config.broker.broker_name

    @property
    def cluster(self) -> str:
        """The cluster that it belongs to."""
        return self._tables.core.config.broker.broker_cluster_name

    def audit(self) -> Sequence[Mapping[str, Any]]:
        """The newest changes by administrators, the newest first."""
        return self._audit.lines[::-1]

    def settings(self) -> list[dict[str, Any]]:
        """Every setting, its value, and where that comes from."""
        config = self._tables.core.config
        return [
            {
                "key": key.name,
                "value": shown(config, key),
                "default": default_text(key),
                "source": config.sources.get(key.name),
                "live": key.declaration.live,
                "meaning": meaning(key),
            }
            for key in sorted(SCHEMA.values(), key=lambda key: key.name)
        ]

    def store(self, snapshot: Snapshot) -> dict[str, Any]:
        """The log and the disk. `snapshot`: of this broker alone."""
        store = self._tables.core.store
        return {
            "root": str(store.root),
            "log_first": store.commit_log.min_offset,
            "log_end": store.commit_log.max_offset,
            "flush_behind_bytes": store.flush_behind_bytes,
            "dispatch_behind_bytes": store.dispatch_behind_bytes,
            "problem": snapshot.overview["problem"],
            **{name: snapshot.overview[name] for name in STORE_FIGURES},
        }
