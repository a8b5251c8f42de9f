"""The options of consumers, checked once: common ones, and those of pull, push and POP consumers.

Times in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from numbers import Integral
from typing import TYPE_CHECKING, cast

from aerobee.allocation import Allocator, strategy
from aerobee.client.callables import check_function
from aerobee.client.handling import Events, MessageModel
from aerobee.client.message import GROUP_MAX, check_name, check_topic
from aerobee.client.settings.client import (
    ClientOptions,
    ConsumeFrom,
    check_kind,
    divided,
    epoch_ms,
)
from aerobee.errors import ConfigurationError
from aerobee.store.format.system_names import TRACE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.send_result import MessageQueue

BATCH_MAX = 1024
CONCURRENCY_MAX = 1000
RECONSUME_MAX = 1 << 30
SERVER_STRATEGIES = ("AVG", "AVG_BY_CIRCLE")
SUSPEND_MIN_S, SUSPEND_MAX_S = 0.01, 30.0
INVISIBLE_MIN_S, INVISIBLE_MAX_S = 1.0, 86_400.0

CACHED_MESSAGES_MAX = 1000
"""The most messages of a queue that are pulled and not yet delivered."""
CACHED_BYTES_MAX = 100 << 20
"""The most bytes that are pulled and not yet delivered, of all queues of a consumer together."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of pulling ahead: messages of one queue, bytes of all queues together."""

    max_messages: int = CACHED_MESSAGES_MAX
    max_bytes: int = CACHED_BYTES_MAX
    max_span: int | None = None
    """The most offsets from the first unfinished to the last pulled one; None for no limit."""


PULL_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The common options of pull and push consumers. Times in seconds."""

    group: str
    """The consumer group."""
    start_from: ConsumeFrom | datetime = ConsumeFrom.LAST
    """Where the group begins in a queue for which it has no committed offset.

    A time is the first message stored then or later. `LAST` is the end of the queue, but the begin
    of one so young that its first message is in the broker's memory.
    """
    auto_commit: bool = True
    """Whether offsets are committed: every `auto_commit_interval`, on revocation and at the end."""
    auto_commit_interval: float = 5.0
    """The period in which offsets are committed."""
    pull_batch: int = 10
    """The most messages of one pull."""
    strategy: str | Allocator = "AVG"
    """How the members share the queues, see `aerobee.allocation`; all members must use the same."""
    trace: bool = False
    """Whether RocketMQ's message trace is written, in the background; overload may lose some."""
    trace_topic: str = TRACE_TOPIC
    """The topic of the trace."""
    model: MessageModel = MessageModel.CLUSTERING
    """Whether one member of the group gets a message, or all members."""
    offset_dir: str | None = None
    """The directory of a broadcasting group's offsets; None is `~/.rocketmq_offsets`, as in Java.

    Each process of a machine then needs an `instance_name` of its own.
    """
    on_assigned: Callable[[frozenset[MessageQueue]], object] | None = None
    """Called with newly assigned queues."""
    on_revoked: Callable[[frozenset[MessageQueue]], object] | None = None
    """Called with revoked queues."""

    def __post_init__(self) -> None:
        check_name("consumer group", self.group, GROUP_MAX)
        if self.broadcasting:
            # Every broadcasting member has all queues, whatever the strategy.
            object.__setattr__(self, "strategy", "AVG")
        check_function("strategy", strategy(self.strategy))
        for name, callback in (("on_assigned", self.on_assigned), ("on_revoked", self.on_revoked)):
            if callback is not None:
                check_function(name, callback)
        check_topic(self.trace_topic)
        check_kind("start_from", self.start_from, ConsumeFrom, datetime)
        check_kind("model", self.model, MessageModel)
        if isinstance(self.start_from, datetime):
            epoch_ms(self.start_from)
        if not self.auto_commit_interval >= 1.0:
            raise ConfigurationError("auto_commit_interval is at least 1 second")
        whole("pull_batch", self.pull_batch, 1, 1024)

    @property
    def events(self) -> Events:
        """The callbacks for assigned and revoked queues."""
        return Events(self.on_assigned, self.on_revoked)

    @property
    def broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.model is MessageModel.BROADCASTING


# ── Pull consumers ──


class PullOptions(ClientOptions, total=False):
    """The keyword options of a pull consumer: those of PullConfig, and of its own client."""

    start_from: ConsumeFrom | datetime
    model: MessageModel
    offset_dir: str
    auto_commit: bool
    auto_commit_interval: float
    pull_batch: int
    retry: bool
    max_reconsume: int
    finish_early: bool
    strategy: str | Allocator
    trace: bool
    trace_topic: str
    on_assigned: Callable[[frozenset[MessageQueue]], object]
    on_revoked: Callable[[frozenset[MessageQueue]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConfig(ConsumerConfig):
    """The options of a pull consumer, validated. Times in seconds."""

    retry: bool = False
    """Whether `nack` is allowed, and the retry topic consumed; all members must use the same."""
    max_reconsume: int = -1
    """The most tries after the first; then a message becomes a dead letter; −1 is 16."""
    finish_early: bool = False
    """Whether a loop finishes a message when it returns it, not when it asks for the next one."""

    def __post_init__(self) -> None:
        ConsumerConfig.__post_init__(self)
        whole("max_reconsume", self.max_reconsume, -1, RECONSUME_MAX)
        if self.retry and self.broadcasting:
            raise ConfigurationError("retry: in broadcasting nothing is sent back")


def pull_config(group: str, options: PullOptions) -> tuple[PullConfig, ClientOptions]:
    """The options of a pull consumer and those of its client. Raises: ConfigurationError."""
    own, rest = divided(options, PullConfig)
    return PullConfig(group=group, **own), cast("ClientOptions", rest)


# ── Push consumers ──


class PushOptions(ClientOptions, total=False):
    """The keyword options of a push consumer: those of PushConfig, and of its own client."""

    start_from: ConsumeFrom | datetime
    model: MessageModel
    orderly: bool
    concurrency: int
    batch_size: int
    pull_batch: int
    max_reconsume: int
    handler_timeout: float
    suspend: float
    max_cached_messages: int
    max_cached_bytes: int
    max_span: int
    drain_timeout: float
    commit_interval: float
    offset_dir: str
    on_assigned: Callable[[frozenset[MessageQueue]], object]
    on_revoked: Callable[[frozenset[MessageQueue]], object]
    strategy: str | Allocator
    server_assignment: bool
    invisible: float
    trace: bool
    trace_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig(ConsumerConfig):
    """The options of a push consumer, validated. Times in seconds."""

    orderly: bool = False
    """Whether each queue has one handler at a time, in the order of the queue."""
    concurrency: int = 20
    """The most handlers that run at once."""
    batch_size: int = 1
    """The most messages of one handler call."""
    pull_batch: int = 32
    """The most messages of one pull."""
    max_reconsume: int = -1
    """The most tries after the first; then a message becomes a dead letter; −1: 16, or without a
    limit if orderly."""
    handler_timeout: float = 900.0
    """The timeout of a handler; after it, its messages are delivered again."""
    suspend: float = 1.0
    """The pause before another try, if orderly."""
    max_cached_messages: int = 1000
    """The most messages pulled ahead of the handlers, for each queue."""
    max_cached_bytes: int = 100 << 20
    """The most bytes pulled ahead of the handlers, of all queues together."""
    max_span: int = 2000
    """The most offsets between the oldest unfinished message and the next pull."""
    drain_timeout: float = 30.0
    """How long closing waits for running handlers."""
    commit_interval: float = 5.0
    """The period in which offsets are committed."""
    server_assignment: bool = False
    """Whether the broker assigns the queues, to be pulled or popped by its mode for the group."""
    invisible: float = 60.0
    """How long a popped message is invisible to others, until it is delivered again."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "auto_commit_interval", self.commit_interval)
        ConsumerConfig.__post_init__(self)
        whole("concurrency", self.concurrency, 1, CONCURRENCY_MAX)
        whole("batch_size", self.batch_size, 1, BATCH_MAX)
        whole("max_reconsume", self.max_reconsume, -1, RECONSUME_MAX)
        whole("max_cached_messages", self.max_cached_messages, 1, 65_535)
        whole("max_cached_bytes", self.max_cached_bytes, 1, 1 << 40)
        whole("max_span", self.max_span, 1, 65_535)
        within("suspend", self.suspend, SUSPEND_MIN_S, SUSPEND_MAX_S)
        within("handler_timeout", self.handler_timeout, 0.1, float("inf"))
        within("drain_timeout", self.drain_timeout, 0.0, float("inf"))
        check_invisible(self.invisible)
        if self.server_assignment:
            self._check_assignable()

    def _check_assignable(self) -> None:
        """Check that brokers can assign such a consumer its queues. Raises: ConfigurationError."""
        if self.orderly or self.broadcasting:
            raise ConfigurationError(
                "server_assignment: in order and broadcasting, the members share queues themselves"
            )
        if self.strategy not in SERVER_STRATEGIES:
            known = " and ".join(SERVER_STRATEGIES)
            raise ConfigurationError(f"server_assignment: brokers share queues out by {known}")
        if not isinstance(self.start_from, ConsumeFrom):
            raise ConfigurationError("server_assignment: start_from is FIRST or LAST, not a time")

    @property
    def limits(self) -> Limits:
        """The limits of pulling ahead of the handlers."""
        # If orderly, the first unfinished message is the running one, so no span can build up.
        span = None if self.orderly else self.max_span
        return Limits(self.max_cached_messages, self.max_cached_bytes, span)


def within(name: str, value: float, least: float, most: float) -> None:
    """Check that a number is in its range. Raises: ConfigurationError."""
    if not least <= value <= most:
        raise ConfigurationError(f"{name} is {value:g}: {least:g} to {most:g}")


def whole(name: str, value: int, least: int, most: int) -> None:
    """Check that a whole number is in its range: brokers in Java refuse each request with 16.0.

    Raises: ConfigurationError.
    """
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ConfigurationError(f"{name} is {value!r}: a whole number, {least} to {most}")
    within(name, value, least, most)


def push_config(group: str, options: PushOptions) -> tuple[PushConfig, ClientOptions]:
    """The options of a push consumer and those of its client. Raises: ConfigurationError."""
    own, rest = divided(options, PushConfig)
    return PushConfig(group=group, **own), cast("ClientOptions", rest)


# ── POP consumers ──


class PopOptions(ClientOptions, total=False):
    """The keyword options of a POP consumer: those of PopConfig, and of its own client."""

    invisible: float
    start_from: ConsumeFrom
    max_reconsume: int
    server_assignment: bool
    trace: bool
    trace_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PopConfig:
    """The options of a POP consumer, validated. Times in seconds."""

    group: str
    """The consumer group."""
    invisible: float = 60.0
    """How long a received message is invisible to others, until it is delivered again."""
    start_from: ConsumeFrom = ConsumeFrom.LAST
    """Where a group that is new to a topic begins."""
    max_reconsume: int = -1
    """The most tries after the first; then `nack` makes a message a dead letter; −1 is 16."""
    server_assignment: bool = False
    """Whether to join the group and pop from queues that the broker assigns, not from all brokers.

    The group must be set to POP for the topic on the broker (`mqadmin setConsumeMode`).
    """
    trace: bool = False
    """Whether RocketMQ's message trace is written, in the background; overload may lose some."""
    trace_topic: str = TRACE_TOPIC
    """The topic of the trace."""

    def __post_init__(self) -> None:
        check_name("consumer group", self.group, GROUP_MAX)
        check_topic(self.trace_topic)
        check_kind("start_from", self.start_from, ConsumeFrom)
        check_invisible(self.invisible)
        whole("max_reconsume", self.max_reconsume, -1, RECONSUME_MAX)


def check_invisible(seconds: float) -> None:
    """Check that brokers accept an invisible time. Raises: ConfigurationError."""
    if not INVISIBLE_MIN_S <= seconds <= INVISIBLE_MAX_S:
        raise ConfigurationError(
            f"invisible for {seconds:g} s: {INVISIBLE_MIN_S:g} to {INVISIBLE_MAX_S:g}"
        )
