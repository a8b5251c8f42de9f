"""Pulls one held queue until it is dropped. Source: client §11, remoting §3.6."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.steps.answers import error_of, header_of, topic_of
from aerobee.client.steps.checking import filter_refused
from aerobee.client.steps.effects import Ask, Wait
from aerobee.client.steps.messages import NoRoom, received
from aerobee.errors import (
    AerobeeError,
    BrokerError,
    BrokerNotFoundError,
    MessageUnreadableError,
    NoNameServerError,
    RouteNotFoundError,
    TransportError,
)
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.pull import LitePullMessage, PullMessage, PullMessageResponse

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.held_queue import HeldQueue, Subscription
    from aerobee.client.steps.instance import Instance
    from aerobee.remoting.wire.command import Command

MAY_SUSPEND = 2
HAS_SUBSCRIPTION = 4
LITE = 16
SUSPEND_MS = 20_000
"""How long a broker may hold a pull while there are no new messages."""
ANSWER_WITHIN_S = 30.0
ROOM_CHECK_S = 1.0
PAUSE_S = 1.0
"""The pause after a failed pull."""
AGAIN_PAUSE_S = 0.05
"""The pause before the same pull, if the broker wants it again: a slave may be behind for long."""
ROUTE_AGAIN_S = 5.0
"""How often failing pulls query the route: name servers must cope with those of all clients."""
PULL_AGAIN = (
    TransportError,
    BrokerError,
    BrokerNotFoundError,
    RouteNotFoundError,
    NoNameServerError,
)
"""The errors after which a queue is pulled again."""
NOTHING_THERE = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def pull_of_one(
    group: str,
    queue: MessageQueue,
    offset: int,
    expression: str = "*",
    expression_type: str = "TAG",
) -> PullMessage:
    """A pull of one message that commits nothing and is answered at once."""
    return PullMessage(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=1,
        sys_flag=HAS_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=expression,
        sub_version=0,
        expression_type=expression_type,
    )


class Puller:
    """The pull requests of one group."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        batch: int,
        at_time: Callable[[MessageQueue, datetime], Steps[int]],
        begin_anew: Callable[[HeldQueue, int], Steps[None]],
    ) -> None:
        """`at_time` finds the first message of a queue that was stored then or later.

        `begin_anew` continues a queue at another offset.
        """
        self._at_time = at_time
        self._begin_anew = begin_anew
        self.instance = instance
        self.group = group
        self.batch = batch
        self._old_brokers: set[str] = set()
        """Addresses that support only PULL_MESSAGE (4.9)."""

    def pull_or_wait(self, held: HeldQueue, subscription: Subscription) -> Steps[None]:
        """Pull once; or wait, if there is no room or the queue is broken."""
        interrupt, cache = held.interrupt, held.cache
        if held.broken is not None:
            yield Wait(interrupt, ANSWER_WITHIN_S)
        elif held.full:
            cache.room.clear()
            yield Wait(cache.room, ROOM_CHECK_S)
        else:
            pause_s = yield from self.pull(held, subscription)
            if pause_s:
                yield Wait(interrupt, pause_s)

    def pull(self, held: HeldQueue, subscription: Subscription) -> Steps[float]:
        """Pull once; returns the seconds to pause before the next pull."""
        name, topic = held.queue.broker_name, held.queue.topic
        # Ahead of the first wait: another subscription, or a seek, counts from its begin.
        interrupt = held.interrupt
        try:
            yield from self.instance.locate(held.queue, self.instance.config.request_timeout)
            if held.interrupt is not interrupt:
                return 0.0
            ask = self._ask(held, subscription)
            asked_at, asked_for = self.instance.clock.monotonic(), held.next_offset
            answer = yield ask
            if interrupt.is_set or answer is None:
                return 0.0
            held.pulled_at = self.instance.clock.monotonic()
            before = len(held.waiting)
            if answer.code == ResponseCode.PULL_OFFSET_MOVED:
                yield from self._follow(held, ask, answer)
            else:
                self._keep(held, subscription, ask, answer)
            if answer.code == ResponseCode.SUCCESS:
                self.instance.works_again(f"moved {held.queue}")
                held.counts.pulls += 1
                held.counts.pull_s += held.pulled_at - asked_at
                held.counts.pulled += len(held.waiting) - before
        except PULL_AGAIN as error:
            if not isinstance(error, BrokerError):
                self.instance.suspect(topic, ROUTE_AGAIN_S)
            elif refused := filter_refused(subscription, error):
                held.broken = refused
                held.cache.arrived.set()
                return 0.0
            # A broker that is away fails for all of its queues; one that refuses, maybe for some.
            about = f"pull {held.queue if isinstance(error, BrokerError) else name}"
            self.instance.log_once(about, "pulling %s failed: %s", held.queue, error)
            return PAUSE_S
        self.instance.works_again(f"pull {name}")
        self.instance.works_again(f"pull {held.queue}")
        same = answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and held.next_offset == asked_for
        return AGAIN_PAUSE_S if same else 0.0

    def _ask(self, held: HeldQueue, subscription: Subscription) -> Ask:
        address = self.instance.reader(held.queue.broker_name)
        lite = address not in self._old_brokers
        made = LitePullMessage if lite else PullMessage
        header = made(
            consumer_group=self.group,
            topic=held.queue.topic,
            queue_id=held.queue.queue_id,
            queue_offset=held.next_offset,
            max_msg_nums=min(self.batch, held.pull_max),
            sys_flag=MAY_SUSPEND | HAS_SUBSCRIPTION | (LITE if lite else 0),
            commit_offset=0,
            suspend_timeout_millis=SUSPEND_MS,
            subscription=subscription.filter.expression,
            sub_version=0,
            expression_type=subscription.filter.kind,
        )
        return Ask(address=address, header=header, timeout_s=ANSWER_WITHIN_S, until=held.interrupt)

    def _keep(self, held: HeldQueue, subscription: Subscription, ask: Ask, answer: Command) -> None:
        """Apply a response to the queue. Raises: BrokerError, TransportError."""
        match answer.code:
            case ResponseCode.SUCCESS:
                if not self._keep_messages(held, subscription, answer):
                    return
            case ResponseCode.PULL_NOT_FOUND | ResponseCode.PULL_RETRY_IMMEDIATELY:
                pass
            case ResponseCode.REQUEST_CODE_NOT_SUPPORTED if isinstance(ask.header, LitePullMessage):
                self._old_brokers.add(ask.address)
                return
            case _:
                raise error_of(ask, answer, held.queue.broker_name)
        if held.broken is None:
            held.next_offset = next_offset(ask, answer)

    def _follow(self, held: HeldQueue, ask: Ask, answer: Command) -> Steps[None]:
        """Continue at the offset of a broker, which does not have the wanted one.

        Pulled messages stay if the wanted one has expired. A queue that ends before it was made
        anew with its topic, or lost its end with its broker: then nothing is skipped that is
        unfinished, or was stored since the last pulled message. Raises: as `pull` handles.
        """
        queue, wanted, interrupt = held.queue, held.next_offset, held.interrupt
        moved = next_offset(ask, answer)
        bounds = header_of(ask, answer, PullMessageResponse)
        if moved == bounds.min_offset > wanted:
            held.next_offset = moved
        else:
            if wanted > bounds.max_offset:
                moved = min(moved, held.commit_point)
                if held.stored_at is not None:
                    moved = min(moved, (yield from self._at_time(queue, held.stored_at)))
            if interrupt.is_set:
                return
            held.lost = True
            yield from self._begin_anew(held, moved)
        text = "%s: offset %d is not there, going on at %d"
        self.instance.log_once(f"moved {queue}", text, queue, wanted, moved)

    def _keep_messages(self, held: HeldQueue, subscription: Subscription, answer: Command) -> bool:
        """Add the messages of a response, up to the first that is unreadable or finds no room.

        Returns whether there was room for all. Raises: TransportError.
        """
        wants = subscription.filter.wants
        seen, whole = 0, True
        try:
            name, namespace = held.queue.broker_name, self.instance.config.namespace
            for message in received(answer.body, name, namespace, lambda: held.room_bytes):
                seen += 1
                held.stored_at = message.stored_at
                if message.queue_offset < held.next_offset:
                    continue
                if wants(message.tag):
                    if message.unreadable is not None:
                        held.broken = MessageUnreadableError(message)
                        break
                    held.add(message)
                held.next_offset = message.queue_offset + 1
        except NoRoom:
            whole = False
        held.count_pull(seen, whole=whole)
        held.cache.arrived.set()
        return whole


def next_offset(ask: Ask, answer: Command) -> int:
    """The next offset in a response. Raises: TransportError if it is missing."""
    offset = header_of(ask, answer, PullMessageResponse).next_begin_offset
    if offset is None:
        text = f"{ask.address} answered a pull without nextBeginOffset"
        raise TransportError(text).about(topic=topic_of(ask), address=ask.address)
    return offset


def raise_if_broken(held: HeldQueue) -> None:
    """Raise the error of a broken queue, once all messages before it are delivered.

    Raises: MessageUnreadableError once nothing readable is left before the broken message,
    SubscriptionError if the broker does not support the filter.
    """
    error: AerobeeError | None = held.broken
    if error is not None and not held.waiting:
        raise error
