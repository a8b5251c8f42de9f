"""PULL_MESSAGE and LITE_PULL_MESSAGE: checks, read, answer; or hold until a message comes.

The first failing check answers, in the order clients know. A pull that finds nothing at the end of
its queue is parked; when woken, it runs again from the read on, without parking and without
committing. A pull whose messages are only on disk waits for them outside the loop, and is never
parked. Source: semantics §1 (PullMessageProcessor).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from aerobee.broker.answers import FOUND, PULL_CODES
from aerobee.broker.consumers.clients import BROADCASTING
from aerobee.broker.core.unreadable import tell_first_wanted
from aerobee.broker.errors import CONTENT_ERRORS, MessageUnreadable, PropertyFilterOff, Refusal
from aerobee.broker.filters.sql_filter import SQL92, SqlFilter
from aerobee.broker.filters.subscription import filter_of
from aerobee.broker.holds.quota import weight_of
from aerobee.broker.pull.access import BROKER_FORBIDDEN, forbidden
from aerobee.broker.pull.hold import HeldPull
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers.pull import PullAnswer
from aerobee.store.clock import monotonic_ms
from aerobee.store.errors import NotInMemory, Unreadable
from aerobee.store.format.system_names import SCHEDULE_TOPIC
from aerobee.store.results import GetResult, GetStatus, Location
from aerobee.store.selection import SelectiveReader

if TYPE_CHECKING:
    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.filters.subscription import Filter
    from aerobee.broker.pull.access import ReadAccess
    from aerobee.broker.pull.hold import Hold
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Outcome
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.pull import LitePullMessage, PullMessage

COMMIT_OFFSET: Final = 1
SUSPEND: Final = 2
SUBSCRIPTION: Final = 4

LITE_PULL: Final = int(RequestCode.LITE_PULL_MESSAGE)
NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
OFFSET_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
RETRY: Final = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
NOT_EXIST: Final = int(ResponseCode.SUBSCRIPTION_NOT_EXIST)
NOT_LATEST: Final = int(ResponseCode.SUBSCRIPTION_NOT_LATEST)
FILTER_NOT_EXIST: Final = int(ResponseCode.FILTER_DATA_NOT_EXIST)
FILTER_NOT_LATEST: Final = int(ResponseCode.FILTER_DATA_NOT_LATEST)

HOLD_MAX_MS: Final = 300_000
"""The longest wait, whatever the pull asks for."""

SERVICE: Final = "pull"
BROADCASTING_FORBIDDEN: Final = 4
SUBSCRIPTION_FORBIDDEN: Final = 5


class Pull:
    """The pull processor; `pull` serves both codes."""

    def __init__(
        self, core: Core, *, access: ReadAccess, consumers: ConsumerTables, hold: Hold
    ) -> None:
        self.config = core.config
        self._role = core.role
        self._in_group = core.config.failover.is_on
        self._store = core.store
        self._stats = core.stats
        self._clock = core.clock
        self._access = access
        self._groups = consumers.groups
        self._clients = consumers.clients
        self._offsets = consumers.offsets
        self._filters = consumers.filters
        self._compensation = consumers.compensation
        self._hold = hold
        self._selective = SelectiveReader(core.store, core.clock)

    def pull(
        self, header: PullMessage | LitePullMessage, command: Command, connection: Caller
    ) -> Outcome:
        """Answer with messages, or park the pull until some come."""
        self._check(header)
        matches = self._filter(header)
        if self._offsets.first_pulls.awaited and self._role.serves:
            self._look_at_first(header, connection)
        # In a group offsets are those of its master: what any other one took would be lost with its
        # next copy of them. Consumers commit there as well.
        if header.sys_flag & COMMIT_OFFSET and (self._role.serves or not self._in_group):
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
        if result.status is FOUND:
            return self._answer(header, 0, result)
        code = _code(result, header.queue_offset)
        if (
            code == NOT_FOUND
            and header.sys_flag & SUSPEND
            and self._park(header, command, connection, matches)
        ):
            return None
        return self._answer(header, code, result)

    def _look_at_first(self, header: PullMessage | LitePullMessage, connection: Caller) -> None:
        """Send a group back that has got more than the log has; what it has committed is the place
        of no consumer that broadcasts.
        """
        registered = self._clients.group(header.consumer_group)
        if registered is None or registered.message_model != BROADCASTING:
            queue = (header.consumer_group, header.topic, header.queue_id)
            now_ms = self._clock.now_ms()
            self._offsets.first_pull(queue, header.queue_offset, connection.id, now_ms)

    # ── Checks ──

    def _check(self, header: PullMessage | LitePullMessage) -> None:
        """Checks 1 to 7: broker, group, topic, queue."""
        if header.code == LITE_PULL and not self.config.broker.lite_pull_message_enable:
            self._access.broker()
            raise forbidden(BROKER_FORBIDDEN, "the broker for lite pull message is forbidden")
        self._access.pull(header.consumer_group, header.topic, header.queue_id)

    def _filter(self, header: PullMessage | LitePullMessage) -> Filter | None:
        """Checks 8 and 9: the filter of this pull; None passes all."""
        if header.sys_flag & SUBSCRIPTION:
            matches = filter_of(header.expression_type, header.subscription)
            now_ms = monotonic_ms(self._clock)
            self._compensation.note(header.consumer_group, header.topic, now_ms)
        else:
            matches = self._registered(header)
        if isinstance(matches, SqlFilter):
            if not self.config.broker.enable_property_filter:
                raise PropertyFilterOff(SQL92)
            return matches
        if matches.codes is None or header.topic == SCHEDULE_TOPIC:
            # The tags codes of delayed messages are times.
            return None
        return matches

    def _registered(self, header: PullMessage | LitePullMessage) -> Filter:
        """The filter that the group's heartbeats registered for the topic."""
        name = header.consumer_group
        registered = self._clients.group(name)
        if registered is None:
            raise Refusal(NOT_EXIST, f"the consumer's group info not exist, {name}")
        group = self._groups.require(name, self._clock.now_ms())
        if registered.message_model == BROADCASTING and not group.consume_broadcast_enable:
            remark = f"the consumer group[{name}] can not consume by broadcast way"
            raise forbidden(BROADCASTING_FORBIDDEN, remark)
        if not self._groups.may_read(name, header.topic):
            remark = f"the consumer group[{name}] is forbidden for topic[{header.topic}]"
            raise forbidden(SUBSCRIPTION_FORBIDDEN, remark)
        subscription = registered.subscriptions.get(header.topic)
        if subscription is None:
            raise Refusal(NOT_EXIST, f"the consumer's subscription not exist, {name}")
        if subscription.sub_version < header.sub_version:
            raise Refusal(NOT_LATEST, "the consumer's subscription not latest")
        if subscription.tag_filter is not None:
            return subscription.tag_filter
        known = self._filters.get(header.topic, name)
        if known is None or known.sql is None:
            raise Refusal(FILTER_NOT_EXIST, f"the consumer's filter data not exist, {name}")
        if known.client_version < header.sub_version:
            raise Refusal(FILTER_NOT_LATEST, "the consumer's filter data not latest")
        return known.sql

    # ── Read, answer, park ──

    def _read(
        self, header: PullMessage | LitePullMessage, matches: Filter | None, most: int = 0
    ) -> GetResult:
        """The result; with `most` of so many messages, or of so many that a filter looks at.

        Raises: NotInMemory, OSError.
        """
        if self._offsets.resets:
            queue = (header.consumer_group, header.topic, header.queue_id)
            at = self._offsets.take_reset(*queue)
            if at is not None:
                return self._nothing(header, GetStatus.OFFSET_RESET, at)
        max_bytes = max_count = None
        if header.bulk_bytes:
            max_bytes = min(header.bulk_bytes, self.config.broker.max_bulk_bytes)
            max_count = header.max_msg_nums
        place, count = (header.topic, header.queue_id, header.queue_offset), header.max_msg_nums
        if matches is not None and isinstance(matches, SqlFilter):
            return self._selective.get(
                *place, count, matches.matches, max_bytes=max_bytes, max_count=max_count, scan=most
            )
        count = most or count
        if max_bytes is None:
            return self._store.get(*place, count, matches)
        return self._store.get(*place, count, matches, max_bytes=max_bytes, max_count=count)

    async def _read_from_disk(
        self, header: PullMessage | LitePullMessage, matches: Filter | None
    ) -> Answer:
        """Of messages behind one that the disk cannot read, none is given; those in front of it
        are. Raises: MessageUnreadable where it is the first, OSError.
        """
        most = header.max_msg_nums
        if isinstance(matches, SqlFilter):
            most = self._selective.scan(most)
        try:
            read = partial(self._read, header, matches)
            result = await self._store.complete_some(read, most)
        except Unreadable as error:
            raise await self._unreadable(header, matches, error) from error
        if not self._store.shows_confirmed:
            result = self._nothing_yet(header)
        return self._answer(header, _code(result, header.queue_offset), result)

    async def _unreadable(
        self, header: PullMessage | LitePullMessage, matches: Filter | None, error: Unreadable
    ) -> MessageUnreadable:
        """The refusal of a pull whose first message the disk cannot read."""
        begin = Location(header.topic, header.queue_id, header.queue_offset, -1)
        where = await tell_first_wanted(self._store, SERVICE, begin, matches, error)
        broker = self.config.broker.broker_name
        return MessageUnreadable(header.consumer_group, broker, where, error)

    def _answer(
        self, header: PullMessage | LitePullMessage, code: int, result: GetResult
    ) -> Answer:
        status, next_offset = result.status, result.next_begin_offset
        if code == OFFSET_MOVED and self._keeps_offset(status):
            code, next_offset = RETRY, header.queue_offset
        response = PullAnswer(0, next_offset, result.min_offset, result.max_offset)
        if status is not FOUND:
            self._stats.pulls_missed += 1
            return Answer(code, response, status.name)
        self._stats.pulls_found += 1
        counters = self._stats.group_out(header.consumer_group, header.topic)
        counters.messages_out += result.count
        counters.bytes_out += result.size
        self._access.delivered(header.consumer_group, result.count, result.size)
        counters.pulled[header.queue_id] = result.next_begin_offset
        return Answer(0, response, "FOUND", result.views)

    def _keeps_offset(self, status: GetStatus) -> bool:
        """Whether a consumer stays where it is: a slave that is behind must not move it."""
        moves = status is GetStatus.OFFSET_RESET or self.config.replication.offset_check_in_slave
        return self._role.is_slave and not moves

    def _park(
        self,
        header: PullMessage | LitePullMessage,
        command: Command,
        connection: Caller,
        matches: Filter | None,
    ) -> bool:
        """Hold the pull; False when there is no room."""
        if self.config.broker.long_polling_enable:
            wait_ms = header.suspend_timeout_millis
        else:
            wait_ms = self.config.broker.short_polling_time_ms

        def resume() -> None:
            try:
                answer = self._again(header, matches)
            except CONTENT_ERRORS as error:
                # An error of one pull must not end the task that wakes the others.
                connection.failed(command, error)
            else:
                connection.answer(command, answer, held=True)

        queue = (header.topic, header.queue_id)
        deadline = trio.current_time() + min(max(wait_ms, 0), HOLD_MAX_MS) / 1000
        held = HeldPull(
            connection=connection,
            group=header.consumer_group,
            queue=queue,
            queue_offset=header.queue_offset,
            matches=matches,
            deadline=deadline,
            resume=resume,
            weight=weight_of(
                len(header.subscription or ""), shared=not isinstance(matches, SqlFilter)
            ),
        )
        # Drop the texts that the filter was compiled from.
        header.subscription = header.expression_type = header.proxy_froward_client_id = None
        return self._hold.park(held)

    def _again(self, header: PullMessage | LitePullMessage, matches: Filter | None) -> Answer:
        """Run the pull once more after its wait; whatever it finds is the answer."""
        try:
            self._access.group_is_there(header.consumer_group)
            self._check(header)
        except Refusal as refused:
            return Answer(refused.code, refused.header, refused.remark)
        try:
            # A member that begins to lead has in its queues what its group may still lose.
            shows = self._store.shows_confirmed
            result = self._read(header, matches) if shows else self._nothing_yet(header)
        except (NotInMemory, OSError):
            # The message that woke it is far behind by now. A held pull never waits for the disk,
            # and gets no disk errors.
            result = self._nothing_yet(header)
        return self._answer(header, _code(result, header.queue_offset), result)

    def _nothing_yet(self, header: PullMessage | LitePullMessage) -> GetResult:
        """An answer that makes the client pull the same offset again."""
        return self._nothing(header, GetStatus.NO_MATCHED_MESSAGE, header.queue_offset)

    def _nothing(
        self, header: PullMessage | LitePullMessage, status: GetStatus, next_begin_offset: int
    ) -> GetResult:
        """An answer without messages that sends the client to an offset."""
        queue = (header.topic, header.queue_id)
        return GetResult(
            status,
            next_begin_offset,
            self._store.min_offset(*queue),
            self._store.max_offset(*queue),
        )


def _code(result: GetResult, asked_offset: int) -> int:
    """The response code of a read; an empty queue was moved if the client's offset differs."""
    status = result.status
    if status is GetStatus.NO_MESSAGE_IN_QUEUE and asked_offset:
        return OFFSET_MOVED
    return PULL_CODES[status]
