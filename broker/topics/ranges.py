"""The ranges of the numbers of a topic: those that are asked for, and those that a file has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from aerobee.broker.errors import Refusal
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from aerobee.remoting.wire.bodies.topic import TopicConfig

PERM_MAX: Final = 7
"""Read, write and inherit."""
SYS_FLAG_MAX: Final = 3
"""Unit, and unit subscription."""
STORED_QUEUES_MAX: Final = 32_768
"""Of a topic that a file has; many requests walk over all of them."""


class TopicLimits(Protocol):
    """The settings that limit topics and their creation by use."""

    @property
    def max_topics(self) -> int: ...
    @property
    def max_queues_of_topic(self) -> int: ...
    @property
    def auto_create_burst(self) -> int: ...
    @property
    def auto_create_rate(self) -> int: ...


def check_ranges(wanted: TopicConfig, max_queues: int) -> None:
    """Refuse numbers that are out of range. Raises: Refusal."""
    for queues in (wanted.read_queue_nums, wanted.write_queue_nums):
        if not 0 <= queues <= max_queues:
            raise invalid(f"a topic has 0 to {max_queues} queues (maxQueuesOfTopic), not {queues}")
    for name, bits, most in (
        ("perm", wanted.perm, PERM_MAX),
        ("topicSysFlag", wanted.topic_sys_flag, SYS_FLAG_MAX),
    ):
        if not 0 <= bits <= most:
            raise invalid(f"{name} is 0 to {most}, not {bits}")


def invalid(remark: str) -> Refusal:
    """A number that is not taken."""
    return Refusal(ResponseCode.INVALID_PARAMETER, remark)


def with_queues_in_range(name: str, config: TopicConfig) -> TopicConfig:
    """A topic as a file has it, with no more queues than anybody can walk over."""
    return msgspec.structs.replace(
        config,
        topic_name=name,
        read_queue_nums=max(0, min(config.read_queue_nums, STORED_QUEUES_MAX)),
        write_queue_nums=max(0, min(config.write_queue_nums, STORED_QUEUES_MAX)),
    )
