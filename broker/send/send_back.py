"""CONSUMER_SEND_MSG_BACK: a consumer could not process a message and wants it again later.

The message is stored once more, for the group's retry topic, by way of a delay level; or as a dead
letter after enough retries. Under SYNC_FLUSH the answer waits until that is on disk: the consumer
commits past a message that was sent back. Source: semantics §7.2
(AbstractSendMessageProcessor.consumerSendMsgBack).
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final

from aerobee.broker.core.drafts import draft_again
from aerobee.broker.core.names import is_sendable, retry_topic, was_delivered
from aerobee.broker.errors import NoPermission, PutPostponed, Refusal
from aerobee.broker.send.retries import (
    max_tries,
    next_level,
    returned,
    tried_again,
    without_origin,
)
from aerobee.broker.topics.topics import PERM_WRITE
from aerobee.remoting.server.routes import HELD
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.errors import NotInMemory, RecordDamaged
from aerobee.store.format.message_id import offset_id
from aerobee.store.format.properties import decode
from aerobee.store.results import PutStatus, location_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.consumers.groups import GroupTable
    from aerobee.broker.core.core import Core
    from aerobee.broker.send.dead_letters import DeadLetters
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Later, Outcome
    from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.send import ConsumerSendMsgBack
    from aerobee.remoting.wire.typed_command import Reply
    from aerobee.store.format.record import MessageDraft, Record

DONE: Final = Answer()
LATE: Final = Answer(int(ResponseCode.SYSTEM_ERROR), remark=PutStatus.FLUSH_DISK_TIMEOUT.name)
SERVICE: Final = "retries"
SYSTEM_ERROR: Final = int(ResponseCode.SYSTEM_ERROR)
TOO_LONG: Final = PutStatus.PROPERTIES_SIZE_EXCEEDED


class SendBack:
    """Code 36. `random_queue(n)` gives one of 0…n−1."""

    def __init__(
        self,
        core: Core,
        *,
        dead_letters: DeadLetters,
        topics: TopicTable,
        groups: GroupTable,
        random_queue: Callable[[int], int],
    ) -> None:
        self._options = core.config.broker
        self._guarded = core.config.auth.enabled
        self._store = core.store
        self._puts = core.puts
        self._stats = core.stats
        self._clock = core.clock
        self._store_host = core.store_host
        self._dead_letters = dead_letters
        self._topics = topics
        self._groups = groups
        self._random_queue = random_queue
        # For the disk only, as in RocketMQ: a client that is told of a late slave would send the
        # message once more, and each of the two would be retried.
        # A consumer goes on behind a message that it has sent back.
        self._waits_for_disk = core.config.store.sync_flush or core.config.failover.is_on

    def take_back(
        self, header: ConsumerSendMsgBack, command: Command, connection: Caller
    ) -> Outcome:
        """Store a message again for its next retry, or as a dead letter."""
        group = self._groups.require(header.group, self._clock.now_ms())
        if not self._options.broker_permission & PERM_WRITE:
            host = self._options.broker_ip1
            raise NoPermission(f"the broker[{host}] sending message is forbidden")
        if group.retry_queue_nums <= 0:
            # The administrator set it so: messages of such a group are not retried.
            return DONE
        limit = max_tries(group, header.max_reconsume_times, command.version)
        look_up = partial(self._store.message, header.offset)
        try:
            record = look_up()
        except NotInMemory:
            return self._from_disk(look_up, header, limit, partial(connection.answer, command))
        self._store_again(record, header, group, limit)
        return self._answer(partial(connection.answer, command))

    def _retry_topic(
        self, header: ConsumerSendMsgBack, group: SubscriptionGroupConfig
    ) -> TopicConfig:
        """The retry topic of a group, created when it does not exist.

        Raises: NoPermission when it is not writable; LimitReached.
        """
        topic = self._topics.for_broker(
            retry_topic(header.group),
            group.retry_queue_nums,
            self._clock.now_ms(),
            unit_mode=bool(header.unit_mode),
        )
        if not topic.perm & PERM_WRITE:
            raise NoPermission(f"the topic[{topic.topic_name}] sending message is forbidden")
        return topic

    def _store_again(
        self,
        record: Record | None,
        header: ConsumerSendMsgBack,
        group: SubscriptionGroupConfig,
        limit: int,
    ) -> None:
        """Store a message once more, in a retry or dead-letter topic.

        Raises: Refusal when the message is deleted, or cannot be stored.
        """
        topic = self._retry_topic(header, group)
        if record is None:
            raise Refusal(SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        if not is_sendable(record.topic):
            # Consumers never get messages of system topics such as halves and timers.
            raise Refusal(SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        delivered = was_delivered(record.topic, header.group, header.origin_topic)
        if self._guarded and not delivered:
            # The rights were checked for the topic that the request names.
            raise Refusal(SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        level = next_level(record.reconsume_times, header.delay_level, limit)
        origin = decode(record.properties).get("RETRY_TOPIC", record.topic)
        # Any producer can name an origin; that a message lies in its own topic is certain.
        count = self._stats.group_out if origin == record.topic else self._stats.given_up
        queues = min(topic.read_queue_nums, topic.write_queue_nums)
        queue_id = self._random_queue(queues) if queues > 1 else 0
        try:
            draft = draft_again(record, topic.topic_name, queue_id, b"")
        except RecordDamaged as error:
            # Refused, it would come for ever; a copy would look whole.
            self._store.aside.take(SERVICE, location_of(record), error)
            return
        draft.store_host = self._store_host
        draft.reconsume_times = tried_again(draft.reconsume_times)
        status = TOO_LONG if level is None else self._put_for_retry(draft, record, level)
        # Without room for a delay a message cannot be retried; refused, it would come for ever.
        is_dead = status is TOO_LONG
        if is_dead:
            status = self._put_dead(draft, record, header.group)
        if status is PutStatus.SEGMENT_LATE:
            raise PutPostponed
        if status is not PutStatus.PUT_OK:
            raise Refusal(SYSTEM_ERROR, status.name)
        counters = count(header.group, origin)
        counters.dead_letters += is_dead
        counters.sent_back += 1

    def _put_for_retry(self, draft: MessageDraft, record: Record, level: int) -> PutStatus:
        """Store a message for its next retry, without its origin if there is no room for that.

        TOO_LONG: its properties leave no room for a delay either.
        """
        properties = decode(record.properties)
        full = returned(properties, record.topic, _id(record), level)
        status = self._puts.put(copy(draft), full, accepted=True).status
        if status is TOO_LONG:
            bare = without_origin(properties, level)
            status = self._puts.put(copy(draft), bare, accepted=True).status
        return status

    def _put_dead(self, draft: MessageDraft, record: Record, group: str) -> PutStatus:
        """Store a message as a dead letter, just as it is if there is no room for its origin."""
        self._dead_letters.turn(draft, group)
        properties = returned(decode(record.properties), record.topic, _id(record), None)
        status = self._puts.put(draft, properties, accepted=True).status
        if status is TOO_LONG:
            draft.properties = bytes(record.properties)
            status = self._puts.put_again(draft).status
        return status

    async def _from_disk(
        self,
        look_up: Callable[[], Record | None],
        header: ConsumerSendMsgBack,
        limit: int,
        reply: Reply,
    ) -> Later:
        record = await self._store.complete(look_up)
        # Deleted meanwhile, a group is not made anew for a message that waited.
        group = self._groups.existing(header.group)
        self._store_again(record, header, group, limit)
        outcome = self._answer(reply)
        self._puts.finish_round()
        return outcome

    def _answer(self, reply: Reply) -> Later:
        """The answer, or a later one to `reply`, once what was stored is on disk: those that wait
        share its sync, and hold up no other request.
        """
        if not self._waits_for_disk:
            return DONE
        self._puts.when_durable(lambda kept: reply(DONE if kept else LATE))
        return HELD


def _id(record: Record) -> str:
    return offset_id(record.store_host, record.physical_offset)
