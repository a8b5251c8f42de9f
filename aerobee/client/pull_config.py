"""The options of a pull consumer, validated and separated from its client's. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from aerobee.client.config import ClientOptions, ConsumeFrom, divided
from aerobee.client.consumer_config import ConsumerConfig
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aerobee.allocation import Allocator
    from aerobee.client.handling import MessageModel
    from aerobee.client.send_result import MessageQueue


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
        if self.retry and self.broadcasting:
            raise ConfigurationError("retry: in broadcasting nothing is sent back")


def pull_config(group: str, options: PullOptions) -> tuple[PullConfig, ClientOptions]:
    """The options of a pull consumer and those of its client. Raises: ConfigurationError."""
    own, rest = divided(options, PullConfig)
    return PullConfig(group=group, **own), cast("ClientOptions", rest)
