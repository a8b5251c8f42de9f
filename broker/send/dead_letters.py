"""Dead letters: messages beyond their retries, also those that consumers send to a retry topic.

Consumers that cannot send a message back send it to `%RETRY%group` themselves; orderly consumers do
so with messages that they have given up. Source: semantics §7.3
(AbstractSendMessageProcessor.handleRetryAndDLQ).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.core.names import dead_letter_topic
from aerobee.broker.send.retries import max_tries
from aerobee.store.clock import monotonic_ms
from aerobee.store.format.properties import PROPERTIES_BYTES_MAX, decode, encode
from aerobee.store.format.system_names import RETRY_PREFIX

if TYPE_CHECKING:
    from aerobee.broker.consumers.groups import GroupTable
    from aerobee.broker.consumers.queue_locks import QueueLockTable
    from aerobee.broker.counters.broker_stats import BrokerStats, GroupTopicStats
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.wire.bodies.queue import MessageQueue
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.send import SendMessage, SendMessageV2
    from aerobee.store.clock import Clock
    from aerobee.store.format.record import MessageDraft


class DeadLetters:
    """Redirects drafts to `%DLQ%group`, queue 0."""

    def __init__(
        self,
        *,
        topics: TopicTable,
        groups: GroupTable,
        locks: QueueLockTable[MessageQueue],
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._stats = stats
        self._clock = clock

    def turn(self, draft: MessageDraft, group: str) -> None:
        """Redirect a draft there. Raises: LimitReached."""
        name = dead_letter_topic(group)
        self._topics.for_broker(name, 1, self._clock.now_ms())
        draft.topic, draft.queue_id = name, 0

    def take(
        self,
        draft: MessageDraft,
        properties: dict[str, str],
        header: SendMessage | SendMessageV2,
        command: Command,
    ) -> GroupTopicStats | None:
        """Redirect a draft for `%RETRY%group` that is beyond its retries, and return where it
        counts once it is stored; None: it is no dead letter.

        A group that holds a queue lock is orderly, and sends only messages that it has given up.
        Raises: Refusal.
        """
        if not header.topic.startswith(RETRY_PREFIX):
            return None
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.require(name, self._clock.now_ms())
        limit = max_tries(group, header.max_reconsume_times, command.version)
        in_order = self._locks.is_locked(name, monotonic_ms(self._clock))
        if draft.reconsume_times <= limit and not in_order:
            return None
        properties["DELAY"] = "-1"
        origin = properties.get("RETRY_TOPIC", header.topic)
        # The sender names the origin itself; that it sends to its retry topic is certain.
        count = self._stats.group_out if origin == header.topic else self._stats.given_up
        self.turn(draft, name)
        return count(name, origin)


def never_delayed(text: str, added: str) -> str:
    """The properties of a dead letter with the delay −1, as the Java broker writes it.

    `added` follows them. Where both do not fit, a delay that was asked for is 0, and none is added.
    """
    properties = decode(text)
    full = encode({**properties, "DELAY": "-1"})
    if len(full.encode()) + len(added) <= PROPERTIES_BYTES_MAX:
        return full
    return encode({**properties, "DELAY": "0"}) if "DELAY" in properties else text
