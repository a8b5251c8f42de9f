"""Resources of the 5.x clients → names of topics and groups, checked before anything is done.

The namespace of a resource counts for nothing, as in RocketMQ: names alone do. Source: grpc §2.2
(GrpcValidator).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.core.names import group_problem, is_sendable, topic_problem
from aerobee.broker.grpc.translation.refusal import RpcRefused, quoted
from aerobee.remoting.grpc.enums import Code
from aerobee.store.format.system_names import (
    AUTO_CREATE_TOPIC,
    DLQ_PREFIX,
    OWN_TOPIC_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    TOPIC_PREFIX,
)

if TYPE_CHECKING:
    from aerobee.remoting.wire.bodies.topic import TopicConfig

NAMES_KEPT: Final = 4_096
"""Names whose check is remembered: most calls name the same few."""
NAMESPACE_CHARS_MAX: Final = 255
"""The resource is in the answer for each queue, as it came."""
GROUP_TOPICS: Final = (RETRY_PREFIX, DLQ_PREFIX)
"""Topics that belong to a group."""


def topic_of(resource: Any) -> str:
    """The topic that a resource names. Raises: RpcRefused."""
    name: str = resource.name
    if len(resource.resource_namespace) > NAMESPACE_CHARS_MAX:
        raise RpcRefused(
            Code.ILLEGAL_TOPIC,
            f"namespace of {len(resource.resource_namespace)} characters,"
            f" {NAMESPACE_CHARS_MAX} are taken",
        )
    if problem := _topic_problem(name):
        raise RpcRefused(Code.ILLEGAL_TOPIC, problem)
    return name


def group_of(resource: Any) -> str:
    """The consumer group that a resource names. Raises: RpcRefused."""
    name: str = resource.name
    if problem := _group_problem(name):
        raise RpcRefused(Code.ILLEGAL_CONSUMER_GROUP, problem)
    return name


@lru_cache(maxsize=NAMES_KEPT)
def _topic_problem(name: str) -> str | None:
    problem = topic_problem(name)
    if problem is None and is_internal(name):
        return f"cannot access system topic {quoted(name)}"
    return problem


@lru_cache(maxsize=NAMES_KEPT)
def _group_problem(name: str) -> str | None:
    problem = group_problem(name)
    if problem is None and name.startswith(SYSTEM_GROUP_PREFIX):
        return f"cannot access system consumer group {quoted(name)}"
    return problem


def is_internal(topic: str) -> bool:
    """Whether a topic is one of those that RocketMQ makes for itself."""
    own = topic.startswith((TOPIC_PREFIX, OWN_TOPIC_PREFIX))
    return own or topic == AUTO_CREATE_TOPIC or not is_sendable(topic)


def found(name: str, config: TopicConfig | None) -> TopicConfig:
    """The configuration of a topic. Raises: RpcRefused when there is none."""
    if config is None:
        raise RpcRefused(
            Code.TOPIC_NOT_FOUND,
            f"CODE: 17  DESC: No topic route info in name server for the topic: {name}."
            " Create it first: the 5.x clients create none, since it needs a message type",
            topic=name,
        )
    return config
