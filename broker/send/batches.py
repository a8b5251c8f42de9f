"""Batches: many messages of one request for one queue, each with properties of its own.

Properties of a message that ask a broker for a delay or a transaction have no effect there, as in
the Java broker: a forwarder sends committed messages with the property TRAN_MSG.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.delay.delay_levels import level_of
from aerobee.broker.errors import Refusal
from aerobee.broker.send.answers import Put
from aerobee.broker.send.special_sends import MESSAGE_ILLEGAL
from aerobee.broker.timers.timer_properties import ASKS_FOR_TIME
from aerobee.store.format.message_id import offset_ids
from aerobee.store.format.record import TRANSACTION_MASK
from aerobee.store.format.system_names import RETRY_PREFIX
from aerobee.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Sequence

    from aerobee.broker.core.core import Core
    from aerobee.broker.dedupe.dedupe import Dedupe
    from aerobee.broker.send.answers import SendAnswers
    from aerobee.broker.send.special_sends import Special
    from aerobee.broker.topics.rates import Rates
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Steps
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.send import SendMessage, SendMessageV2
    from aerobee.store.format.record import MessageDraft

ASKING: Final = ASKS_FOR_TIME | {"DELAY", "TRAN_MSG"}
"""Properties of the request that may ask for what a batch cannot have."""
IDS_STEP: Final = 2_000
"""Ids of stored messages that are formatted in one step."""


class Batches:
    """The way of a batch."""

    def __init__(
        self, core: Core, answers: SendAnswers, dedupe: Dedupe | None, rates: Rates
    ) -> None:
        self._store = core.store
        self._store_host = core.store_host
        self._answers = answers
        self._dedupe = dedupe
        self._deduped: Collection[str] = frozenset() if dedupe is None else dedupe.topics
        self._rates = rates

    def serve(
        self,
        draft: MessageDraft,
        special: Special,
        header: SendMessage | SendMessageV2,
        command: Command,
        connection: Caller,
    ) -> Steps:
        """Put and answer a batch; `draft` has what its messages have in common. Raises: Refusal."""
        try:
            if special.topic.attributes:
                self._rates.admit(special.topic.topic_name, special.topic.attributes)
            _refuse_in_batch(header, special.properties)
            if self._dedupe is not None and draft.topic in self._deduped:
                queues = special.topic.read_queue_nums
                result = self._dedupe.put_batch(draft, command.body, queues)
            else:
                result = yield from self._store.writer.put_batch_in_steps(
                    draft,
                    command.body,
                    # Looked up when it is called: few batches meet a segment that is late.
                    lambda: connection.postpone(),
                )
        except Refusal as refused:
            raise self._answers.refused(refused) from None
        if special.topic.attributes and result.status is PutStatus.PUT_OK:
            count, size = len(result.offsets), len(command.body)
            topic = special.topic
            self._rates.spend(topic.topic_name, topic.attributes, count, size)
        ids = None
        if len(result.offsets) > IDS_STEP:
            ids = yield from self._ids(result.offsets)
        name, queue_id = special.topic.topic_name, draft.queue_id
        put = Put(result, name, draft, queue_id, None, special.waits, msg_ids=ids)
        return self._answers.of_one(put, command, connection)

    def _ids(self, offsets: Sequence[int]) -> Generator[None, None, str]:
        """The ids of many messages."""
        ids = []
        for begin in range(0, len(offsets), IDS_STEP):
            yield
            ids.append(offset_ids(self._store_host, offsets[begin : begin + IDS_STEP]))
        return ",".join(ids)


def _refuse_in_batch(header: SendMessage | SendMessageV2, properties: dict[str, str]) -> None:
    if header.topic.startswith(RETRY_PREFIX):
        raise Refusal(MESSAGE_ILLEGAL, "batch request does not support retry group")
    if not header.sys_flag & TRANSACTION_MASK and ASKING.isdisjoint(properties):
        return
    delayed = not ASKS_FOR_TIME.isdisjoint(properties) or level_of(properties.get("DELAY", "0")) > 0
    half = properties.get("TRAN_MSG", "").lower() == "true"
    if delayed or half or header.sys_flag & TRANSACTION_MASK:
        raise Refusal(MESSAGE_ILLEGAL, "a batch can neither be delayed nor transactional")
