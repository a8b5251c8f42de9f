"""The options of a push consumer, validated and separated from its client's. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from aerobee.client.config import ClientOptions, ConsumeFrom, divided
from aerobee.client.consumer_config import ConsumerConfig
from aerobee.client.pop_config import check_invisible
from aerobee.client.steps.held_queue import Limits
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aerobee.allocation import Allocator
    from aerobee.client.handling import MessageModel
    from aerobee.client.send_result import MessageQueue

BATCH_MAX = 1024
CONCURRENCY_MAX = 1000
SERVER_STRATEGIES = ("AVG", "AVG_BY_CIRCLE")
SUSPEND_MIN_S, SUSPEND_MAX_S = 0.01, 30.0


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
    """The same limit in bytes, for all queues together."""
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
        within("concurrency", self.concurrency, 1, CONCURRENCY_MAX)
        within("batch_size", self.batch_size, 1, BATCH_MAX)
        within("max_reconsume", self.max_reconsume, -1, 1 << 30)
        within("max_cached_messages", self.max_cached_messages, 1, 65_535)
        within("max_cached_bytes", self.max_cached_bytes, 1, 1 << 40)
        within("max_span", self.max_span, 1, 65_535)
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


def push_config(group: str, options: PushOptions) -> tuple[PushConfig, ClientOptions]:
    """The options of a push consumer and those of its client. Raises: ConfigurationError."""
    own, rest = divided(options, PushConfig)
    return PushConfig(group=group, **own), cast("ClientOptions", rest)
