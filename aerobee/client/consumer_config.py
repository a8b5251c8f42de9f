"""What the options of pull and push consumers have in common, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from aerobee.allocation import Allocator, strategy
from aerobee.client.config import ConsumeFrom
from aerobee.client.handling import Events, MessageModel
from aerobee.client.message import GROUP_MAX, check_name, check_topic
from aerobee.client.producer_config import TRACE_TOPIC
from aerobee.client.steps.offsets import epoch_ms
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.message import MessageQueue

__all__ = ["ConsumerConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """What the options of pull and push consumers have in common. Times in seconds."""

    group: str
    """The consumer group."""
    start_from: ConsumeFrom | datetime = ConsumeFrom.LAST
    """Where the group begins in a queue for which it has no offset yet."""
    auto_commit: bool = True
    """Offsets are stored every `auto_commit_interval`, with a queue that goes, and at the end."""
    auto_commit_interval: float = 5.0
    """Between two stores of the offsets."""
    pull_batch: int = 10
    """Most messages asked for at once."""
    strategy: str | Allocator = "AVG"
    """How the members share the queues, see `aerobee.allocation`; all must have the same."""
    trace: bool = False
    """Whether RocketMQ's message trace is written, in the background; what is too much is lost."""
    trace_topic: str = TRACE_TOPIC
    """The topic of the trace."""
    model: MessageModel = MessageModel.CLUSTERING
    """Whether one member of the group gets a message, or each."""
    offset_dir: str | None = None
    """Where a broadcasting group has its offsets; None is `~/.rocketmq_offsets`, as Java's clients.

    Each process of a machine then needs an `instance_name` of its own.
    """
    on_assigned: Callable[[frozenset[MessageQueue]], object] | None = None
    """Called with the queues that came."""
    on_revoked: Callable[[frozenset[MessageQueue]], object] | None = None
    """Called with the queues that went."""

    def __post_init__(self) -> None:
        check_name("consumer group", self.group, GROUP_MAX)
        if self.broadcasting:
            # Every member has all queues, however others would be shared.
            object.__setattr__(self, "strategy", "AVG")
        strategy(self.strategy)
        check_topic(self.trace_topic)
        if isinstance(self.start_from, datetime):
            epoch_ms(self.start_from)
        if not self.auto_commit_interval >= 1.0:
            raise ConfigurationError("auto_commit_interval is at least 1 second")
        if not 1 <= self.pull_batch <= 1024:
            raise ConfigurationError("pull_batch is 1 to 1024 messages")

    @property
    def events(self) -> Events:
        """Whom to tell of queues that came and went."""
        return Events(self.on_assigned, self.on_revoked)

    @property
    def broadcasting(self) -> bool:
        """Whether each member gets every message."""
        return self.model is MessageModel.BROADCASTING
