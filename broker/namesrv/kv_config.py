"""The name server's small persisted table: namespace → key → value.

Source: nameserver §1, §5 (KVConfigManager).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from aerobee.broker.errors import LimitReached
from aerobee.broker.saved.documents import mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ORDER_TOPIC_CONFIG", "KvConfigTable"]

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The namespace whose values say on which brokers an ordered topic has how many queues."""


class KvConfigTable:
    """What administrators stored under names. A namespace stays when its last key goes."""

    def __init__(
        self, *, max_entries: int = 100_000, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.namespaces: dict[str, dict[str, str]] = {}
        self.max_entries = max_entries
        self.on_change = on_change

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises: LimitReached."""
        if self.get(namespace, key) is None and self.count() >= self.max_entries:
            raise LimitReached("KV config entry", self.max_entries)
        if namespace not in self.namespaces and len(self.namespaces) >= self.max_entries:
            raise LimitReached("KV config namespace", self.max_entries)
        self.namespaces.setdefault(namespace, {})[key] = value
        self.on_change()

    def get(self, namespace: str, key: str) -> str | None:
        """A value, None if there is none."""
        return self.namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Forget a value; nothing when there is none."""
        if self.namespaces.get(namespace, {}).pop(key, None) is not None:
            self.on_change()

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Everything under a namespace, None if it was never used."""
        return self.namespaces.get(namespace)

    def count(self) -> int:
        """Entries in all namespaces."""
        return sum(map(len, self.namespaces.values()))

    def load(self, document: Mapping[str, Any]) -> None:
        """Replace everything by a decoded `kvConfig.json`. Raises: ValueError when it is none."""
        self.namespaces = msgspec.convert(
            mapping(document, "configTable"), dict[str, dict[str, str]]
        )

    def document(self) -> dict[str, Any]:
        """What `kvConfig.json` holds, detached: it may be encoded in a thread."""
        return {"configTable": {name: dict(entries) for name, entries in self.namespaces.items()}}
