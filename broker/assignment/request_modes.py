"""Whether a group pulls or pops a topic, set by an administrator: `messageRequestMode.json`.

Source: semantics §11.2 (MessageRequestModeManager).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from aerobee.broker.errors import LimitReached
from aerobee.broker.saved.documents import mapping, unknown_fields
from aerobee.remoting.wire.bodies.pop import RequestModeRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PULL: Final = "PULL"
POP: Final = "POP"
MODES: Final = frozenset({PULL, POP})
OUR_KEYS: Final = frozenset({"messageRequestModeMap"})


class RequestModeTable:
    """Topic → group → mode. `on_change` is called to have it saved."""

    def __init__(self, *, on_change: Callable[[], None], max_entries: int = 100_000) -> None:
        self.modes: dict[str, dict[str, RequestModeRequest]] = {}
        self.on_change = on_change
        self.max_entries = max_entries
        self.extra: dict[str, Any] = {}

    def get(self, topic: str, group: str) -> RequestModeRequest | None:
        """The mode that was set, if any."""
        return self.modes.get(topic, {}).get(group)

    def set(self, wanted: RequestModeRequest) -> None:
        """Set the mode of a group and topic. Raises: LimitReached."""
        known = self.get(wanted.topic, wanted.consumer_group)
        if known is None and sum(map(len, self.modes.values())) >= self.max_entries:
            raise LimitReached("message request mode", self.max_entries)
        self.modes.setdefault(wanted.topic, {})[wanted.consumer_group] = wanted
        self.on_change()

    def delete_topic(self, topic: str) -> None:
        """Remove the modes of all groups for a topic."""
        if self.modes.pop(topic, None) is not None:
            self.on_change()

    def delete_group(self, group: str) -> None:
        """Remove the modes of a group for all topics."""
        topics = [topic for topic, groups in self.modes.items() if group in groups]
        for topic in topics:
            del self.modes[topic][group]
            if not self.modes[topic]:
                del self.modes[topic]
        if topics:
            self.on_change()

    # ── The file ──

    def copy(self, document: Mapping[str, Any]) -> None:
        """Have the modes of a master. Raises: ValueError for what is no table."""
        before, extra = self.modes, self.extra
        self.load(document)
        self.extra = extra
        if self.modes != before:
            self.on_change()

    def load(self, document: Mapping[str, Any]) -> None:
        """Replace the table by a decoded `messageRequestMode.json`.

        Raises: ValueError when it is not one; the table is unchanged then.
        """
        self.modes = {
            topic: {
                group: msgspec.convert(
                    {"topic": topic, "consumerGroup": group, **fields},
                    RequestModeRequest,
                    strict=False,
                )
                for group, fields in groups.items()
            }
            for topic, groups in mapping(document, "messageRequestModeMap").items()
        }
        self.extra = unknown_fields(document, OUR_KEYS)

    def document(self) -> dict[str, Any]:
        """The content of `messageRequestMode.json`, detached: it may be encoded in a thread."""
        return {
            **self.extra,
            "messageRequestModeMap": {topic: dict(groups) for topic, groups in self.modes.items()},
        }
