"""The SQL filters of consumer groups, by topic and group: `consumerFilter.json`.

A heartbeat registers them; the newer version of a subscription replaces the older. When a group has
left, its filters are dead, and a day later they are removed; a group that returns revives them.
Filters that no heartbeat has confirmed since the start count as dead. Source: semantics §14.4,
store format §1.7 (ConsumerFilterManager).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aerobee.broker.errors import FilterInvalid
from aerobee.broker.filters.sql_filter import SqlFilter
from aerobee.broker.filters.subscription import filter_of, is_tag_type
from aerobee.broker.saved.documents import mapping

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from aerobee.remoting.wire.bodies.client import SubscriptionData

DEAD_KEPT_MS: Final = 24 * 3600 * 1000
"""How long the filter of a group without members is kept."""
DEAD_BEFORE_START_MS: Final = 30_000
"""The time of death, before the start, of a filter that was alive in the last run."""
FILTERS_MAX: Final = 100_000
"""Filters of all groups; one more is not registered."""

Compilation: TypeAlias = "dict[tuple[str | None, str], SqlFilter | str]"
"""Expression type and text → the filter, or why there is none."""


@dataclass(slots=True)
class ConsumerFilter:
    """The filter of one group on one topic. Times are ms; `client_version` is the
    subscription's.
    """

    group: str
    topic: str
    expression_type: str
    expression: str
    client_version: int
    born_ms: int
    dead_ms: int = 0
    """0 while the group has members."""
    sql: SqlFilter | None = None
    """Compiled; None until a heartbeat has registered it in this run."""

    @property
    def text(self) -> tuple[str, str]:
        """The type of its expression, and the expression."""
        return self.expression_type, self.expression

    def document(self) -> dict[str, Any]:
        """The entry in `consumerFilter.json`."""
        return {
            "bornTime": self.born_ms,
            "clientVersion": self.client_version,
            "consumerGroup": self.group,
            "dead": self.dead_ms != 0,
            "deadTime": self.dead_ms,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }


class ConsumerFilterTable:
    """Topic → group → filter. `changes` counts changes that must be saved.

    Invariant: `topics_of` has a group exactly for the topics where it has a filter; `count` is the
    number of filters.
    """

    def __init__(self) -> None:
        self.by_topic: dict[str, dict[str, ConsumerFilter]] = {}
        self.topics_of: dict[str, set[str]] = {}
        self.count = 0
        self.changes = 0

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        """The filter of a group on a topic, dead or alive."""
        groups = self.by_topic.get(topic)
        return None if groups is None else groups.get(group)

    # ── Clients ──

    def compiled(
        self, group: str, subscriptions: Iterable[SubscriptionData]
    ) -> Generator[None, None, Compilation]:
        """The filters in the subscriptions of a group, for `register`. A text that the group has
        not had is compiled, in a step of its own: that may take 20 ms.
        """
        made: Compilation = {}
        for data in subscriptions:
            key = data.expression_type, data.sub_string
            if key in made or is_tag_type(data.expression_type):
                continue
            known = self.get(data.topic, group)
            if known is not None and known.sql is not None and known.text == key:
                made[key] = known.sql
                continue
            made[key] = _compiled(*key)
            yield
        return made

    def register(
        self,
        group: str,
        subscriptions: Iterable[SubscriptionData],
        now_ms: int,
        compiled: Compilation,
    ) -> list[str]:
        """Set the filters of a group from its subscriptions; returns the errors of refused ones.

        Its filters on other topics are dead from now on.
        """
        refused = []
        topics = set()
        for data in subscriptions:
            if is_tag_type(data.expression_type):
                continue
            topics.add(data.topic)
            try:
                self.register_one(group, data, now_ms, compiled)
            except FilterInvalid as error:
                refused.append(f"{data.topic}: {error.remark}")
        for known in self.of_group(group):
            if known.topic not in topics:
                self.die(known, now_ms)
        return refused

    def register_one(
        self, group: str, data: SubscriptionData, now_ms: int, compiled: Compilation
    ) -> None:
        """Register one subscription. Raises: FilterInvalid; the earlier one is kept then."""
        known = self.get(data.topic, group)
        if known is not None and not known.dead_ms and known.client_version >= data.sub_version:
            return
        sql = compiled[data.expression_type, data.sub_string]
        if isinstance(sql, str):
            raise FilterInvalid(sql)
        if known is None and self.count >= FILTERS_MAX:
            raise FilterInvalid(f"no room for another filter: {FILTERS_MAX} is the limit")
        same = known is not None and known.expression == data.sub_string
        born_ms = known.born_ms if known is not None and same else now_ms
        self.put(
            ConsumerFilter(
                group,
                data.topic,
                data.expression_type or "",
                data.sub_string,
                data.sub_version,
                born_ms,
                sql=sql,
            )
        )

    def group_gone(self, group: str, now_ms: int) -> None:
        """The last member of a group has left."""
        for known in self.of_group(group):
            self.die(known, now_ms)

    def forget_dead(self, now_ms: int) -> None:
        """Remove filters that have been dead for a day."""
        limit_ms = now_ms - DEAD_KEPT_MS
        for groups in list(self.by_topic.values()):
            for known in list(groups.values()):
                if known.dead_ms and known.dead_ms <= limit_ms:
                    self.drop(known)

    def delete_topic(self, topic: str) -> None:
        """Remove the filters of a deleted topic that no running member has."""
        for known in list(self.by_topic.get(topic, {}).values()):
            if known.dead_ms:
                self.drop(known)

    def delete_group(self, group: str) -> None:
        """Remove the filters of a deleted group that no running member has."""
        for known in list(self.of_group(group)):
            if known.dead_ms:
                self.drop(known)

    # ── Entries ──

    def of_group(self, group: str) -> Iterator[ConsumerFilter]:
        """Every filter of a group."""
        for topic in self.topics_of.get(group, ()):
            yield self.by_topic[topic][group]

    def put(self, entry: ConsumerFilter) -> None:
        """Set the filter of a group on a topic."""
        self.count += self.get(entry.topic, entry.group) is None
        self.by_topic.setdefault(entry.topic, {})[entry.group] = entry
        self.topics_of.setdefault(entry.group, set()).add(entry.topic)
        self.changes += 1

    def die(self, entry: ConsumerFilter, now_ms: int) -> None:
        """Mark a filter as unused from now on."""
        if not entry.dead_ms:
            entry.dead_ms = now_ms
            self.changes += 1

    def drop(self, entry: ConsumerFilter) -> None:
        """Remove a filter."""
        groups, topics = self.by_topic[entry.topic], self.topics_of[entry.group]
        del groups[entry.group]
        topics.remove(entry.topic)
        if not groups:
            del self.by_topic[entry.topic]
        if not topics:
            del self.topics_of[entry.group]
        self.count -= 1
        self.changes += 1

    # ── The file ──

    def load(self, document: Mapping[str, Any], now_ms: int) -> None:
        """Replace the table by a decoded `consumerFilter.json`, all dead. Raises: ValueError."""
        entries = [
            entry_of(topic, group, fields, now_ms - DEAD_BEFORE_START_MS)
            for topic, groups in mapping(document, "filterDataByTopic").items()
            for group, fields in mapping(groups, "groupFilterData").items()
        ]
        self.by_topic, self.topics_of, self.count = {}, {}, 0
        for entry in entries:
            self.put(entry)

    def document(self) -> dict[str, Any]:
        """The content of `consumerFilter.json`, detached: it may be encoded in a thread."""
        return {
            "filterDataByTopic": {
                topic: {
                    "groupFilterData": {group: entry.document() for group, entry in groups.items()},
                    "topic": topic,
                }
                for topic, groups in self.by_topic.items()
            }
        }


def _compiled(expression_type: str | None, text: str) -> SqlFilter | str:
    """The filter of a subscription that is not by tags, or why there is none."""
    try:
        sql = filter_of(expression_type, text)
    except FilterInvalid as error:
        return error.remark
    assert isinstance(sql, SqlFilter), "tags are no filter of this table"
    return sql


def entry_of(topic: str, group: str, fields: Mapping[str, Any], dead_ms: int) -> ConsumerFilter:
    """A filter of a file; its Bloom filter data is for brokers that keep bitmaps.

    Raises: ValueError.
    """
    kind, text = fields.get("expressionType"), fields.get("expression")
    numbers = [fields.get(name) or 0 for name in ("clientVersion", "bornTime", "deadTime")]
    if not isinstance(kind, str) or not isinstance(text, str):
        raise ValueError(f"the filter of {group} on {topic} has no expression")
    if not all(type(number) is int for number in numbers):
        raise ValueError(f"the filter of {group} on {topic} has a time that is no number")
    version, born_ms, died_ms = numbers
    return ConsumerFilter(group, topic, kind, text, version, born_ms, died_ms or dead_ms)
