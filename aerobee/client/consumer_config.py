"""The common options of pull and push consumers, validated."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from aerobee.allocation import Allocator, strategy
from aerobee.client.callables import check_function
from aerobee.client.config import ConsumeFrom
from aerobee.client.handling import Events, MessageModel
from aerobee.client.message import GROUP_MAX, check_name, check_topic
from aerobee.client.producer_config import TRACE_TOPIC
from aerobee.client.steps.offsets import epoch_ms
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.send_result import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The common options of pull and push consumers. Times in seconds."""

    group: str
    """The consumer group."""
    start_from: ConsumeFrom | datetime = ConsumeFrom.LAST
    """Where the group begins in a queue for which it has no committed offset."""
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
        if isinstance(self.start_from, datetime):
            epoch_ms(self.start_from)
        if not self.auto_commit_interval >= 1.0:
            raise ConfigurationError("auto_commit_interval is at least 1 second")
        if not 1 <= self.pull_batch <= 1024:
            raise ConfigurationError("pull_batch is 1 to 1024 messages")

    @property
    def events(self) -> Events:
        """The callbacks for assigned and revoked queues."""
        return Events(self.on_assigned, self.on_revoked)

    @property
    def broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.model is MessageModel.BROADCASTING
