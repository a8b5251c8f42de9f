"""Configuration of consumer groups: whether they may consume, how often they retry.

Configs are never changed in place: an edit stores a new one, increments the version and calls
`on_change`. Time comes in as `now_ms` of the wall clock. Source: semantics §5
(SubscriptionGroupManager).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from aerobee.broker.core import names
from aerobee.broker.errors import GroupNotExist, LimitReached, TooFast
from aerobee.broker.saved.data_version import bumped, version_document, version_of
from aerobee.broker.saved.documents import KeptFields, mapping, unknown_fields
from aerobee.remoting.rate_limit import RateLimit
from aerobee.remoting.wire.bodies.data_version import DataVersion
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.store.format.system_names import BUILT_IN_GROUPS, SYSTEM_GROUP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

ALLOWED_AGAIN: Final = "let groups read topics again, or delete groups that nobody uses"
READ_FORBIDDEN: Final = 1 << 2
"""The bit index is that of the permission bit: READ is 1 << 2 in a topic's permissions."""
OUR_KEYS: Final = frozenset({"dataVersion", "subscriptionGroupTable", "forbiddenTable"})


class GroupSettings(Protocol):
    """The settings about the creation of groups."""

    @property
    def auto_create_subscription_group(self) -> bool: ...
    @property
    def max_consumer_groups(self) -> int: ...
    @property
    def auto_create_burst(self) -> int: ...
    @property
    def auto_create_rate(self) -> int: ...


class GroupTable:
    """All consumer groups of this broker, and which topics each may not read."""

    def __init__(
        self,
        settings: GroupSettings,
        *,
        now_ms: int = 0,
        max_forbidden: int = 100_000,
    ) -> None:
        self.settings = settings
        self.max_forbidden = max_forbidden
        self.listeners: list[Callable[[Iterable[str]], None]] = []
        """Called with the names of groups that are new, changed or deleted."""
        self.rate = RateLimit()
        self.settings_changed()
        self.version = DataVersion(timestamp=now_ms)
        self.configs: dict[str, SubscriptionGroupConfig] = {
            name: SubscriptionGroupConfig(group_name=name) for name in BUILT_IN_GROUPS
        }
        self.forbidden: dict[str, dict[str, int]] = {}
        self.extra: dict[str, Any] = {}
        self.kept = KeptFields()
        self.get: Callable[[str], SubscriptionGroupConfig | None] = self.configs.get

    def settings_changed(self) -> None:
        """Take the limits from the settings."""
        settings = self.settings
        self.max_groups = settings.max_consumer_groups
        self.rate.allow(settings.auto_create_burst, settings.auto_create_rate)

    def find(self, group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """The group, created with default settings if that is allowed; None if it is not.

        Raises: LimitReached, TooFast.
        """
        return self.configs.get(group) or self.create(group, now_ms)

    def require(self, group: str, now_ms: int) -> SubscriptionGroupConfig:
        """As `find`. Raises: GroupNotExist instead of returning None; LimitReached, TooFast."""
        config = self.configs.get(group) or self.create(group, now_ms)
        if config is None:
            raise GroupNotExist(group)
        return config

    def existing(self, group: str) -> SubscriptionGroupConfig:
        """The group, of a request that creates none. Raises: GroupNotExist."""
        config = self.configs.get(group)
        if config is None:
            raise GroupNotExist(group)
        return config

    def create(self, group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """Create an unknown group with default settings. Raises: LimitReached, TooFast."""
        if not self.may_create(group):
            return None
        self.check_room(1)
        if not self.rate.take(now_ms):
            raise TooFast("consumer group", self.rate.per_s)
        config = SubscriptionGroupConfig(group_name=group)
        self.update(config, now_ms)
        return config

    def may_create(self, group: str) -> bool:
        """Whether using an unknown group creates it."""
        automatic = self.settings.auto_create_subscription_group
        allowed = automatic or group.startswith(SYSTEM_GROUP_PREFIX)
        return allowed and not names.group_problem(group)

    def check_new(self, groups: Iterable[str], now_ms: int) -> None:
        """Check that all of these exist or can be created. Creates nothing.

        Raises: LimitReached, TooFast.
        """
        new = {group for group in groups if group not in self.configs and self.may_create(group)}
        if not new:
            return
        self.check_room(len(new))
        if not self.rate.allows(len(new), now_ms):
            raise TooFast("consumer group", self.rate.per_s)

    def check_room(self, count: int) -> None:
        """Refuse `count` more groups when they would be too many. Raises: LimitReached."""
        if count and len(self.configs) + count > self.max_groups:
            unused = "delete those that nobody uses"
            raise LimitReached("consumer group", self.max_groups, unused, key="maxConsumerGroups")

    def update(self, config: SubscriptionGroupConfig, now_ms: int) -> bool:
        """Set a config; whether that changed anything. Raises: NameIllegal, LimitReached."""
        if config.group_name not in self.configs:
            names.check_group(config.group_name)
        return bool(self.put_all([config], now_ms))

    def put_all(self, configs: Iterable[SubscriptionGroupConfig], now_ms: int) -> list[str]:
        """Set groups with valid names: returns those that changed, or changes none when it raises.

        Raises: LimitReached.
        """
        changed = {
            config.group_name: config
            for config in configs
            if config != self.configs.get(config.group_name)
        }
        self.check_room(len(changed.keys() - self.configs.keys()))
        self.configs.update(changed)
        if changed:
            self.changed(tuple(changed), now_ms)
        return list(changed)

    def delete(self, group: str, now_ms: int) -> bool:
        """Remove a group and its forbidden topics, which one may have that was never made; whether
        it existed.
        """
        forbidden = self.forbidden.pop(group, None)
        self.kept.drop(group)
        there = self.configs.pop(group, None) is not None
        if there or forbidden is not None:
            self.changed((group,), now_ms)
        return there

    def changed(self, groups: Iterable[str], now_ms: int) -> None:
        """Increment the version and call the listeners."""
        self.version = bumped(self.version, now_ms)
        self._tell(groups)

    def _tell(self, groups: Iterable[str]) -> None:
        for listener in self.listeners:
            listener(groups)

    # ── What a group may not read ──

    def may_read(self, group: str, topic: str) -> bool:
        """False when an administrator forbade this group this topic."""
        topics = self.forbidden.get(group)
        return topics is None or not topics.get(topic, 0) & READ_FORBIDDEN

    def forbid_read(self, group: str, topic: str, forbidden: bool, now_ms: int) -> None:
        """Forbid or allow one group to read one topic; its other topics stay as they are.

        Raises: LimitReached.
        """
        if forbidden is not self.may_read(group, topic):
            return
        topics = self.forbidden.get(group, {})
        bits = topics.get(topic, 0)
        if not bits and sum(map(len, self.forbidden.values())) >= self.max_forbidden:
            raise LimitReached("forbidden topic of a group", self.max_forbidden, ALLOWED_AGAIN)
        topics[topic] = bits | READ_FORBIDDEN if forbidden else bits & ~READ_FORBIDDEN
        if not topics[topic]:
            del topics[topic]
        self.forbidden[group] = topics
        if not topics:
            del self.forbidden[group]
        self.changed((group,), now_ms)

    # ── The groups of a master ──

    def copy(self, document: Mapping[str, Any]) -> list[str]:
        """Have the groups of a master, what they may not read, and its version: what it lacks
        goes, but for the built-in ones. Returns the names of those that went.

        No limit counts: it is the master's. Raises: ValueError for what is no table; nothing has
        changed then.
        """
        stored, configs, forbidden, rejected = _groups_of(document)
        version = version_of(document)
        gone = [
            name for name in self.configs if name not in configs and name not in BUILT_IN_GROUPS
        ]
        changed = [
            name
            for name, config in configs.items()
            if name not in rejected and config != self.configs.get(name)
        ]
        for name in changed:
            self.configs[name] = configs[name]
            self.kept.drop(name)
            self.kept.put(name, unknown_fields(stored[name], FIELDS), configs[name])
        for name in gone:
            del self.configs[name]
            self.kept.drop(name)
        self.version = version
        if changed or gone or forbidden != self.forbidden:
            self.forbidden = forbidden
            self._tell([*changed, *gone])
        return gone

    # ── The file ──

    def load(self, document: Mapping[str, Any]) -> list[str]:
        """Merge a decoded `subscriptionGroup.json` over the built-in groups; returns the names left
        out.

        Names longer than new groups may have are accepted; one that cannot be a directory is left
        out. Unknown fields are kept and written again. Raises: ValueError when it is malformed;
        nothing has changed then.
        """
        stored, configs, forbidden, rejected = _groups_of(document)
        version = version_of(document)
        for name, config in configs.items():
            if name not in rejected:
                self.configs[name] = config
                self.kept.put(name, unknown_fields(stored[name], FIELDS), self.configs[name])
        self.forbidden = forbidden
        self.version = version
        self.extra = unknown_fields(document, OUR_KEYS)
        return rejected

    def document(self) -> dict[str, Any]:
        """The content of `subscriptionGroup.json`, detached: it may be encoded in a thread."""
        return {
            **self.extra,
            "dataVersion": version_document(self.version),
            "forbiddenTable": {group: dict(topics) for group, topics in self.forbidden.items()},
            "subscriptionGroupTable": self.kept.table(self.configs),
        }


FIELDS: Final = frozenset(
    field.encode_name for field in msgspec.structs.fields(SubscriptionGroupConfig)
)


class _GroupTableFile(NamedTuple):
    """A table of groups as it was written."""

    entries: dict[str, Any]
    configs: dict[str, SubscriptionGroupConfig]
    forbidden: dict[str, dict[str, int]]
    rejected: list[str]
    """Names that cannot be directories."""


def _groups_of(document: Mapping[str, Any]) -> _GroupTableFile:
    """The content of a table. Raises: ValueError when it is malformed."""
    stored = mapping(document, "subscriptionGroupTable")
    configs = {
        name: msgspec.convert({**fields, "groupName": name}, SubscriptionGroupConfig, strict=False)
        for name, fields in stored.items()
    }
    forbidden = msgspec.convert(
        mapping(document, "forbiddenTable"), dict[str, dict[str, int]], strict=False
    )
    rejected = [name for name in configs if names.group_problem(name, stored=True)]
    return _GroupTableFile(stored, configs, forbidden, rejected)
