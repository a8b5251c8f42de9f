"""Diagnosis: why does a group make no progress, and where is a message?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.steps.admin.brokers import masters
from aerobee.client.steps.admin.group_findings import diagnosis_of
from aerobee.client.steps.admin.group_look import look_at_group
from aerobee.client.steps.admin.message_copies import (
    WAITING_TOPICS,
    copies_of,
    copies_with_key,
    copy_at_place,
    own_topic,
)
from aerobee.client.steps.admin.message_history import history_of
from aerobee.client.steps.admin.message_look import MessageLook, look_at_message
from aerobee.client.steps.admin.topics import topics
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes
    from aerobee.diagnosis import GroupDiagnosis, MessageCopy, MessageHistory

TOPICS_MAX = 200
"""The most topics in which a message is searched, if no topic is given."""


def diagnose_group(
    routes: Routes, group: str, *, slow_after: float = 30.0
) -> Steps[GroupDiagnosis]:
    """Diagnose a consumer group: its state, and what keeps it from making progress.

    It queries brokers and all members, and waits up to 12 s for a member that hangs. A handler that
    has accepted no message for `slow_after` seconds while some wait is slow. It changes nothing.
    Raises: ConfigurationError if no broker knows the group, PermissionDeniedError if none tells
    this account, BrokerNotFoundError, NoNameServerError.
    """
    if slow_after <= 0:
        raise ConfigurationError(f"slow_after is {slow_after}: it is more than 0 seconds")
    look = yield from look_at_group(routes, group)
    return diagnosis_of(look, slow_after)


def explain_message(
    routes: Routes, message_id: str, topic: str | None = None
) -> Steps[MessageHistory]:
    """The history of a message by its id, either a client's message id or an offset message id.

    A client's message id is searched in `topic`; without it, in all topics if there are not too
    many. It changes nothing, and needs no message trace. Raises: ConfigurationError if the topic
    must be named, BrokerNotFoundError, BrokerError, TransportError.
    """
    if not message_id.strip():
        raise ConfigurationError("a message id is not empty")
    placed = yield from copy_at_place(routes, message_id)
    if placed is not None:
        message = placed.message
        place = topic or own_topic(message, routes.config.namespace)
        return (yield from explained(routes, message.message_id, place, [placed]))
    if topic is not None:
        return (yield from explained(routes, message_id, topic))
    targets = yield from masters(routes)
    known = yield from copies_of(routes, targets, message_id, WAITING_TOPICS)
    if not known:
        names = yield from topics(routes)
        if len(names) > TOPICS_MAX:
            raise ConfigurationError(
                f"message {message_id} is on its way nowhere, and there are {len(names)} topics to "
                "look for it in: name its topic"
            )
        known = yield from copies_of(routes, targets, message_id, names)
    own = own_topic(known[-1].message, routes.config.namespace) if known else None
    return (yield from explained(routes, message_id, own, known))


def explain_messages(
    routes: Routes, topic: str, key: str, *, max_messages: int = 5
) -> Steps[list[MessageHistory]]:
    """The histories of the newest messages of a topic with a key, oldest first, including delayed
    ones. Raises: as `explain_message`.
    """
    if not key.strip():
        raise ConfigurationError("a key to look for is not empty")
    targets = yield from masters(routes)
    copies = yield from copies_with_key(routes, targets, topic, key)
    by_id: dict[str, list[MessageCopy]] = {}
    for copy in copies:
        by_id.setdefault(copy.message.message_id, []).append(copy)
    histories = []
    for message_id in list(by_id)[-max_messages:]:
        known = by_id[message_id]
        histories.append((yield from explained(routes, message_id, topic, known)))
    return histories


def explained(
    routes: Routes, message_id: str, topic: str | None, known: Sequence[MessageCopy] = ()
) -> Steps[MessageHistory]:
    """The history of a message of a topic; some copies may be known already."""
    look = MessageLook(message_id, topic, routes.clock.wall_ms())
    places = (*WAITING_TOPICS, *(() if topic is None else (topic,)))
    yield from look_at_message(routes, look, known, places)
    return history_of(look)
