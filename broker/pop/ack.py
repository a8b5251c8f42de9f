"""ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME: the fate of popped messages.

A receipt names the pop that a message came from. An acknowledgement is sent to the revive log by
way of a timer, where it meets the check point of that pop; one for an unknown pop has no effect. A
new invisible time is a new check point for one message, and an acknowledgement of the old one.
Messages of an orderly pop have no check point: `pop_orders` has a table of what is invisible.
Source: semantics §11.2, remoting §3.12 (AckMessageProcessor, ChangeInvisibleTimeProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.answers import STORED, first_put_refused, put_refused
from aerobee.broker.core.names import group_problem
from aerobee.broker.errors import GroupNotExist, Refusal, TopicNotExist
from aerobee.broker.pop.pop import check_hidden, check_timers
from aerobee.broker.pop.pop_orders import OffsetIllegal
from aerobee.broker.pop.pop_records import (
    GRACE_MS,
    ORDER_REVIVE_QID,
    CheckPoint,
    PopKey,
    Receipt,
    is_of_a_group,
    receipt_of,
    retry_topic_v1,
    retry_topic_v2,
)
from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.pop import BatchAckRequest, offsets_in
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.pop import ChangeInvisibleTimeResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.pop.revive_log import PopsOut
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Steps
    from aerobee.remoting.wire.bodies.pop import BatchAck
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.pop import AckMessage, BatchAckMessage, ChangeInvisibleTime
    from aerobee.store.message_store import MessageStore
    from aerobee.store.results import PutStatus

DONE: Final = Answer()
NO_MESSAGE: Final = int(ResponseCode.NO_MESSAGE)
ILLEGAL: Final = int(ResponseCode.MESSAGE_ILLEGAL)
ACKS_MAX: Final = 4096
"""The most pops whose messages one request may acknowledge."""
BITS_MAX: Final = 1 << 17
"""Characters of all bit sets of one request."""
ACKS_STEP: Final = 32
"""Acknowledgements that are checked, or stored, in one step."""
BITS_STEP: Final = 1_024
"""A longer bit set takes a step by itself."""
BITS_SHORT: Final = 128
"""No more characters of bit sets need no steps: less than a millisecond."""
TOPICS: Final = {"1": retry_topic_v1, "2": retry_topic_v2}


class Acknowledge:
    """The processor of the three codes."""

    def __init__(
        self, core: Core, *, topics: TopicTable, consumers: ConsumerTables, out: PopsOut
    ) -> None:
        self._config = core.config
        self._guarded = core.config.auth.enabled
        self._groups = consumers.groups
        self._store = core.store
        self._clock = core.clock
        self._topics = topics
        self._revive_log = out.revive_log
        self._offsets = out.offsets
        self._orders = out.orders
        self._hold = out.hold
        self._timed = out.timed
        self._stats = core.stats.pop

    # ── The requests ──

    def one(self, header: AckMessage, command: Command, connection: Caller) -> Answer:
        """ACK_MESSAGE."""
        _check_group(header.consumer_group)
        self._check_queue(header.topic, header.queue_id, header.consumer_group)
        self._check_offset(header.topic, header.queue_id, header.offset)
        receipt = self._receipt(header.extra_info, header.offset)
        key = _key(header, receipt)
        if receipt.in_order:
            self._in_order(key, header.offset)
        else:
            self._acknowledge(key, [header.offset], receipt, refused=first_put_refused)
            self._done(key, 1)
        return DONE

    def batch(
        self, header: BatchAckMessage, command: Command, connection: Caller
    ) -> Answer | Steps:
        """BATCH_ACK_MESSAGE: everything is checked before anything is stored.

        An entry for a topic that is gone is passed over, as in the Java broker: messages of others
        would be delivered again for it. A batch with nothing else is refused.
        """
        request = BatchAckRequest.from_client(command.body)
        if not request.acks:
            raise Refusal(NO_MESSAGE, "the request acknowledges nothing")
        if len(request.acks) > ACKS_MAX:
            raise Refusal(ILLEGAL, f"{len(request.acks)} acks in one request, {ACKS_MAX} are read")
        characters = sum([len(ack.bits) for ack in request.acks])
        if characters > BITS_MAX:
            raise Refusal(ILLEGAL, f"bit sets of {characters} characters, {BITS_MAX} are read")
        broker = request.broker_name or self._config.broker.broker_name
        steps = self._in_steps(request.acks, broker)
        if len(request.acks) > ACKS_STEP or characters > BITS_SHORT:
            return steps
        for _ in steps:
            pass
        return DONE

    def _in_steps(self, acks: list[BatchAck], broker: str) -> Steps:
        """Check all entries of a batch, then store them."""
        work = []
        gone: TopicNotExist | None = None
        for number, ack in enumerate(acks, 1):
            try:
                work.append(self._looked_at(ack, broker))
            except TopicNotExist as error:
                gone = error
            if number % ACKS_STEP == 0 or len(ack.bits) > BITS_STEP:
                yield
        if gone is not None and not work:
            raise gone
        done = 0
        for key, offsets, receipt in work:
            if not offsets:
                continue
            for offset in offsets if receipt.in_order else ():
                self._in_order(key, offset)
                done += 1
                if done % ACKS_STEP == 0:
                    yield
            if not receipt.in_order:
                self._acknowledge(key, offsets, receipt)
                self._done(key, len(offsets))
                done += 1
                if done % ACKS_STEP == 0 or len(offsets) > BITS_STEP:
                    yield
        return DONE

    def change(self, header: ChangeInvisibleTime, command: Command, connection: Caller) -> Answer:
        """CHANGE_MESSAGE_INVISIBLETIME: invisible for that long from now on, under a new
        receipt.
        """
        check_timers(self._timed)
        check_hidden(self._config, header.invisible_time)
        _check_group(header.consumer_group)
        self._check_queue(header.topic, header.queue_id, header.consumer_group)
        end = self._store.max_offset(header.topic, header.queue_id)
        self._check_offset(header.topic, header.queue_id, header.offset, end=end - 1)
        receipt = self._receipt(header.extra_info, header.offset)
        if receipt.broker != self._config.broker.broker_name:
            # The message would be delivered twice: this broker cannot know that it was hidden.
            raise Refusal(NO_MESSAGE, f"the receipt is of broker {receipt.broker[:40]!r}")
        key = _key(header, receipt)
        now_ms = self._clock.now_ms()
        if receipt.in_order:
            self._hide_in_order(key, header.offset, now_ms + header.invisible_time)
            hidden_ms = now_ms + header.invisible_time - receipt.pop_time
            return Answer(
                header=ChangeInvisibleTimeResponse(receipt.pop_time, hidden_ms, ORDER_REVIVE_QID)
            )
        late_ms = now_ms - receipt.pop_time - receipt.invisible_time
        if late_ms > GRACE_MS:
            # The message may be back already, and a new check point would bring it once more.
            raise Refusal(
                NO_MESSAGE, f"the receipt ended {late_ms} ms ago: the message is delivered again"
            )
        # In the same millisecond as the receipt's pop, the new check point would have its key, and
        # the acknowledgement below would acknowledge both.
        popped_ms = max(now_ms, receipt.pop_time + 1)
        hidden_ms = now_ms + header.invisible_time - popped_ms
        point = CheckPoint(
            start_offset=header.offset,
            pop_time=popped_ms,
            invisible_time=hidden_ms,
            count=1,
            queue_id=header.queue_id,
            topic=header.topic,
            group=header.consumer_group,
            diffs=[0],
            broker=receipt.broker,
        )
        status = self._revive_log.check_point(point, [header.offset], receipt.revive_qid)
        if status not in STORED:
            raise first_put_refused(status, self._store)
        # If this one is not stored, the message is delivered twice, which is better than never.
        self._acknowledge(key, [header.offset], receipt)
        return Answer(header=ChangeInvisibleTimeResponse(popped_ms, hidden_ms, receipt.revive_qid))

    # ── Checks ──

    def _check_queue(self, topic: str, queue_id: int, group: str) -> None:
        """Refuse a queue that the topic never had, or that no pop of the group reads.

        Raises: Refusal.
        """
        config = self._topics.get(topic)
        if self._guarded and is_of_a_group(topic, group, self._groups.get):
            config = None
        if config is None:
            raise TopicNotExist(topic)
        was_read = self._store.max_offset(topic, queue_id) > 0
        if not (was_read or 0 <= queue_id < config.read_queue_nums):
            raise Refusal(
                ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}]",
            )

    def _check_offset(self, topic: str, queue_id: int, offset: int, end: int | None = None) -> None:
        """Refuse a queue offset outside of the queue. Raises: Refusal."""
        first = self._store.min_offset(topic, queue_id)
        end = self._store.max_offset(topic, queue_id) if end is None else end
        if not first <= offset <= end:
            raise Refusal(
                NO_MESSAGE,
                f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{first}~{end}",
            )

    def _receipt(self, text: str, offset: int) -> Receipt:
        """Decode and check a receipt handle. Raises: Refusal."""
        try:
            receipt = receipt_of(text, offset)
        except BodyError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from error
        self._check_receipt(receipt)
        return receipt

    def _check_receipt(self, receipt: Receipt) -> None:
        """Check a receipt for a queue or a time that no pop of this broker can have had.

        Raises: Refusal.
        """
        if not receipt.broker.isprintable():
            # The name becomes part of a property, so it must not contain the separators of
            # properties.
            raise Refusal(ILLEGAL, f"the receipt names the broker {receipt.broker[:40]!r}")
        if receipt.in_order:
            return
        config = self._topics.get(self._revive_log.topic)
        count = 0 if config is None else config.read_queue_nums
        if not 0 <= receipt.revive_qid < count:
            remark = f"the receipt names revive queue {receipt.revive_qid}, {count} are here"
            raise Refusal(ILLEGAL, remark)
        due_ms = receipt.pop_time + receipt.invisible_time
        if due_ms < 0:
            raise Refusal(ILLEGAL, f"the receipt is valid until {due_ms}, which is no time")
        ahead_ms = due_ms - self._clock.now_ms()
        if ahead_ms > self._config.store.timer_max_delay_s * 1000:
            raise Refusal(ILLEGAL, f"the receipt is valid for {ahead_ms} ms, longer than any")

    def _looked_at(self, ack: BatchAck, broker: str) -> tuple[PopKey, list[int], Receipt]:
        """Check one entry of a batch; offsets outside of the queue are left out."""
        _check_group(ack.group)
        name = TOPICS.get(ack.retry)
        topic = name(ack.topic, ack.group) if name else ack.topic
        self._check_queue(topic, ack.queue_id, ack.group)
        first = self._store.min_offset(topic, ack.queue_id)
        end = self._store.max_offset(topic, ack.queue_id)
        offsets = offsets_in(ack.bits, ack.start_offset)
        if offsets and not (first <= offsets[0] and offsets[-1] <= end):
            offsets = [offset for offset in offsets if first <= offset <= end]
        receipt = Receipt(
            ack.start_offset,
            ack.pop_time,
            ack.invisible_time,
            ack.revive_qid,
            ack.retry,
            broker,
            ack.queue_id,
            -1,
        )
        self._check_receipt(receipt)
        key = PopKey(topic, ack.group, ack.queue_id, ack.start_offset, ack.pop_time, broker)
        return key, offsets, receipt

    # ── What follows ──

    def _acknowledge(
        self,
        key: PopKey,
        offsets: list[int],
        receipt: Receipt,
        refused: Callable[[PutStatus, MessageStore], Refusal] = put_refused,
    ) -> None:
        """Put the acknowledgement of some offsets into the revive log.

        Raises: the error of `refused` when it cannot be stored.
        """
        due_ms = receipt.pop_time + receipt.invisible_time
        status = self._revive_log.acknowledge(key, offsets, receipt.revive_qid, due_ms)
        if status not in STORED:
            raise refused(status, self._store)

    def _done(self, key: PopKey, count: int) -> None:
        """So many messages of a pop are in flight no more."""
        self._stats.done(key.group, key.topic, key.queue_id, count, key.pop_time)

    def _in_order(self, key: PopKey, offset: int) -> None:
        """Acknowledge a message of an orderly pop; the group's offset moves when its batch is
        complete.

        Raises: Refusal for an offset that was not popped.
        """
        topic, group, queue_id = key.topic, key.group, key.queue_id
        committed = self._offsets.query(group, topic, queue_id)
        if offset < committed:
            return
        try:
            following = self._orders.acknowledge(
                topic, group, queue_id, offset, key.pop_time, committed
            )
        except OffsetIllegal as error:
            remark = f"offset is illegal, key:{topic}@{group}@{queue_id}, commit:{offset}: {error}"
            raise Refusal(ILLEGAL, remark) from error
        if following is None:
            return
        now_ms = self._clock.now_ms()
        self._offsets.commit(group, topic, queue_id, following, now_ms)
        if not self._orders.blocked_until(topic, group, queue_id, None, now_ms, following):
            self._free(key)

    def _hide_in_order(self, key: PopKey, offset: int, visible_at: int) -> None:
        if offset >= self._offsets.query(key.group, key.topic, key.queue_id):
            self._orders.hide(key.topic, key.group, key.queue_id, offset, key.pop_time, visible_at)
            self._free(key)

    def _free(self, key: PopKey) -> None:
        """Let pops that wait for the queue try again, now or when it will be unblocked."""
        self._hold.freed(key.topic, key.group, key.queue_id)


def _check_group(group: str) -> None:
    """Refuse an invalid group name, since it goes into properties. Raises: GroupNotExist."""
    if group_problem(group, stored=True):
        raise GroupNotExist(group)


def _key(header: AckMessage | ChangeInvisibleTime, receipt: Receipt) -> PopKey:
    """The key of the pop: topic, group and queue of the request, the time of the receipt."""
    return PopKey(
        header.topic,
        header.consumer_group,
        header.queue_id,
        receipt.start_offset,
        receipt.pop_time,
        receipt.broker,
    )
