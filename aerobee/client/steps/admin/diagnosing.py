"""The two questions of whoever wonders: why does this group stand still, where is this message?"""

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

__all__ = ["diagnose_group", "explain_message", "explain_messages"]

TOPICS_MAX = 200
"""Topics that a message is looked for in, if nobody says which."""


def diagnose_group(
    routes: Routes, group: str, *, slow_after: float = 30.0
) -> Steps[GroupDiagnosis]:
    """How a group is, and what keeps it from moving.

    Brokers and all members are asked, a member that hangs for up to 12 s. A handler that has taken
    no message for `slow_after` seconds while some wait counts as slow. Nothing is changed.
    Raises: ConfigurationError if no broker knows the group, BrokerNotFoundError, NoNameServerError.
    """
    if slow_after <= 0:
        raise ConfigurationError(f"slow_after is {slow_after}: it is more than 0 seconds")
    look = yield from look_at_group(routes, group)
    return diagnosis_of(look, slow_after)


def explain_message(
    routes: Routes, message_id: str, topic: str | None = None
) -> Steps[MessageHistory]:
    """What became of the message of an id, either kind: what the client called it, or its place.

    What a client called it is looked up in `topic`; without one in all topics, if they are not too
    many. Nothing is changed, and nothing had to be noted for it before. Raises:
    ConfigurationError if the topic must be named, BrokerNotFoundError, BrokerError, TransportError.
    """
    if not message_id.strip():
        raise ConfigurationError("a message id is not empty")
    placed = yield from copy_at_place(routes, message_id)
    if placed is not None:
        one = placed.message
        place = topic or own_topic(one, routes.config.namespace)
        return (yield from explained(routes, one.message_id, place, [placed]))
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
    found = own_topic(known[-1].message, routes.config.namespace) if known else None
    return (yield from explained(routes, message_id, found, known))


def explain_messages(
    routes: Routes, topic: str, key: str, *, max_messages: int = 5
) -> Steps[list[MessageHistory]]:
    """What became of the newest messages of a topic with a key, oldest first; those on their way
    there as well. Raises: as `explain_message`.
    """
    if not key.strip():
        raise ConfigurationError("a key to look for is not empty")
    targets = yield from masters(routes)
    copies = yield from copies_with_key(routes, targets, topic, key)
    by_id: dict[str, list[MessageCopy]] = {}
    for one in copies:
        by_id.setdefault(one.message.message_id, []).append(one)
    histories = []
    for message_id in list(by_id)[-max_messages:]:
        known = by_id[message_id]
        histories.append((yield from explained(routes, message_id, topic, known)))
    return histories


def explained(
    routes: Routes, message_id: str, topic: str | None, known: Sequence[MessageCopy] = ()
) -> Steps[MessageHistory]:
    """The history of a message of a topic, of which some copies may be known."""
    look = MessageLook(message_id, topic, routes.clock.wall_ms())
    places = (*WAITING_TOPICS, *(() if topic is None else (topic,)))
    yield from look_at_message(routes, look, known, places)
    return history_of(look)
