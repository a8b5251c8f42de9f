"""Requests about offsets: of a group, and the min and max of a queue.

Reads of the disk are done outside the loop. Source: remoting §3.7, semantics §3.2–3.3
(ConsumerManageProcessor, AdminBrokerProcessor).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from aerobee.broker.consumers.consumer_offsets import MARKS, NO_OFFSET, check_not_own
from aerobee.broker.core.lists import size_with
from aerobee.broker.errors import Refusal, TopicNotExist
from aerobee.broker.topics.topic_processor import once_saved
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers import offset as headers

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aerobee.broker.consumers.clients import ClientTable
    from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
    from aerobee.broker.consumers.groups import GroupTable
    from aerobee.broker.topics.topic_processor import TableFiles
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Steps
    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from aerobee.remoting.wire.command import Command
    from aerobee.store.clock import Clock
    from aerobee.store.message_store import MessageStore

    Soon = Answer | Awaitable[Answer]

DONE: Final = Answer()
RESET_BEFORE: Final = Answer(remark="Offset has been previously reset")


class OffsetProcessor:
    """Codes 14, 15, 29 to 32, 43 and 314.

    Only requests that store an offset check that the queue exists.
    """

    def __init__(
        self,
        *,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsetTable,
        clients: ClientTable,
        changing: TableFiles,
        store: MessageStore,
        clock: Clock,
    ) -> None:
        """`changing`: the files of the tables that change all the time."""
        self.topics = topics
        self.groups = groups
        self.offsets = offsets
        self.clients = clients
        self.changing = changing
        self.store = store
        self.clock = clock

    def query(
        self, header: headers.QueryConsumerOffset, command: Command, connection: Caller
    ) -> Soon:
        """QUERY_CONSUMER_OFFSET: the next offset of the group.

        A group without an offset starts at 0 on a queue so new that its first message is still in
        memory, or to come; elsewhere the client decides, on QUERY_NOT_FOUND.
        """
        return self.store.reading(lambda: self._query(header))

    def _query(self, header: headers.QueryConsumerOffset) -> Answer:
        at = self.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if at == NO_OFFSET:
            if header.set_zero_if_not_found is False:
                raise not_found("do not set to zero, maybe this group boot first")
            if not self.starts_at_zero(header.topic, header.queue_id):
                raise not_found("V3_0_6_SNAPSHOT maybe this group consumer boot first")
            at = 0
        return Answer(header=headers.QueryConsumerOffsetResponse(offset=at))

    def starts_at_zero(self, topic: str, queue_id: int) -> bool:
        """Whether the first message of a queue is still to come, or is there and recent.

        For an empty queue a Java broker of 5.x says that it has no offset, that of 4.9 says 0. A
        client that has none asks for the end, and would skip what came between its two questions.
        """
        if self.store.min_offset(topic, queue_id) > 0:
            return False
        if self.store.max_offset(topic, queue_id) > 0:
            return self.store.is_hot(topic, queue_id, 0)
        config = self.topics.get(topic)
        return config is not None and 0 <= queue_id < config.read_queue_nums

    def update(
        self, header: headers.UpdateConsumerOffset, command: Command, connection: Caller
    ) -> Answer:
        """UPDATE_CONSUMER_OFFSET: store it, whatever was there. Makes neither group nor topic.

        The Java broker stores it for any queue id; here invented ones must not fill the table.
        """
        self.groups.existing(header.consumer_group)
        topic = self.topics.get(header.topic)
        if topic is None:
            raise TopicNotExist(header.topic)
        if header.queue_id is None or header.commit_offset is None:
            missing = "queueId" if header.queue_id is None else "commitOffset"
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"{missing} is missing")
        if not self.may_have_offset(header.consumer_group, topic, header.queue_id):
            queues = max(topic.read_queue_nums, topic.write_queue_nums)
            remark = f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] has {queues}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        queue = (header.consumer_group, header.topic, header.queue_id)
        if self.offsets.first_pulls.awaited and not self._early(queue, header, connection.id):
            return RESET_BEFORE
        stored = self.offsets.commit(*queue, header.commit_offset, self.clock.now_ms())
        return DONE if stored else RESET_BEFORE

    def _early(
        self,
        queue: tuple[str, str, int],
        header: headers.UpdateConsumerOffset,
        connection: int,
    ) -> bool:
        """Whether a commit that may be in front of the first pull may be stored."""
        assert header.commit_offset is not None
        group, topic, queue_id = queue
        end = self.store.max_offset(topic, queue_id)
        consumes = self.clients.consumes(connection, group)
        return self.offsets.early_commit(
            queue, header.commit_offset, connection, end, consumes=consumes
        )

    def may_have_offset(self, group: str, topic: TopicConfig, queue_id: int) -> bool:
        """Whether the queue exists, or did: a topic may have had more, and a group read them.

        The marks of a Spark sink are numbered by partition.
        """
        name = topic.topic_name
        return queue_id >= 0 and (
            queue_id < max(topic.read_queue_nums, topic.write_queue_nums)
            or queue_id in self.offsets.queues(group, name)
            or group.startswith(MARKS)
            or self.store.max_offset(name, queue_id) > 0
        )

    def clone(
        self, header: headers.CloneGroupOffset, command: Command, connection: Caller
    ) -> Steps:
        """CLONE_GROUP_OFFSET: of one topic, or without one of all of them, if there is room;
        answered when it is saved.

        The Java broker copies nothing where no topic is named.
        """
        self.groups.existing(header.dest_group)
        topics = [header.topic] if header.topic else self.offsets.topics_of(header.src_group)
        known = partial(self.offsets.queues, header.src_group)
        if not any(map(known, topics)):
            raise never_committed(header.src_group, header.topic)
        check_not_own(header.dest_group)
        new = 0
        for topic in topics:
            new += len(known(topic).keys() - self.offsets.queues(header.dest_group, topic).keys())
            yield
        self.offsets.check_room(header.dest_group, new)
        now_ms = self.clock.now_ms()
        for topic in topics:
            # Deleted since the last step, neither the group nor a topic gets offsets; one made anew
            # has those of now.
            self.groups.existing(header.dest_group)
            for queue_id, at in list(known(topic).items()):
                place = header.dest_group, topic, queue_id
                # A reset that nobody has heard of would undo it.
                if not self.offsets.commit(*place, at, now_ms) and at >= 0:
                    self.offsets.reset(*place, at, now_ms)
            yield
        return once_saved(self.changing, "clone")

    def all_offsets(
        self, header: headers.GetAllConsumerOffset, command: Command, connection: Caller
    ) -> Steps:
        """GET_ALL_CONSUMER_OFFSET: the current content of `consumerOffset.json`."""
        pieces: list[bytes] = []
        size = 0
        for piece in self.offsets.pieces():
            size = size_with(size, piece)
            pieces.append(piece)
            yield
        return Answer(body=pieces)

    def max_offset(
        self, header: headers.GetMaxOffset, command: Command, connection: Caller
    ) -> Answer:
        """GET_MAX_OFFSET: the offset of the next message; 0 for an unknown queue."""
        at = self.store.max_offset(header.topic, header.queue_id)
        return Answer(header=headers.GetMaxOffsetResponse(offset=at))

    def min_offset(
        self, header: headers.GetMinOffset, command: Command, connection: Caller
    ) -> Answer:
        """GET_MIN_OFFSET: the offset of the oldest message; 0 for an unknown queue."""
        at = self.store.min_offset(header.topic, header.queue_id)
        return Answer(header=headers.GetMinOffsetResponse(offset=at))

    def search(self, header: headers.SearchOffset, command: Command, connection: Caller) -> Soon:
        """SEARCH_OFFSET_BY_TIMESTAMP: the first message stored at or after a time.

        With the upper boundary: the last one stored at or before it.
        """
        upper = (header.boundary_type or "").lower() == "upper"

        def search() -> Answer:
            at = self.store.offset_by_time(header.topic, header.queue_id, header.timestamp, upper)
            return Answer(header=headers.SearchOffsetResponse(offset=at))

        return self.store.reading(search)

    def earliest_store_time(
        self, header: headers.GetEarliestMessageStoreTime, command: Command, connection: Caller
    ) -> Soon:
        """GET_EARLIEST_MSG_STORETIME: when the oldest message was stored, −1 for an empty queue."""

        def look() -> Answer:
            at_ms = self.store.earliest_time(header.topic, header.queue_id)
            return Answer(header=headers.GetEarliestMessageStoreTimeResponse(timestamp=at_ms))

        return self.store.reading(look)


def never_committed(group: str, topic: str | None) -> Refusal:
    """The refusal to clone a group without offsets."""
    of = f" of topic [{topic}]" if topic else ""
    return Refusal(ResponseCode.QUERY_NOT_FOUND, f"the group [{group}] has no offset{of}")


def not_found(reason: str) -> Refusal:
    """The answer QUERY_NOT_FOUND."""
    return Refusal(ResponseCode.QUERY_NOT_FOUND, f"Not found, {reason}")
