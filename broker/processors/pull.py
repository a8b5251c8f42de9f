"""PULL_MESSAGE and LITE_PULL_MESSAGE: checks, read, answer; or hold until a message comes.

The first failing check answers, in the order clients know. A pull that finds nothing at the end of
its queue is parked; woken, it runs again from the read on, without parking and without committing.
One whose messages lie on disk waits for them outside the loop, and is never parked.
Source: semantics §1 (PullMessageProcessor).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import trio

from broker.answers import FOUND, PULL_CODES
from broker.errors import GroupNotExist, NoPermission, Refused, TopicNotExist
from broker.services.hold import Held
from broker.tables.clients import BROADCASTING, is_tag_type
from remoting.wire.answer import Answer
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.headers.pull import PullMessageRefused, PullMessageResponse
from store.errors import NotInMemory
from store.format.tags import TagFilter
from store.results import GetResult, GetStatus

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.services.hold import Hold
    from broker.stats import BrokerStats
    from broker.tables.clients import ClientTable
    from broker.tables.consumer_offsets import ConsumerOffsetTable
    from broker.tables.groups import GroupTable
    from broker.tables.topics import TopicTable
    from remoting.server.connection import Connection
    from remoting.server.routes import Outcome
    from remoting.wire.command import Command
    from remoting.wire.headers.pull import LitePullMessage, PullMessage
    from store.files.disk import Clock
    from store.message_store import MessageStore

__all__ = ["Pull"]

COMMIT_OFFSET: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4

READ_BIT: Final = 4

LITE_PULL: Final = int(RequestCode.LITE_PULL_MESSAGE)
NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
OFFSET_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
PARSE_FAILED: Final = int(ResponseCode.SUBSCRIPTION_PARSE_FAILED)
NOT_EXIST: Final = int(ResponseCode.SUBSCRIPTION_NOT_EXIST)
NOT_LATEST: Final = int(ResponseCode.SUBSCRIPTION_NOT_LATEST)

HOLD_MAX_MS: Final = 300_000
"""No pull is held longer, whatever it asks for."""

BROKER_FORBIDDEN: Final = 1
GROUP_FORBIDDEN: Final = 2
TOPIC_FORBIDDEN: Final = 3
BROADCASTING_FORBIDDEN: Final = 4
SUBSCRIPTION_FORBIDDEN: Final = 5

FILTER_CACHE: Final = 4096


@lru_cache(maxsize=FILTER_CACHE)
def tag_filter(expression: str | None) -> TagFilter:
    """The filter of a TAG expression. Raises: ValueError when it names no tag."""
    return TagFilter.parse(expression)


class Pull:
    """The pull processor; `pull` serves both codes."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTable,
        offsets: ConsumerOffsetTable,
        hold: Hold,
        stats: BrokerStats,
        clock: Clock,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._hold = hold
        self._stats = stats
        self._clock = clock

    def pull(
        self, header: PullMessage | LitePullMessage, command: Command, connection: Connection
    ) -> Outcome:
        """Answer with messages, or park the pull until some come."""
        self._check(header)
        matches = self._filter(header)
        if header.sys_flag & COMMIT_OFFSET:
            self._offsets.commit(
                header.consumer_group,
                header.topic,
                header.queue_id,
                header.commit_offset,
                self._clock.now_ms(),
            )
        try:
            result = self._read(header, matches)
        except NotInMemory:
            return self._read_from_disk(header, matches)
        code = _code(result, header.queue_offset)
        if code == NOT_FOUND and header.sys_flag & SUSPEND and not self._hold.full:
            self._park(header, command, connection, matches)
            return None
        return self._answer(header, code, result)

    # -- checks ----------------------------------------------------------------------------------

    def _check(self, header: PullMessage | LitePullMessage) -> None:
        """Checks 1 to 7: broker, group, topic, queue."""
        broker = self._config.broker
        if not broker.broker_permission & READ_BIT:
            raise _forbidden(BROKER_FORBIDDEN, "the broker pulling message is forbidden")
        if header.code == LITE_PULL and not broker.lite_pull_message_enable:
            raise _forbidden(BROKER_FORBIDDEN, "the broker for lite pull message is forbidden")
        group = self._groups.find(header.consumer_group, self._clock.now_ms())
        if group is None:
            raise GroupNotExist(header.consumer_group)
        if not group.consume_enable:
            raise _forbidden(
                GROUP_FORBIDDEN,
                f"subscription group no permission, {header.consumer_group}",
            )
        topic = self._topics.get(header.topic)
        if topic is None:
            raise TopicNotExist(header.topic)
        if not topic.perm & READ_BIT:
            raise _forbidden(
                TOPIC_FORBIDDEN, f"the topic[{header.topic}] pulling message is forbidden"
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )

    def _filter(self, header: PullMessage | LitePullMessage) -> TagFilter | None:
        """Checks 8 and 9: the filter of this pull; None lets everything through."""
        if not header.sys_flag & SUBSCRIPTION:
            matches = self._registered(header)
        elif is_tag_type(header.expression_type):
            try:
                matches = tag_filter(header.subscription)
            except ValueError as error:
                raise Refused(PARSE_FAILED, str(error)) from error
        elif header.subscription:
            raise _no_sql(header.expression_type)
        else:
            raise Refused(PARSE_FAILED, "parse the consumer's subscription failed")
        return None if matches.codes is None else matches

    def _registered(self, header: PullMessage | LitePullMessage) -> TagFilter:
        """The filter that the group's heartbeats gave for the topic."""
        name = header.consumer_group
        registered = self._clients.group(name)
        if registered is None:
            raise Refused(NOT_EXIST, f"the consumer's group info not exist, {name}")
        group = self._groups.require(name, self._clock.now_ms())
        if registered.message_model == BROADCASTING and not group.consume_broadcast_enable:
            remark = f"the consumer group[{name}] can not consume by broadcast way"
            raise _forbidden(BROADCASTING_FORBIDDEN, remark)
        if not self._groups.may_read(name, header.topic):
            remark = f"the consumer group[{name}] is forbidden for topic[{header.topic}]"
            raise _forbidden(SUBSCRIPTION_FORBIDDEN, remark)
        subscription = registered.subscriptions.get(header.topic)
        if subscription is None:
            raise Refused(NOT_EXIST, f"the consumer's subscription not exist, {name}")
        if subscription.sub_version < header.sub_version:
            raise Refused(NOT_LATEST, "the consumer's subscription not latest")
        if subscription.tag_filter is None:
            raise _no_sql(subscription.data.expression_type)
        return subscription.tag_filter

    # -- read, answer, park ----------------------------------------------------------------------

    def _read(self, header: PullMessage | LitePullMessage, matches: TagFilter | None) -> GetResult:
        max_bytes = max_count = None
        if header.bulk_bytes:
            max_bytes = min(header.bulk_bytes, self._config.broker.max_bulk_bytes)
            max_count = header.max_msg_nums
        return self._store.get(
            header.topic,
            header.queue_id,
            header.queue_offset,
            header.max_msg_nums,
            matches,
            max_bytes=max_bytes,
            max_count=max_count,
        )

    async def _read_from_disk(
        self, header: PullMessage | LitePullMessage, matches: TagFilter | None
    ) -> Answer:
        result = await self._store.complete(lambda: self._read(header, matches))
        return self._answer(header, _code(result, header.queue_offset), result)

    def _answer(
        self, header: PullMessage | LitePullMessage, code: int, result: GetResult
    ) -> Answer:
        response = PullMessageResponse(
            suggest_which_broker_id=0,
            next_begin_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
        )
        status = result.status
        if status is not FOUND:
            return Answer(code, response, status.name)
        counters = self._stats.group_out(header.consumer_group, header.topic)
        counters.messages_out += result.count
        counters.bytes_out += result.size
        return Answer(0, response, "FOUND", result.views)

    def _park(
        self,
        header: PullMessage | LitePullMessage,
        command: Command,
        connection: Connection,
        matches: TagFilter | None,
    ) -> None:
        if self._config.broker.long_polling_enable:
            wait_ms = header.suspend_timeout_millis
        else:
            wait_ms = self._config.broker.short_polling_time_ms

        def resume() -> None:
            connection.answer(command, self._again(header, matches))

        queue = (header.topic, header.queue_id)
        deadline = trio.current_time() + min(max(wait_ms, 0), HOLD_MAX_MS) / 1000
        command.body = b""
        self._hold.park(Held(connection, queue, header.queue_offset, matches, deadline, resume))

    def _again(self, header: PullMessage | LitePullMessage, matches: TagFilter | None) -> Answer:
        """The pull once more after its wait; whatever it finds is the answer."""
        try:
            self._check(header)
        except Refused as refused:
            return Answer(refused.code, refused.header, refused.remark)
        try:
            result = self._read(header, matches)
        except NotInMemory:
            # What woke it is far behind by now. Nobody waits for the disk here: its next pull does.
            result = self._elsewhere(header)
        return self._answer(header, _code(result, header.queue_offset), result)

    def _elsewhere(self, header: PullMessage | LitePullMessage) -> GetResult:
        """An answer that makes the client pull the same offset again."""
        place = (header.topic, header.queue_id)
        return GetResult(
            GetStatus.NO_MATCHED_MESSAGE,
            header.queue_offset,
            self._store.min_offset(*place),
            self._store.max_offset(*place),
        )


def _code(result: GetResult, asked_offset: int) -> int:
    """The response code of a read; an empty queue was moved if the client was elsewhere."""
    status = result.status
    if status is GetStatus.NO_MESSAGE_IN_QUEUE and asked_offset:
        return OFFSET_MOVED
    return PULL_CODES[status]


def _no_sql(expression_type: str | None) -> Refused:
    remark = f"The broker does not support consumer to filter message by {expression_type}"
    return Refused(int(ResponseCode.SYSTEM_ERROR), remark)


def _forbidden(kind: int, remark: str) -> NoPermission:
    error = NoPermission(remark)
    error.header = PullMessageRefused(forbidden_type=kind)
    return error
