"""SendMessage, EndTransaction and RecallMessage: the requests of producers.

Source: grpc §2.9, §2.10 (SendMessageActivity, EndTransactionActivity, RecallMessageActivity).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.grpc.rpc import OK, Results, common_status, status_of
from aerobee.broker.grpc.translation.message_types import types_of
from aerobee.broker.grpc.translation.names import found, topic_of
from aerobee.broker.grpc.translation.refusal import RpcRefused, outcome
from aerobee.broker.grpc.translation.sent import Sender, header_of
from aerobee.broker.grpc.translation.transaction_ids import TransactionId, read_transaction_id
from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.enums import (
    Code,
    MessageType,
    TransactionResolution,
    TransactionSource,
)
from aerobee.remoting.wire.bodies.client import ProducerData
from aerobee.remoting.wire.headers.send import (
    RecallMessage,
    RecallMessageResponse,
    SendMessageResponse,
)
from aerobee.remoting.wire.headers.transaction import EndTransaction
from aerobee.store.format.message_id import read_offset_id
from aerobee.store.format.record import (
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core
    from aerobee.broker.grpc.clients import Client, Clients
    from aerobee.broker.grpc.rpc import Rpc
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.headers.send import SendMessageV2

MESSAGES_MAX: Final = 128
"""Messages in one request; the official clients send one."""
ENDS: Final = {
    TransactionResolution.COMMIT: TRANSACTION_COMMIT,
    TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK,
}


class Producing:
    """The three calls."""

    def __init__(self, core: Core, topics: TopicTable, clients: Clients) -> None:
        self._config = core.config
        self._clock = core.clock
        self._topics = topics
        self._clients = clients

    # ── SendMessage ──

    def send(self, rpc: Rpc, request: Any) -> None:
        """Send every message; they have one topic. Raises: RpcRefused, and nothing is sent."""
        sent = request.messages
        if not sent:
            raise RpcRefused(Code.MESSAGE_CORRUPTED, "no message to send")
        if len(sent) > MESSAGES_MAX:
            raise RpcRefused(
                Code.BAD_REQUEST, f"{len(sent)} messages, at most {MESSAGES_MAX} are sent at once"
            )
        name = topic_of(sent[0].topic)
        if len(sent) > 1 and any(message.topic.name != name for message in sent):
            raise RpcRefused(
                Code.MESSAGE_CORRUPTED, "the messages of one request have several topics"
            )
        host = rpc.address.rpartition(":")[0]
        store, remoting = self._config.store, self._config.remoting
        delay_ms_max = min(remoting.max_delay_time_ms, store.timer_max_delay_s * 1_000)
        limits = store.max_message_size_bytes, delay_ms_max
        sender = Sender(host, self._clock.now_ms(), *limits)
        topic = self._topics.get(name)
        headers = [header_of(message, name, topic, sender) for message in sent]
        results = Results(len(headers))
        for number, (header, message) in enumerate(zip(headers, sent, strict=True)):
            message_id = message.system_properties.message_id
            then = partial(self._sent, rpc, results, number, header, message_id)
            rpc.ask(header, then, body=message.body)

    def _join(self, rpc: Rpc, topic: str) -> None:
        """See to it that the producer is asked about its open transactions: some clients name the
        topics that they send to only later.
        """
        client = self._clients.get(rpc)
        if client is None or client.data is None:
            return
        known = client.data.producer_data_set
        if all(producer.group_name != topic for producer in known):
            joining = ProducerData(topic)
            known.append(joining)
            client.renew(lambda: None, lambda _: _left_out(client, joining))

    def _sent(
        self,
        rpc: Rpc,
        results: Results,
        number: int,
        header: SendMessageV2,
        message_id: str,
        answer: Answer,
    ) -> None:
        """Take the answer to one send; the last one completes the RPC."""
        if header.sys_flag & TRANSACTION_PREPARED and isinstance(
            answer.header, SendMessageResponse
        ):
            self._join(rpc, header.topic)
        if not results.put(number, entry_of(answer, header, message_id)):
            return
        status = common_status([entry.status for entry in results.all])
        # A message that was not stored has no entry.
        kept = [entry for entry in results.all if entry.message_id]
        rpc.say(messages.SendMessageResponse(status=status, entries=kept))

    # ── EndTransaction ──

    def end(self, rpc: Rpc, request: Any) -> None:
        """Commit or roll back. Raises: RpcRefused."""
        topic = topic_of(request.topic)
        half = read_transaction_id(request.transaction_id)
        wanted = ENDS.get(request.resolution)
        if wanted is None:
            rpc.done()
            return
        header = EndTransaction(
            topic=topic,
            producer_group=topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            commit_or_rollback=wanted,
            from_transaction_check=request.source == TransactionSource.SOURCE_SERVER_CHECK,
            msg_id=request.message_id,
            transaction_id=half.message_id,
        )
        rpc.request(header, lambda _: rpc.done())

    # ── RecallMessage ──

    def recall(self, rpc: Rpc, request: Any) -> None:
        """Take a delayed message back. Raises: RpcRefused."""
        name = topic_of(request.topic)
        topic = found(name, self._topics.get(name))
        if MessageType.DELAY not in types_of(topic):
            raise RpcRefused(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"topic {name} takes no delayed messages, so none can be recalled",
                topic=name,
            )
        header = RecallMessage(producer_group=name, topic=name, recall_handle=request.recall_handle)
        rpc.request(header, partial(_recalled, rpc))


def _left_out(client: Client, joining: ProducerData) -> None:
    """A producer may not join: its settings may be others by now, which have what it had joined."""
    if client.data is not None and joining in client.data.producer_data_set:
        client.data.producer_data_set.remove(joining)


def _recalled(rpc: Rpc, answer: Answer) -> None:
    header = answer.header
    rpc.done(message_id=header.msg_id if isinstance(header, RecallMessageResponse) else "")


def entry_of(answer: Answer, header: SendMessageV2, message_id: str) -> Any:
    """The result of one send. Without a message id nothing is stored."""
    code, text = outcome(answer)
    result = answer.header
    if not isinstance(result, SendMessageResponse):
        return messages.SendResultEntry(status=status_of(code, text))
    transaction_id = message_id
    if header.sys_flag & TRANSACTION_PREPARED:
        _, physical_offset = read_offset_id(result.msg_id)
        transaction_id = TransactionId(physical_offset, result.queue_offset, message_id).text()
    return messages.SendResultEntry(
        status=OK if code is Code.OK else status_of(code, text),
        message_id=message_id,
        transaction_id=transaction_id,
        offset=result.queue_offset,
        recall_handle=result.recall_handle or "",
    )
