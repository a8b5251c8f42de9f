"""The name server's KV table, saved to disk: namespace → key → value.

Source: nameserver §1, §5 (KVConfigManager).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from aerobee.broker.errors import LimitReached
from aerobee.broker.saved.documents import mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAMESPACES_MAX: Final = 1_000
BYTES_MAX: Final = 4 << 20
"""The limit for all namespaces, keys and values as JSON: every change writes the whole table, and
every registration of a broker is answered with the order settings.
"""
NAME_MAX: Final = 255
"""The most characters of a namespace or a key."""

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The namespace with the order settings: the brokers and queue counts of ordered topics."""

_encode = msgspec.json.Encoder().encode


class KvConfigTable:
    """Values stored by administrators. A namespace remains when its last key is deleted."""

    def __init__(
        self, *, max_entries: int = 100_000, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.namespaces: dict[str, dict[str, str]] = {}
        self.max_entries = max_entries
        self.on_change = on_change
        self.entries = 0
        self.bytes = 0

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises: LimitReached."""
        if max(len(namespace), len(key)) > NAME_MAX:
            raise LimitReached("character of a namespace or key of KV config", NAME_MAX)
        before = self.get(namespace, key)
        more = size(value) - size(before) if before is not None else size(key) + size(value)
        if before is None and self.entries >= self.max_entries:
            raise LimitReached("KV config entry", self.max_entries)
        if namespace not in self.namespaces:
            more += size(namespace)
            most = min(NAMESPACES_MAX, self.max_entries)
            if len(self.namespaces) >= most:
                raise LimitReached("KV config namespace", most)
        if more > 0 and self.bytes + more > BYTES_MAX:
            raise LimitReached("byte of KV config", BYTES_MAX)
        self.namespaces.setdefault(namespace, {})[key] = value
        self.entries += before is None
        self.bytes += more
        self.on_change()

    def get(self, namespace: str, key: str) -> str | None:
        """The value of a key, None if there is none."""
        return self.namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Delete a value; does nothing when there is none."""
        value = self.namespaces.get(namespace, {}).pop(key, None)
        if value is not None:
            self.entries -= 1
            self.bytes -= size(key) + size(value)
            self.on_change()

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All keys and values of a namespace, None if it was never used."""
        return self.namespaces.get(namespace)

    def load(self, document: Mapping[str, Any]) -> None:
        """Replace the table by a decoded `kvConfig.json`. Raises: ValueError for a wrong shape."""
        self.namespaces = msgspec.convert(
            mapping(document, "configTable"), dict[str, dict[str, str]]
        )
        self.entries = sum(map(len, self.namespaces.values()))
        self.bytes = sum(
            size(name) + sum(size(key) + size(value) for key, value in entries.items())
            for name, entries in self.namespaces.items()
        )

    def document(self) -> dict[str, Any]:
        """The content of `kvConfig.json` as a copy, which may be encoded in a thread."""
        return {"configTable": {name: dict(entries) for name, entries in self.namespaces.items()}}


def size(text: str) -> int:
    """The bytes of a text in JSON, without its quotes: up to six for a character."""
    return len(_encode(text)) - 2
