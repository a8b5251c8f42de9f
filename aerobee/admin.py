"""The results of an admin client: topics, groups, brokers and their progress, as plain values.

Instants are aware datetimes; None means that the broker does not know the value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from aerobee.remoting.wire.bodies.topic import MAX_BYTES, MAX_RATE, MESSAGE_TYPE
from aerobee.whole_number import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from aerobee.client.send_result import MessageQueue

__all__ = [
    "AclEntry",
    "BrokerInfo",
    "ClientConnection",
    "ClusterInfo",
    "ConsumeTimeSpan",
    "ConsumerConnections",
    "ConsumerLag",
    "DirectResult",
    "GroupConfig",
    "GroupDescription",
    "GroupSubscription",
    "LagHistory",
    "LagSample",
    "LostBroker",
    "MessageType",
    "NewMaster",
    "OffsetChange",
    "PoppedQueue",
    "QueueBounds",
    "QueueLag",
    "QueueUnit",
    "QueueUnits",
    "ReplicaInfo",
    "ReplicationStatus",
    "RequestMode",
    "RoleSwitch",
    "RunningInfo",
    "RunningQueue",
    "RunningTopic",
    "StatsItem",
    "StatsWindow",
    "TopicConfig",
    "TopicDescription",
    "User",
]


# ── Topics ──


class MessageType(Enum):
    """The message type of a topic, as brokers since 5.0 store it; a setting makes them check it."""

    UNSPECIFIED = "UNSPECIFIED"
    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    PRIORITY = "PRIORITY"
    MIXED = "MIXED"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic's settings on one broker. `perm`: 4 read + 2 write."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def message_type(self) -> MessageType | None:
        """The message type, if the broker stores one."""
        kind = self.attributes.get(MESSAGE_TYPE, "")
        return MessageType[kind] if kind in MessageType.__members__ else None

    @property
    def max_messages_per_s(self) -> int:
        """How many messages clients may send in a second; 0: no limit."""
        return whole_number(self.attributes.get(MAX_RATE, "")) or 0

    @property
    def max_bytes_per_s(self) -> int:
        """How many bytes of bodies clients may send in a second; 0: no limit."""
        return whole_number(self.attributes.get(MAX_BYTES, "")) or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBounds:
    """One queue: the offset of its first and of its next message, and the time of the last one."""

    queue: MessageQueue
    first: int
    end: int
    last_stored_at: datetime | None

    @property
    def messages(self) -> int:
        """The number of messages that can be read."""
        return max(0, self.end - self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic: its settings on each broker, its queues, and the groups that consume it."""

    name: str
    configs: Sequence[TopicConfig]
    queues: Sequence[QueueBounds]
    groups: Sequence[str]
    left_out: Sequence[str] = ()
    """Brokers of it that were not asked: see `AdminClient.leave_out`."""

    @property
    def messages(self) -> int:
        """The number of messages that can be read, over all queues."""
        return sum(queue.messages for queue in self.queues)

    def hidden_by(self, queues: int) -> int:
        """How many messages consumers could not reach with so many queues on each broker."""
        return sum(queue.messages for queue in self.queues if queue.queue.queue_id >= queues)


# ── Groups ──


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings of a consumer group.

    A message that fails is tried `retry_max` times again, then it becomes a dead letter.
    """

    name: str
    retry_max: int = 16
    retry_queues: int = 1
    enabled: bool = True
    broadcast: bool = True
    orderly: bool = False
    consume_timeout_minutes: int = 15
    max_messages_per_s: int | None = None
    """How many messages each broker gives the members in a second; None: no limit, or whatever it
    is where the group is created, and 0 then removes it."""
    max_bytes_per_s: int | None = None
    """How many bytes of records each broker gives the members in a second."""
    priority_factor: int | None = None
    """How many of a hundred pops read the highest priority of a topic first; None: all of them, or
    whatever it is where the group is created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSubscription:
    """One topic of a group's subscription, with its filter expression."""

    topic: str
    expression: str
    expression_type: str = "TAG"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnection:
    """One connected client. `version` is RocketMQ's name for it, such as V5_3_3."""

    client_id: str
    address: str
    language: str
    version: str
    broker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConnections:
    """The members of a consumer group and their shared settings; empty while none is online."""

    group: str
    members: Sequence[ClientConnection] = ()
    consume_type: str = ""
    message_model: str = ""
    consume_from: str = ""
    subscriptions: Sequence[GroupSubscription] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A consumer group: its settings on each broker that has them, its members, its topics."""

    name: str
    configs: Mapping[str, GroupConfig]
    connections: ConsumerConnections
    topics: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """The progress of a group in one queue.

    `consumer_offset` is the next message to consume; `lag` messages follow from there, of which the
    group has pulled `in_flight`. `last_consumed_at` is the store time of the last one consumed.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    in_flight: int | None
    last_consumed_at: datetime | None

    @property
    def lag(self) -> int:
        """Messages not consumed yet: none where the log was cut in front of the offset."""
        return max(0, self.broker_offset - self.consumer_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLag:
    """The progress of a group, queue by queue."""

    group: str
    queues: Sequence[QueueLag]
    consume_tps: float = 0.0

    @property
    def total(self) -> int:
        """Messages not consumed yet, over all queues."""
        return sum(queue.lag for queue in self.queues)

    @property
    def topics(self) -> Sequence[str]:
        """The topics of the queues, sorted."""
        return sorted({queue.queue.topic for queue in self.queues})


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSample:
    """The lag of a group in a topic at one broker, in messages, as it was at `at`."""

    topic: str
    broker: str
    at: datetime
    lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LagHistory:
    """The lag of a group over the last hour, by topic and broker, the oldest sample first.

    A broker takes a sample every ten minutes from its start on. `without` are the brokers that keep
    no history, such as Java's.
    """

    group: str
    samples: Sequence[LagSample]
    without: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeTimeSpan:
    """The progress of a group in one queue, as store times.

    `first_at` and `last_at` are those of the first and the last message of the queue, `consumed_at`
    of the last message consumed; without one, of the first. `waiting_s` seconds have passed since
    the next message to consume was stored; 0 if there is none, and on Java's brokers while the
    group has no offset.
    """

    queue: MessageQueue
    first_at: datetime | None
    last_at: datetime | None
    consumed_at: datetime | None
    waiting_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUnit:
    """One unit of a consume queue: the place and size of a message in the commit log.

    `tags_code` is Java's hash of the tag, 0 without one; `matches` is whether the subscription of
    the group accepts that code: true without one, None if it is no subscription by tags.
    """

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    matches: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUnits:
    """Units of a consume queue, and the offsets of its first and of its next message."""

    queue: MessageQueue
    first: int
    end: int
    units: Sequence[QueueUnit]
    subscription: GroupSubscription | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange:
    """A change of a group's offset in one queue: the old one (None without one) and the new one."""

    queue: MessageQueue
    before: int | None
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMode:
    """Whether a group pulls or pops a topic whose queues the broker assigns: PULL or POP.

    `share` is the number of further members that work on a queue; 0 is all members on all queues.
    """

    broker: str
    topic: str
    group: str
    mode: str
    share: int


# ── Running consumers ──


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningQueue:
    """One queue inside a running consumer.

    The cached messages are between `cached_first` and `cached_last`, which are both 0 without any.
    """

    queue: MessageQueue
    commit_offset: int
    cached_messages: int
    cached_mib: int
    locked: bool
    dropped: bool
    last_pulled_at: datetime | None
    last_consumed_at: datetime | None
    last_locked_at: datetime | None = None
    cached_first: int = 0
    cached_last: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoppedQueue:
    """One queue that a running consumer pops from; queue id −1 stands for all of a topic.

    `waiting_acks` messages are popped and not acknowledged.
    """

    queue: MessageQueue
    waiting_acks: int
    dropped: bool
    last_popped_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTopic:
    """One topic inside a running consumer: rates per second, and durations in ms."""

    topic: str
    pull_tps: float
    pull_ms: float
    consume_ok_tps: float
    consume_failed_tps: float
    consume_ms: float
    failed_last_hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningInfo:
    """The state that a running consumer reports. `stacks` only if requested."""

    group: str
    client_id: str
    properties: Mapping[str, str]
    subscriptions: Sequence[GroupSubscription]
    queues: Sequence[RunningQueue]
    topics: Sequence[RunningTopic]
    stacks: str | None
    popped: Sequence[PoppedQueue] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectResult:
    """The result of a member's handler for one message that was sent to it directly.

    `result` is CR_SUCCESS, CR_LATER or CR_THROW_EXCEPTION; `remark` is the exception.
    """

    client_id: str
    result: str
    remark: str | None
    took_ms: int

    @property
    def succeeded(self) -> bool:
        """Whether the handler succeeded."""
        return self.result in ("CR_SUCCESS", "CR_COMMIT")


# ── Brokers ──


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """One registered broker address; id 0 is the master."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        """Whether the broker accepts messages."""
        return self.broker_id == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LostBroker(BrokerInfo):
    """A broker that is registered no more and did not unregister; `silent_s` since it was heard."""

    silent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """All registered brokers, sorted by cluster, name and id.

    `lost` are those that left without unregistering, within a day, as far as the name server tells:
    RocketMQ's does not.
    """

    brokers: Sequence[BrokerInfo]
    lost: Sequence[LostBroker] = ()

    @property
    def clusters(self) -> Sequence[str]:
        """The names of the clusters."""
        return sorted({broker.cluster for broker in self.brokers})

    @property
    def missing_masters(self) -> Sequence[BrokerInfo]:
        """The masters of those brokers of which only slaves are registered, as while a group has
        none: they have no address.
        """
        led = {(broker.cluster, broker.name) for broker in self.brokers if broker.is_master}
        there = {(broker.cluster, broker.name) for broker in self.brokers}
        return [
            BrokerInfo(cluster=cluster, name=name, broker_id=0, address="")
            for cluster, name in sorted(there - led)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """A connection of a slave, as its master sees it."""

    peer: str
    """Host and port of the connection, not of the slave's listenPort."""
    acknowledged: int
    """The end of the log that it has."""
    lag: int
    """Bytes that it has not."""
    in_sync: bool
    lag_s: float | None = None
    """How long ago it had everything; None from a Java master, which does not tell."""
    standing: str = ""
    """silent, follows, ahead or deleted; empty from a Java master."""

    @property
    def host(self) -> str:
        """The address without the port."""
        return self.peer.rpartition(":")[0].strip("[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationStatus:
    """The report of one broker about the replication of its log."""

    is_master: bool
    max_offset: int
    """The end of its log."""
    replicas: Sequence[ReplicaInfo] = ()
    """The slaves that are connected to it."""
    master_address: str = ""
    """The haListenPort that a slave follows; empty on a master."""
    state: str = ""
    """Of a slave: searching, unreachable, following, stuck or diverged; Java's tells only whether
    it is connected."""
    problem: str = ""
    """Why a slave does not follow; empty while it does."""
    epoch: int | None = None
    """The number of the latest change of the master that it knows of; None of a Java broker."""
    shadow: bool = False
    """Whether it is a copy that no master counts."""
    member: int | None = None
    """Its number in a group that decides on its master by itself."""
    sync_set: Sequence[int] = ()
    """The members of that group that have every acknowledged message, as this one knows them."""
    unclean_epoch: int = 0
    """The last epoch of the group whose master was not one of them: messages were lost then."""
    damage: str = ""
    """Where the log of that member cannot be read: it does not become the master. Empty: no damage
    is known."""
    read_to: int = 0
    """So far its log is read through by the present pass, in bytes of the log."""
    passes: int = 0
    """So often all of its log was read through since its start, without damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMaster:
    """The master that a slave follows by a command, and how the two logs differ."""

    epoch: int
    """The number of the latest change of the master there; −1 of a Java broker."""
    max_offset: int
    """The end of the slave's log."""
    common_offset: int
    """The end of what both logs have; −1: nothing that could be compared is the same."""
    messages: int
    """So many messages of the slave are behind that."""
    size_bytes: int
    """Their size."""
    kept_in: str = ""
    """The directory of the slave that has what is cut; its next start ends the cut."""
    refused: str = ""
    """Why it would not follow; of a dry run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSwitch:
    """A planned exchange of the roles of a master and a slave."""

    max_offset: int
    """The end of the log at that moment."""
    epoch: int
    """The number of this change of the master."""
    paused_s: float
    """For how long sends were refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsWindow:
    """A counter over a period: its increase, per second, and per message."""

    total: int
    per_second: float
    average: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsItem:
    """One statistic of a broker over the last minute, hour and day."""

    name: str
    key: str
    minute: StatsWindow
    hour: StatsWindow
    day: StatsWindow


# ── Users ──


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user on one broker, as far as brokers tell: never the secret."""

    broker: str
    name: str
    is_super: bool = False
    """Whether the user may do everything."""
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEntry:
    """The actions of a user that are allowed or denied on one resource of one broker."""

    broker: str
    user: str
    resource: str
    """`Topic:name`, `Group:name`, `Cluster:name`, with an asterisk at the end for a prefix; or
    `*`.
    """
    actions: Sequence[str]
    """Of All, Pub, Sub, Create, Update, Delete, Get, List."""
    allow: bool = True
    sources: Sequence[str] = ()
    """Addresses and networks for which it counts; none: all."""
    policy: str = "Custom"
    """Custom, or Default, which is asked when no entry of Custom matches."""
