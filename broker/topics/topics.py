"""Configuration of topics: queues, permissions, attributes; the built-in ones included.

Looking a topic up is one dict get, because every message does it. Configs are never changed in
place: an edit stores a new one, increments the version and calls the listeners. Time comes in as
`now_ms` of the wall clock. Source: semantics §4 (TopicConfigManager).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from aerobee.broker.core import names
from aerobee.broker.errors import LimitReached, NameIllegal, Refusal, TooFast, TopicNotExist
from aerobee.broker.saved.data_version import bumped, version_document, version_of
from aerobee.broker.saved.documents import KeptFields, mapping, unknown_fields
from aerobee.broker.topics import attributes
from aerobee.broker.topics.deleted_topics import KEY as DELETED_TOPICS
from aerobee.broker.topics.deleted_topics import DeletedTopics
from aerobee.broker.topics.ranges import TopicLimits, check_ranges, with_queues_in_range
from aerobee.remoting.rate_limit import RateLimit
from aerobee.remoting.wire.bodies.data_version import DataVersion
from aerobee.remoting.wire.bodies.topic import MESSAGE_TYPE, TopicConfig
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.format.system_names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    CHECKPOINT_TOPIC,
    DLQ_PREFIX,
    HALF_TOPIC,
    MEMBERS_PREFIX,
    OFFSET_MOVED_TOPIC,
    OP_TOPIC,
    OWN_TOPIC_PREFIX,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    REVIVE_LOG_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TRACE_TOPIC,
    WHEEL_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
READ_WRITE: Final = PERM_READ | PERM_WRITE
"""The template for auto-created topics."""
GROUP_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX)
UNUSED: Final = "delete those that nobody uses"
UNIT: Final = 1
UNIT_SUB: Final = 2
FILTER_TYPES: Final = frozenset({"SINGLE_TAG", "MULTI_TAG"})
OUR_KEYS: Final = frozenset({"dataVersion", "topicConfigTable", DELETED_TOPICS})


def permitted(config: TopicConfig, permission: int) -> TopicConfig:
    """A topic as clients are told of it: permission bits that the broker lacks are cleared."""
    if permission & READ_WRITE == READ_WRITE:
        return config
    return msgspec.structs.replace(config, perm=config.perm & permission)


class TopicSettings(TopicLimits, Protocol):
    """The settings about built-in topics and topic creation."""

    @property
    def broker_name(self) -> str: ...
    @property
    def broker_cluster_name(self) -> str: ...
    @property
    def auto_create_topic_enable(self) -> bool: ...
    @property
    def default_topic_queue_nums(self) -> int: ...
    @property
    def cluster_topic_enable(self) -> bool: ...
    @property
    def broker_topic_enable(self) -> bool: ...
    @property
    def trace_topic_enable(self) -> bool: ...
    @property
    def msg_trace_topic_name(self) -> str: ...
    @property
    def validate_system_topic_when_update_topic(self) -> bool: ...
    @property
    def revive_queue_num(self) -> int: ...


class TopicTable:
    """All topics of this broker.

    Invariant: `sendable` holds exactly those of `get` that clients may send to. Only `put` and
    `delete` write them.
    """

    def __init__(
        self,
        settings: TopicSettings,
        *,
        now_ms: int = 0,
    ) -> None:
        self.settings = settings
        self.copied = False
        """Whether the topics of a master have come here, if there were none, too."""
        self.listeners: list[Callable[[Iterable[str]], None]] = []
        """Called with the names of topics that are new, changed or deleted."""
        self.rate = RateLimit()
        self.version = DataVersion(timestamp=now_ms)
        self.configs: dict[str, TopicConfig] = {}
        self.open_configs: dict[str, TopicConfig] = {}
        self.deleted = DeletedTopics(0, self.configs)
        self.settings_changed()
        self.extra: dict[str, Any] = {}
        self.kept = KeptFields()
        self.group_topics: set[str] = set()
        self._leaving: set[str] = set()
        self.get: Callable[[str], TopicConfig | None] = self.configs.get
        self.sendable: Callable[[str], TopicConfig | None] = self.open_configs.get
        for config in system_topics(settings):
            self.put(config)
        self.system: Final = frozenset(self.configs) | names.FORBIDDEN_TO_SEND | HIDDEN

    def settings_changed(self) -> None:
        """Take the limits from the settings."""
        settings = self.settings
        self.max_topics = settings.max_topics
        self.max_queues = settings.max_queues_of_topic
        self.deleted.limit = self.max_topics
        self.rate.allow(settings.auto_create_burst, settings.auto_create_rate)

    def put(self, config: TopicConfig) -> None:
        """Set one topic; the version is unchanged."""
        name = config.topic_name
        self.configs[name] = config
        if names.is_sendable(name):
            self.open_configs[name] = config
        if name.startswith(GROUP_PREFIXES):
            self.group_topics.add(name)

    def changed(self, config: TopicConfig, now_ms: int) -> None:
        """Set one topic, increment the version and call the listeners."""
        self.put(config)
        self._tell((config.topic_name,), now_ms)

    def touch(self, now_ms: int) -> None:
        """Increment the version: what others are to see of the topics has changed."""
        self.version = bumped(self.version, now_ms)

    def _tell(self, topics: Collection[str], now_ms: int) -> None:
        self.touch(now_ms)
        for listener in self.listeners:
            listener(topics)

    def is_known(self, topic: str) -> bool:
        """Whether the topic exists."""
        return topic in self.configs

    def is_system(self, topic: str) -> bool:
        """Whether `topic` belongs to the broker itself."""
        return topic in self.system or topic.startswith(OWN_TOPIC_PREFIX)

    def read_queues(self, topic: str) -> int:
        """How many of its queues are read, 0 for an unknown topic."""
        config = self.configs.get(topic)
        return 0 if config is None else config.read_queue_nums

    # ── Topics made by sending ──

    def for_send(
        self,
        topic: str,
        default_topic: str,
        default_topic_queue_nums: int,
        now_ms: int,
        *,
        unit_mode: bool = False,
    ) -> TopicConfig:
        """The topic of a send, created from its default topic if it is unknown.

        Raises: NameIllegal, NoPermission for a topic that is not for clients, TopicNotExist when it
        may not be created, LimitReached, TooFast.
        """
        names.check_topic(topic)
        names.check_sendable(topic)
        known = self.configs.get(topic)
        if known is not None:
            return known
        config = self.from_template(topic, default_topic, default_topic_queue_nums, unit_mode)
        if config is None:
            raise TopicNotExist(topic)
        self.check_room(topic)
        if not self.rate.take(now_ms):
            raise TooFast("topic", self.rate.per_s)
        self.changed(config, now_ms)
        return config

    def from_template(
        self, topic: str, default_topic: str, queue_nums: int, unit_mode: bool
    ) -> TopicConfig | None:
        """The config that a send may create, None if no rule allows it."""
        retry = topic.startswith(RETRY_PREFIX)
        sys_flag = (UNIT_SUB if retry else UNIT) if unit_mode else 0
        template = self.configs.get(default_topic)
        if default_topic == AUTO_CREATE_TOPIC and not self.settings.auto_create_topic_enable:
            template = None
        if template is not None and template.perm & PERM_INHERIT:
            queues = max(0, min(queue_nums, template.write_queue_nums, self.max_queues))
            return TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=template.perm & ~PERM_INHERIT,
                topic_filter_type=template.topic_filter_type,
                topic_sys_flag=sys_flag,
            )
        return internal_topic(topic, 1, sys_flag=sys_flag) if retry else None

    def for_group(
        self, group: str, queues: int, now_ms: int, *, order: bool = False, unit_mode: bool = False
    ) -> bool:
        """Create `%RETRY%group`, or set its order flag; whether anything changed.

        A group without retry queues gets no topic. Raises: LimitReached.
        """
        topic = names.retry_topic(group)
        known = self.configs.get(topic)
        if known is not None:
            if known.order == order:
                return False
            self.changed(msgspec.structs.replace(known, order=order), now_ms)
            return True
        if queues <= 0:
            return False
        self.check_room(topic)
        sys_flag = UNIT_SUB if unit_mode else 0
        config = internal_topic(topic, min(queues, self.max_queues), sys_flag=sys_flag)
        self.changed(msgspec.structs.replace(config, order=order), now_ms)
        return True

    def for_broker(
        self, topic: str, queues: int, now_ms: int, *, unit_mode: bool = False
    ) -> TopicConfig:
        """A topic of a group that the broker writes to, created if unknown. Raises:
        LimitReached.
        """
        known = self.configs.get(topic)
        if known is not None:
            return known
        self.check_room(topic)
        sys_flag = UNIT_SUB if unit_mode else 0
        config = internal_topic(topic, min(queues, self.max_queues), sys_flag=sys_flag)
        self.changed(config, now_ms)
        return config

    def for_pop(self, topic: str, now_ms: int) -> None:
        """Create the retry topic of popped messages. Raises: LimitReached."""
        if topic not in self.configs:
            self.check_room(topic)
            self.changed(internal_topic(topic, 1), now_ms)

    def mark_ordered(self, ordered: Iterable[str], now_ms: int) -> None:
        """Set the order flag of the named topics; unknown ones are ignored."""
        for topic in ordered:
            known = self.configs.get(topic)
            if known is not None and not known.order:
                self.changed(msgspec.structs.replace(known, order=True), now_ms)

    def adopt(self, topic: str, queues: int, now_ms: int) -> bool:
        """Add a topic whose messages are in the store but whose config was lost in a crash."""
        if topic in self.configs or names.topic_problem(topic, stored=True):
            return False
        self.changed(internal_topic(topic, max(1, queues)), now_ms)
        return True

    def check_group_room(self, groups: Iterable[str]) -> None:
        """Check that each of these can have its retry topic. Raises: LimitReached."""
        new = sum(names.retry_topic(group) not in self.configs for group in groups)
        if new and len(self.group_topics) + new > self.max_topics:
            raise LimitReached("topic", self.max_topics, UNUSED, key="maxTopics")

    def check_room(self, *topics: str) -> None:
        """Refuse topics that cannot all be created.

        Raises: LimitReached when they would be too many, Refusal while one of them is being
        deleted.

        Topics of groups have a limit of their own, so that many groups leave room for topics.
        """
        new = {topic for topic in topics if topic not in self.configs}
        for topic in new & self._leaving:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY, f"the topic[{topic}] is being deleted: try again"
            )
        new_of_groups = sum(topic.startswith(GROUP_PREFIXES) for topic in new)
        of_groups = len(self.group_topics)
        for there, more in (
            (of_groups, new_of_groups),
            (len(self.configs) - of_groups, len(new) - new_of_groups),
        ):
            if more and there + more > self.max_topics:
                raise LimitReached("topic", self.max_topics, UNUSED, key="maxTopics")

    # ── Topics made by people ──

    def update(self, wanted: TopicConfig, edits: Mapping[str, str], now_ms: int) -> bool:
        """Create or change a topic as an administrator asked; whether anything changed.

        `wanted.attributes` is ignored: `edits` (see `attributes.parse_edits`) change those
        that the topic has. Raises: NameIllegal, Refusal, AttributesIllegal, LimitReached.
        """
        known = self.configs.get(wanted.topic_name)
        return bool(self.put_all([self.edited(wanted, edits, known)], now_ms))

    def put_all(self, configs: Iterable[TopicConfig], now_ms: int) -> list[str]:
        """Set topics made by `edited`: returns the names that changed; changes nothing when it
        raises.

        Raises: LimitReached, Refusal.
        """
        changed = {
            config.topic_name: config
            for config in configs
            if config != self.configs.get(config.topic_name)
        }
        self.check_room(*changed)
        for config in changed.values():
            self.put(config)
        if changed:
            self._tell(tuple(changed), now_ms)
        return list(changed)

    def edited(
        self, wanted: TopicConfig, edits: Mapping[str, str], known: TopicConfig | None
    ) -> TopicConfig:
        """The new config of a topic that is `known` so. Raises: as `update`, but for the limit."""
        self.check_update(wanted, edits)
        current = known.attributes if known else {}
        return msgspec.structs.replace(
            wanted, attributes=attributes.edited(current, edits, creating=known is None)
        )

    def check_update(self, wanted: TopicConfig, edits: Mapping[str, str]) -> None:
        """The checks that do not depend on the present topic. Raises: NameIllegal, Refusal."""
        names.check_topic(wanted.topic_name)
        self.check_not_system(wanted.topic_name)
        check_ranges(wanted, self.max_queues)
        if wanted.topic_filter_type not in FILTER_TYPES:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"topicFilterType [{wanted.topic_filter_type}] is neither SINGLE_TAG nor MULTI_TAG",
            )
        if edits.get(f"+{MESSAGE_TYPE}") == "MIXED":
            raise Refusal(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")

    def check_not_system(self, topic: str) -> None:
        """Refuse a topic that clients may neither create nor delete. Raises: NameIllegal."""
        if self.settings.validate_system_topic_when_update_topic and self.is_system(topic):
            raise NameIllegal(f"The topic[{topic}] is conflict with system topic.")

    def delete(self, topic: str, now_ms: int, log_end: int) -> bool:
        """Remove a topic; whether it existed. Waiting messages before `log_end` go with it."""
        if topic not in self.configs:
            return False
        self._drop(topic, log_end)
        self._tell((topic,), now_ms)
        return True

    def _drop(self, topic: str, log_end: int) -> None:
        self.configs.pop(topic, None)
        self.deleted.add(topic, log_end)
        self.open_configs.pop(topic, None)
        self.group_topics.discard(topic)
        self.kept.drop(topic)

    @contextmanager
    def leaving(self, topics: frozenset[str]) -> Iterator[None]:
        """Block the creation of these topics meanwhile. Raises: Refusal if one is being deleted."""
        for topic in topics & self._leaving:
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"the topic[{topic}] is being deleted already")
        self._leaving |= topics
        try:
            yield
        finally:
            self._leaving -= topics

    # ── The topics of a master ──

    def copy(
        self,
        document: Mapping[str, Any],
        log_end: int,
        unnamed: Iterable[str] = (),
        *,
        complete: bool = True,
    ) -> list[str]:
        """Have the topics of a master, and its version: what it lacks goes, but for our own system
        topics. Returns the names of those that went; their waiting messages before `log_end` go
        with them. `unnamed` are topics that only have messages here, all of them before that. Where
        the table is not `complete`, nothing goes.

        No limit counts: it is the master's. Raises: ValueError for what is no table; nothing has
        changed then.
        """
        stored, configs, rejected = _topics_of(document, self.configs)
        version = version_of(document)
        there = (*self.configs, *unnamed) if complete else ()
        gone = [name for name in there if name not in configs and not self.is_system(name)]
        changed = []
        for name, config in configs.items():
            wanted = with_queues_in_range(name, config)
            if name not in rejected and wanted != self.configs.get(name):
                self.put(wanted)
                self.kept.drop(name)
                self.kept.put(name, unknown_fields(stored[name], FIELDS), wanted)
                changed.append(name)
        for name in gone:
            self._drop(name, log_end)
        self.version = version
        first, self.copied = not self.copied, True
        if changed or gone or first:
            for listener in self.listeners:
                listener([*changed, *gone])
        return gone

    # ── The file ──

    def load(self, document: Mapping[str, Any]) -> list[str]:
        """Merge a decoded `topics.json` over the built-in topics; returns the names left out.

        A name that cannot be a directory is left out. Unknown fields are kept and written again.
        Raises: ValueError when it is malformed; nothing has changed then.
        """
        stored, configs, rejected = _topics_of(document, self.configs)
        version = version_of(document)
        self.deleted.load(document)
        for name, config in configs.items():
            if name not in rejected:
                self.put(with_queues_in_range(name, config))
                self.kept.put(name, unknown_fields(stored[name], FIELDS), self.configs[name])
        self.version = version
        self.extra = unknown_fields(document, OUR_KEYS)
        return rejected

    def document(self) -> dict[str, Any]:
        """The content of `topics.json`, detached: it may be encoded in a thread."""
        return {
            **self.extra,
            "dataVersion": version_document(self.version),
            "topicConfigTable": self.kept.table(self.configs),
            **self.deleted.document(),
        }

    def with_attribute(self, key: str, value: str) -> list[str]:
        """Topics whose attribute `key` is `value`, sorted: used to refuse unsupported ones at the
        start.
        """
        return sorted(
            name for name, config in self.configs.items() if config.attributes.get(key) == value
        )


FIELDS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(TopicConfig))


def _topics_of(
    document: Mapping[str, Any], known: Container[str]
) -> tuple[dict[str, Any], dict[str, TopicConfig], list[str]]:
    """The entries of a table, the topics in them, and the names that cannot be directories.

    Raises: ValueError when it is malformed.
    """
    stored = mapping(document, "topicConfigTable")
    configs = {
        name: msgspec.convert({"topicName": name, **fields}, TopicConfig, strict=False)
        for name, fields in stored.items()
    }
    # A broker may be named like its host, dots included, and so is its topic.
    rejected = [
        name for name in configs if name not in known and names.topic_problem(name, stored=True)
    ]
    return stored, configs, rejected


HIDDEN: Final = frozenset({AUTO_CREATE_TOPIC, TRACE_TOPIC, CHECKPOINT_TOPIC})
"""System topics that exist only once something needs them."""


def internal_topic(
    name: str, queues: int, perm: int = READ_WRITE, *, sys_flag: int = 0
) -> TopicConfig:
    """A topic with as many read as write queues."""
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_sys_flag=sys_flag,
    )


def system_topics(settings: TopicSettings) -> list[TopicConfig]:
    """The topics that exist from the first start on. Source: semantics §4.2."""
    cluster = settings.broker_cluster_name
    broker = settings.broker_name
    all_bits = READ_WRITE | PERM_INHERIT
    cluster_perm = all_bits if settings.cluster_topic_enable else PERM_INHERIT
    broker_perm = all_bits if settings.broker_topic_enable else PERM_INHERIT
    topics = [
        internal_topic(SELF_TEST_TOPIC, 1),
        internal_topic(BENCHMARK_TOPIC, 1024),
        internal_topic(cluster, 16, cluster_perm),
        internal_topic(broker, 1, broker_perm),
        internal_topic(OFFSET_MOVED_TOPIC, 1),
        internal_topic(SCHEDULE_TOPIC, 18),
        internal_topic(f"{cluster}{REPLY_SUFFIX}", 1),
        internal_topic(HALF_TOPIC, 1),
        internal_topic(OP_TOPIC, 1),
        internal_topic(f"{REVIVE_LOG_PREFIX}{cluster}", settings.revive_queue_num),
        internal_topic(f"{MEMBERS_PREFIX}{broker}", 1, PERM_INHERIT),
        internal_topic(WHEEL_TOPIC, 1),
    ]
    if settings.auto_create_topic_enable:
        topics.append(
            internal_topic(AUTO_CREATE_TOPIC, settings.default_topic_queue_nums, all_bits)
        )
    if settings.trace_topic_enable:
        topics.append(internal_topic(settings.msg_trace_topic_name, 1))
    return topics
