"""The fates of received messages: acknowledged, hidden for longer, or dead letters.

Source: grpc §2.6, §2.8 (AckMessageActivity, ChangeInvisibleDurationActivity,
ForwardMessageToDLQActivity, DefaultReceiptHandleManager).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

import structlog
import trio

from aerobee.broker.grpc.rpc import Results, common_status, status_of
from aerobee.broker.grpc.translation.handles import check_own, read_handle
from aerobee.broker.grpc.translation.kept_handles import Holder, KeptHandles
from aerobee.broker.grpc.translation.names import group_of, topic_of
from aerobee.broker.grpc.translation.polling import checked_hidden
from aerobee.broker.grpc.translation.refusal import RpcRefused, outcome
from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.server.turns import Turns
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.pop import (
    AckMessage,
    ChangeInvisibleTime,
    ChangeInvisibleTimeResponse,
)
from aerobee.remoting.wire.headers.send import ConsumerSendMsgBack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from aerobee.broker.core.core import Core
    from aerobee.broker.grpc.caller import GrpcCaller
    from aerobee.broker.grpc.rpc import Rpc
    from aerobee.broker.grpc.translation.handles import Handle
    from aerobee.broker.grpc.translation.kept_handles import Client, KeptHandle
    from aerobee.broker.pop.pop_orders import PopOrderTable
    from aerobee.remoting.wire.answer import Answer

GIVEN_BACK_MS: Final = 1_000
"""After so long a message that nobody will read is visible again."""
ENTRIES_MAX: Final = 1_024
RENEW_EVERY_S: Final = 5.0
NO_PUTS: Final = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY})
"""Answers of a broker that has no room, or is no master."""
DEAD: Final = -1
"""The delay level of a dead letter."""

log = structlog.stdlib.get_logger(__name__)


class Fates:
    """The three calls, and the renewals of messages that somebody works on."""

    def __init__(
        self,
        core: Core,
        own: Callable[[], GrpcCaller | None],
        has_stream: Callable[[str], bool],
        orders: PopOrderTable,
    ) -> None:
        """`own` gives the caller of our own requests; None: the port has served nobody yet.
        `has_stream`: whether a client of this id has one, or had just now.
        """
        self._orders = orders
        self._has_stream = has_stream
        self._config, self._broker = core.config, core.config.broker
        self._clock = core.clock
        self._flush = core.rounds.flush
        self._own = own
        self._wanted = trio.Event()
        self.kept = KeptHandles()
        self._refusing = False
        """Whether the broker could not put when a message was to be visible again."""
        self.may_hide: Callable[[Holder, ChangeInvisibleTime], bool] | None = None
        """Whether the account of a client may hide a message; None: accounts are not asked for."""

    def keep(self, caller: GrpcCaller, group: str, topic: str, handle: Handle) -> None:
        """Hide a message again and again, for as long as its client works on it."""
        self.kept.keep(holder_of(caller), group, topic, handle)

    # ── AckMessage ──

    def acknowledge(self, rpc: Rpc, request: Any) -> None:
        """Acknowledge every entry by itself. Raises: RpcRefused."""
        group, topic = group_of(request.group), topic_of(request.topic)
        entries = request.entries
        if not entries:
            raise RpcRefused(Code.BAD_REQUEST, "ack message result is empty: no entry was sent")
        if len(entries) > ENTRIES_MAX:
            raise RpcRefused(
                Code.BAD_REQUEST, f"{len(entries)} entries, at most {ENTRIES_MAX} are acknowledged"
            )
        rpc.ask_in_turns(self._acknowledgements(rpc, group, topic, entries))

    def _acknowledgements(
        self, rpc: Rpc, group: str, topic: str, entries: Sequence[Any]
    ) -> Iterator[None]:
        results, now_ms = Results(len(entries)), self._clock.now_ms()
        for number, entry in enumerate(entries):
            then = partial(self._acknowledged, rpc, results, number, entry)
            try:
                came = read_handle(entry.receipt_handle)
                handle = self._current(rpc, group, topic, came, now_ms)
            except RpcRefused as refused:
                then((refused.code, refused.text))
            else:
                forget = partial(self.kept.drop, client_of(rpc), group, topic, came)
                header = acknowledgement(group, topic, handle)
                rpc.ask(header, partial(_with_outcome, then, forget))
            yield

    def _acknowledged(
        self,
        rpc: Rpc,
        results: Results,
        number: int,
        entry: Any,
        outcome: tuple[Code, str],
    ) -> None:
        code, text = outcome
        result = messages.AckMessageResultEntry(
            message_id=entry.message_id,
            receipt_handle=entry.receipt_handle,
            status=status_of(code, text),
        )
        if results.put(number, result):
            status = named(common_status([result.status for result in results.all]))
            rpc.say(messages.AckMessageResponse(status=status, entries=results.all))

    def _current(
        self, caller: GrpcCaller, group: str, topic: str, came: Handle, now_ms: int
    ) -> Handle:
        """The handle that a message has now, by the one that came. In order it is good for as long
        as the message is out, also after a start that has kept no other. Raises: RpcRefused.
        """
        check_own(came, self._broker.broker_name)
        receipt = came.receipt
        place = receipt.queue_id, receipt.offset, receipt.pop_time
        if receipt.in_order and self._orders.is_out(came.topic(topic, group), group, *place):
            return came
        return self.kept.current(client_of(caller), group, topic, came, now_ms)

    def acknowledge_silently(
        self, caller: GrpcCaller, group: str, topic: str, handle: Handle
    ) -> None:
        """Acknowledge a message that its client did not want."""
        caller.ask(acknowledgement(group, topic, handle), lambda _: None, own=True)

    # ── ChangeInvisibleDuration ──

    def change(self, rpc: Rpc, request: Any) -> None:
        """Hide a message for so long from now on. Raises: RpcRefused."""
        group, topic = group_of(request.group), topic_of(request.topic)
        hidden_ms = checked_hidden(request.invisible_duration.ToMilliseconds())
        came = read_handle(request.receipt_handle)
        handle = self._current(rpc, group, topic, came, self._clock.now_ms())

        def changed(answer: Answer) -> None:
            after = hidden_again(handle, answer)
            self.kept.change(holder_of(rpc), group, topic, handle, after)
            rpc.done(receipt_handle=after.text())

        rpc.request(change_of(group, topic, handle, hidden_ms), changed)

    def give_back(
        self,
        caller: GrpcCaller,
        group: str,
        topic: str,
        handles: Iterable[Handle],
        then: Callable[[Answer], None] = lambda _: None,
    ) -> None:
        """Make messages visible again that their client has not got, or works on no more."""
        for handle in handles:
            caller.ask(change_of(group, topic, handle, GIVEN_BACK_MS), then, own=True)

    def take_back(
        self, caller: GrpcCaller, group: str, topic: str, handles: Iterable[Handle]
    ) -> None:
        """As `give_back`, of those with which nothing has happened since they were received."""
        client = client_of(caller)
        for handle in handles:
            kept = self.kept.find(client, group, topic, handle)
            if kept is not None and kept.current is handle:
                self.kept.drop(client, group, topic, handle)
                self.give_back(caller, group, topic, (handle,))

    # ── ForwardMessageToDeadLetterQueue ──

    def forward(self, rpc: Rpc, request: Any) -> None:
        """Make a message a dead letter of its group. Raises: RpcRefused."""
        group, topic = group_of(request.group), topic_of(request.topic)
        client, came = client_of(rpc), read_handle(request.receipt_handle)
        kept = self.kept.find(client, group, topic, came)
        # Its time may be over: in order, a client works on it for as long as it wants.
        handle = kept.current if kept is not None else came
        check_own(handle, self._broker.broker_name)

        def stored(_: Answer) -> None:
            self.kept.drop(client, group, topic, came)
            # A renewal may have come while the message was stored.
            now = kept.current if kept is not None else handle
            # Ours: refused by a rate, it would leave a message that is dead, and delivered again.
            rpc.ask(acknowledgement(group, topic, now), lambda _: rpc.done(), own=True)

        rpc.request(dead_letter(group, topic, handle, request.message_id), stored)

    def bury(self, caller: GrpcCaller, group: str, topic: str, handle: Handle) -> None:
        """Make a message a dead letter that was delivered too often."""

        def stored(answer: Answer) -> None:
            if answer.code:
                log.warning("grpc.not_buried", group=group, topic=topic, reason=answer.remark)
            else:
                self.acknowledge_silently(caller, group, topic, handle)

        caller.ask(dead_letter(group, topic, handle, ""), stored, own=True)

    # ── Renewals ──

    def client_gone(self, caller: GrpcCaller) -> None:
        """Nobody works on the messages of a client any more."""
        self.kept.client_gone(client_of(caller))
        self._wanted.set()

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Hide messages again for as long as their clients work on them."""
        task_status.started()
        look_at = trio.current_time() + RENEW_EVERY_S
        while True:
            with trio.move_on_at(look_at):
                await self._wanted.wait()
            self._wanted = trio.Event()
            await self._each(self._left(), self._give_up)
            # Also where some client goes every second.
            if trio.current_time() >= look_at:
                await self._each(self.kept.due(self._clock.now_ms()), self._renew)
                look_at = trio.current_time() + RENEW_EVERY_S

    def _left(self) -> Iterator[KeptHandle | None]:
        """The messages to be visible again; while the broker cannot put, one of them shows that."""
        self._refusing = False
        for kept in self.kept.left():
            yield kept
            if self._refusing:
                return

    async def _each(
        self,
        steps: Iterable[KeptHandle | None],
        act: Callable[[GrpcCaller, KeptHandle], None],
    ) -> None:
        """Act for each message of these steps, in turns with others."""
        turns = Turns()
        for kept in steps:
            caller = self._own()
            if kept is not None and caller is not None:
                act(caller, kept)
                self._flush()
            await turns.give_way()

    def _give_up(self, caller: GrpcCaller, kept: KeptHandle) -> None:
        """Make a message visible again; later, where the broker cannot put now."""
        if kept.current.visible_ms < self._clock.now_ms():
            return

        def given(answer: Answer) -> None:
            if answer.code in NO_PUTS:
                self._refusing = True
                self.kept.leave(kept)

        self.give_back(caller, kept.group, kept.topic, (kept.current,), given)

    def _renew(self, caller: GrpcCaller, kept: KeptHandle) -> None:
        """Hide a message again, with the rights that the account of its client has now. Of a client
        without a stream nobody tells that it has gone: then the message is visible again.
        """
        if kept.holder.connection.closed and not self._has_stream(kept.holder.client_id):
            self._drop(kept)
            self._give_up(caller, kept)
            return
        hidden_ms = kept.next_ms(self._clock.now_ms())
        handle = kept.current
        for_ms = min(hidden_ms or 0, self._config.store.timer_max_delay_s * 1_000)
        header = change_of(kept.group, kept.topic, handle, for_ms)
        if hidden_ms is None or (self.may_hide and not self.may_hide(kept.holder, header)):
            self._drop(kept)
            return

        def changed(answer: Answer) -> None:
            if answer.code:
                kept.failures += 1
            else:
                kept.became(hidden_again(handle, answer))

        caller.ask(header, changed, own=True)

    def _drop(self, kept: KeptHandle) -> None:
        self.kept.drop(kept.holder.client, kept.group, kept.topic, kept.first)


def client_of(caller: GrpcCaller) -> Client:
    """Whose kept handles a call may mean."""
    return caller.client_id, caller.signer.access_key


def holder_of(caller: GrpcCaller) -> Holder:
    """The client that receives messages by a call."""
    return Holder(*client_of(caller), caller.accounts, caller.host, caller.channel)


def _with_outcome(
    then: Callable[[tuple[Code, str]], None], forget: Callable[[], None], answer: Answer
) -> None:
    if not answer.code:
        forget()
    then(outcome(answer))


def named(status: Any) -> Any:
    """A status that has the name of its code, by which clients know a handle that has expired.

    The name is all that RocketMQ's proxy says of several entries, and clients show nothing else.
    """
    name = Code(status.code).name
    return status if status.message == name else status_of(status.code, f"{name}: {status.message}")


def acknowledgement(group: str, topic: str, handle: Handle) -> AckMessage:
    """The request that acknowledges a message."""
    receipt = handle.receipt
    return AckMessage(
        group, handle.topic(topic, group), receipt.queue_id, receipt.text(), receipt.offset
    )


def change_of(group: str, topic: str, handle: Handle, hidden_ms: int) -> ChangeInvisibleTime:
    """The request that hides a message for so long from now on."""
    receipt = handle.receipt
    real = handle.topic(topic, group)
    return ChangeInvisibleTime(
        group, real, receipt.queue_id, receipt.text(), receipt.offset, hidden_ms
    )


def hidden_again(handle: Handle, answer: Answer) -> Handle:
    """The handle that a message has after a change."""
    header = answer.header
    assert isinstance(header, ChangeInvisibleTimeResponse)
    return handle.hidden_again(header.pop_time, header.invisible_time, header.revive_qid)


def dead_letter(group: str, topic: str, handle: Handle, message_id: str) -> ConsumerSendMsgBack:
    """The request that makes a message a dead letter."""
    return ConsumerSendMsgBack(
        handle.physical_offset,
        group,
        DEAD,
        origin_msg_id=message_id,
        origin_topic=topic,
        max_reconsume_times=0,
    )
