"""A POP consumer's options, checked. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.client.config import ClientOptions, ConsumeFrom
from aerobee.client.message import GROUP_MAX, check_name, check_topic
from aerobee.client.producer_config import TRACE_TOPIC
from aerobee.errors import ConfigurationError

__all__ = ["PopConfig", "PopOptions", "check_invisible"]

INVISIBLE_MIN_S, INVISIBLE_MAX_S = 1.0, 86_400.0


class PopOptions(ClientOptions, total=False):
    """A POP consumer's keyword options: those of PopConfig, and of a client of its own."""

    invisible: float
    start_from: ConsumeFrom
    max_reconsume: int
    server_assignment: bool
    trace: bool
    trace_topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PopConfig:
    """A POP consumer's options, checked. Times in seconds."""

    group: str
    """The consumer group."""
    invisible: float = 60.0
    """How long the others do not see a message that was received: it comes again then."""
    start_from: ConsumeFrom = ConsumeFrom.LAST
    """Where a group begins that is new to a topic."""
    max_reconsume: int = -1
    """Tries after the first one, then `nack` makes a message a dead letter; −1 is 16."""
    server_assignment: bool = False
    """Whether to join the group and pop from what the broker assigns, instead of from all brokers.

    The group must be set to POP there for the topic (`mqadmin setConsumeMode`).
    """
    trace: bool = False
    """Whether RocketMQ's message trace is written, in the background; what is too much is lost."""
    trace_topic: str = TRACE_TOPIC
    """The topic of the trace."""

    def __post_init__(self) -> None:
        check_name("consumer group", self.group, GROUP_MAX)
        check_topic(self.trace_topic)
        check_invisible(self.invisible)


def check_invisible(seconds: float) -> None:
    """Refuse a time that brokers do not take. Raises: ConfigurationError."""
    if not INVISIBLE_MIN_S <= seconds <= INVISIBLE_MAX_S:
        raise ConfigurationError(
            f"invisible for {seconds:g} s: {INVISIBLE_MIN_S:g} to {INVISIBLE_MAX_S:g}"
        )
