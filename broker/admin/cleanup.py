"""Clean-up on request: expired segments at any hour, queues without messages or without a topic.

A deleted queue loses its counter, so its next message has queue offset 0. The offsets that groups
have committed for it are reset too, and saved: otherwise consumers would skip the next messages. A
slave leaves offsets to its master, and keeps a queue whose topic it may not have heard of yet.
Source: admin §4.1, store format §6.4 (AdminBrokerProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.consumers.consumer_offsets import MARKS, OWN_GROUPS
from aerobee.broker.topics.topic_processor import when_saved
from aerobee.remoting.server.turns import Turns
from aerobee.remoting.wire.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
    from aerobee.broker.core.role import Role
    from aerobee.broker.topics.topic_processor import TableFiles
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import cleanup as headers
    from aerobee.store.clock import Clock
    from aerobee.store.message_store import MessageStore
    from aerobee.store.queues.consume_queue import ConsumeQueue

DONE: Final = Answer()
LMQ_PREFIX: Final = "%LMQ%"
"""Light queues have no topic of their own, so a missing topic does not make them unused."""

log = structlog.stdlib.get_logger(__name__)


class CleanupProcessor:
    """Handles the codes 306, 316 and 329."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsetTable,
        changing: TableFiles,
        clock: Clock,
        role: Role,
    ) -> None:
        self.store = store
        self.topics = topics
        self.offsets = offsets
        self.changing = changing
        self.clock = clock
        self.role = role

    def delete_expired_log(
        self, header: headers.DeleteExpiredCommitLog, command: Command, connection: Caller
    ) -> Answer:
        """DELETE_EXPIRED_COMMITLOG: the next passes of the clean-up ignore the configured hour."""
        self.store.space.cleanup.request()
        log.info("cleanup.requested", address=connection.address)
        return DONE

    async def clean_expired_queues(
        self, header: headers.CleanExpiredConsumeQueue, command: Command, connection: Caller
    ) -> Answer:
        """CLEAN_EXPIRED_CONSUMEQUEUE, answered after the deletion; keeps those of system topics."""
        begin = self.store.commit_log.min_offset
        gone = await self.store.space.queues.destroy_expired(begin, self.topics.is_system)
        await self._start_again(gone)
        return DONE

    async def clean_unused_topics(
        self, header: headers.CleanUnusedTopic, command: Command, connection: Caller
    ) -> Answer:
        """CLEAN_UNUSED_TOPIC, answered after the deletion."""
        await self._start_again(await self.store.space.queues.destroy(self._is_unused))
        # Otherwise a recovery that scans their records would create the queues again.
        await self.store.flush_queues()
        return DONE

    def _is_unused(self, queue: ConsumeQueue) -> bool:
        topic = queue.topic
        known = self.topics.get(topic) is not None or self.topics.is_system(topic)
        if known or topic.startswith(LMQ_PREFIX):
            return False
        # The log of a slave is ahead of its topics.
        last = max(queue.max_physical_offset - 1, 0)
        return not self.role.is_slave or self.topics.deleted.covers(topic, last)

    async def _start_again(self, gone: Iterable[tuple[str, int]]) -> None:
        """Reset groups with an offset in these queues to 0, the next message.

        A running consumer holds the old offset too, so it must get the reset before it commits. A
        Spark sink never pulls: its mark is no offset, and behind a reset it could store no other.
        """
        by_topic: dict[str, list[int]] = {}
        for topic, queue_id in gone:
            by_topic.setdefault(topic, []).append(queue_id)
        now_ms = self.clock.now_ms()
        turns = Turns()
        for topic, queue_ids in by_topic.items():
            for group in self.offsets.groups_of(topic):
                await turns.give_way()
                offsets = self.offsets.queues(group, topic)
                if group in OWN_GROUPS or group.startswith(MARKS):
                    continue
                for queue_id in queue_ids:
                    # A reset of a slave would be open until it is the master.
                    if offsets.get(queue_id, 0) > 0 and not self.role.is_slave:
                        self.offsets.reset(group, topic, queue_id, 0, now_ms)
        if by_topic:
            await when_saved(self.changing, "clean-up")
