"""Deletion of a topic: removes its config, queues, offsets and figures; its records stay.

The config is deleted first and durably: after a crash during the deletion, a start finds the topic
either complete or gone. During the deletion the topic cannot be created again, so that no message
gets into queues that are about to be removed, and none is skipped by an offset that a kill gives
back. Delayed messages stay in the log and are not delivered (`DeletedTopics`), unless the topic is
created again before they are due. A master that hands its role over meanwhile keeps the queues: the
next one may not have heard of the deletion, and the topic comes back from there.
Source: admin §4.1, semantics §4.4 (AdminBrokerProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.changes import ChangeAnswer, changes_of
from aerobee.broker.errors import NameIllegal, Refusal
from aerobee.broker.pop.pop_records import retry_topic_v1, retry_topic_v2
from aerobee.broker.topics.topic_processor import when_saved
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.format.system_names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.topics.feature import TopicsFeature
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import topic as headers

NO_MASTER: Final = "Can't delete a topic from slave broker: ask its master to delete it again"

log = structlog.stdlib.get_logger(__name__)


class TopicDeletion:
    """Handles the code 215."""

    def __init__(
        self,
        core: Core,
        topics: TopicsFeature,
        consumers: ConsumerTables,
    ) -> None:
        self.clock = core.clock
        self.stats = core.stats
        self.store = core.store
        self.tables = core.tables
        self.role = core.role
        self.topics = topics.table
        self.saved = topics.file
        self.offsets = consumers.offsets
        self.groups = consumers.groups
        self.clients = consumers.clients
        self.when_deleted: list[Callable[[str], None]] = []
        """Called with each deleted topic."""

    def delete(
        self, header: headers.DeleteTopicInBroker, command: Command, connection: Caller
    ) -> Awaitable[Answer]:
        """DELETE_TOPIC_IN_BROKER; succeeds for a topic that does not exist."""
        topic = header.topic
        if not topic.strip():
            raise NameIllegal("The specified topic is blank.")
        if self.topics.is_system(topic):
            raise NameIllegal(f"The topic[{topic}] is conflict with system topic.")
        return self._delete(topic, connection.address)

    def _pop_retry_topics(self, topic: str) -> Iterator[str]:
        """The POP retry topics of the topic, which are useless without it."""
        for group in self.offsets.groups_of(topic):
            for retry in (retry_topic_v1(topic, group), retry_topic_v2(topic, group)):
                # Of a deletion that was not finished there are the queues alone.
                known = self.topics.get(retry) or self.store.queues.find(retry, 0)
                if known is not None and not self._is_of_others(retry, group):
                    yield retry

    def _is_of_others(self, retry: str, group: str) -> bool:
        """Whether a retry topic may hold messages of other groups as well: `%RETRY%a_b_c` is that
        of the group `a_b_c`, and that of the pops of `b_c` by `a` and of `c` by `a_b`.
        """
        rest, groups = retry.removeprefix(RETRY_PREFIX), self.groups.get
        return groups(rest) is not None or any(
            rest[:at] != group
            and groups(rest[:at]) is not None
            and self.topics.get(rest[at + 1 :]) is not None
            for at, character in enumerate(rest)
            if character == "_"
        )

    def _running_ahead(self, topic: str) -> Iterator[tuple[str, list[int]]]:
        """Groups with running members, and the queues in which they would skip new messages."""
        for group in self.offsets.groups_of(topic):
            if self.clients.group(group) is not None:
                queues = self.offsets.queues(group, topic)
                yield group, [queue_id for queue_id, at in queues.items() if at > 0]

    async def _delete(self, name: str, address: str) -> Answer:
        doomed = [name, *self._pop_retry_topics(name)]
        names = frozenset(doomed)
        deleted = []
        with self.topics.leaving(names):
            for topic in doomed:
                log_end = self.store.commit_log.max_offset
                config = self.topics.get(topic)
                if self.topics.delete(topic, self.clock.now_ms(), log_end):
                    deleted.append((topic, config, None))
                    log.info("topic.deleted", topic=topic, address=address)
            await when_saved(self.saved, "deletion")
            try:
                await self.store.space.queues.destroy_dispatched(
                    lambda queue: queue.topic in names and self.role.serves
                )
            except TimeoutError as error:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR, f"{error}: its queues stay, delete the topic again"
                ) from error
            # A recovery scans the log from its last recovery point, and after this flush there
            # are no records of these topics.
            await self.store.flush_queues()
            if not self.role.serves:
                raise Refusal(ResponseCode.SYSTEM_ERROR, NO_MASTER)
            was_read = any(self.offsets.groups_of(topic) for topic in doomed)
            for topic in doomed:
                running = list(self._running_ahead(topic))
                self.offsets.delete_topic(topic)
                for group, queue_ids in running:
                    self.offsets.begin_again(group, topic, queue_ids)
                self.stats.forget_topic(topic)
                for forget in self.when_deleted:
                    forget(topic)
            if was_read:
                await when_saved(self.tables, "deletion")
        return ChangeAnswer(changes=changes_of(deleted))
