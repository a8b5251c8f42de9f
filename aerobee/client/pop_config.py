"""The options of a POP consumer, validated. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.client.config import ClientOptions, ConsumeFrom
from aerobee.client.message import GROUP_MAX, check_name, check_topic
from aerobee.client.producer_config import TRACE_TOPIC
from aerobee.errors import ConfigurationError

INVISIBLE_MIN_S, INVISIBLE_MAX_S = 1.0, 86_400.0


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
        check_invisible(self.invisible)


def check_invisible(seconds: float) -> None:
    """Check that brokers accept an invisible time. Raises: ConfigurationError."""
    if not INVISIBLE_MIN_S <= seconds <= INVISIBLE_MAX_S:
        raise ConfigurationError(
            f"invisible for {seconds:g} s: {INVISIBLE_MIN_S:g} to {INVISIBLE_MAX_S:g}"
        )
