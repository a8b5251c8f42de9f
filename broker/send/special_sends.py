"""Messages that are put by themselves: halves, delayed ones, dead letters, repetitions.

Delayed messages go through the hooks. A half message is redirected here and not by a hook: only a
send can be one, a commit or a retry with the same properties is not. Source: SendMessageProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from aerobee.broker.counters.broker_stats import DELAY, NORMAL, TRANSACTION
from aerobee.broker.errors import NoPermission, Refusal
from aerobee.broker.send.answers import Put
from aerobee.broker.send.dead_letters import never_delayed
from aerobee.broker.send.destinations import GROUP_MARK
from aerobee.broker.timers.timer_properties import ASKS_FOR_TIME, START_DELIVER_TIME, handle_of
from aerobee.broker.transactions.half_messages import HALF_PROPERTIES_MAX, half_of, is_half
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.format.properties import append, decode
from aerobee.store.format.record import TRANSACTION_MASK, TRANSACTION_PREPARED, MessageDraft
from aerobee.store.format.system_names import WHEEL_TOPIC
from aerobee.store.format.tags import tags_code
from aerobee.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Collection

    from aerobee.broker.core.core import Core
    from aerobee.broker.dedupe.dedupe import Dedupe
    from aerobee.broker.send.answers import SendAnswers
    from aerobee.broker.send.dead_letters import DeadLetters
    from aerobee.broker.topics.rates import Rates
    from aerobee.broker.transactions.open_transactions import Transactions
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Outcome
    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.send import SendMessage, SendMessageV2
    from aerobee.store.results import PutResult

HOOKED: Final = ASKS_FOR_TIME | {"DELAY", START_DELIVER_TIME}
"""Properties that send a message through the hooks."""
MESSAGE_ILLEGAL: Final = int(ResponseCode.MESSAGE_ILLEGAL)


class Way(Protocol):
    """The way of sends that are not plain, after the checks that all sends have in common."""

    def serve(
        self,
        draft: MessageDraft,
        special: Special,
        header: SendMessage | SendMessageV2,
        command: Command,
        connection: Caller,
    ) -> Outcome:
        """Put its messages, and answer. Raises: Refusal."""


class Special(msgspec.Struct, frozen=True, gc=False):
    """The facts about a send that is served by itself."""

    way: Way
    topic: TopicConfig
    properties: dict[str, str]
    """As they came."""
    waits: bool
    """Whether the answer waits for the disk."""
    asks: bool = False
    """Whether a property asks the broker for something, or is one that only a broker sets. This and
    the others are not for a batch, whose messages have properties of their own.
    """
    unique: str = ""
    """The unique key."""
    text: str = ""
    """The properties as they are to be stored, but for what the broker adds."""
    added: str = ""
    """The properties that the broker adds."""


class SpecialSends:
    """The way of one message that is not plain."""

    def __init__(
        self,
        core: Core,
        answers: SendAnswers,
        *,
        transactions: Transactions,
        dead_letters: DeadLetters,
        dedupe: Dedupe | None,
        rates: Rates,
    ) -> None:
        self._config = core.config
        self._rates = rates
        self._store = core.store
        self._puts = core.puts
        self._answers = answers
        self._transactions = transactions
        self._dead_letters = dead_letters
        self._dedupe = dedupe
        self.deduped: Collection[str] = frozenset() if dedupe is None else dedupe.topics
        """Topics of which each message has to be looked up."""

    def serve(
        self,
        draft: MessageDraft,
        special: Special,
        header: SendMessage | SendMessageV2,
        command: Command,
        connection: Caller,
    ) -> Outcome:
        """Put the message where it belongs, and answer. Raises: Refusal."""
        topic, properties, asks = special.topic, special.properties, special.asks
        text, added = special.text, special.added
        queue_id, kind, handle = draft.queue_id, NORMAL, None
        try:
            if topic.attributes:
                self._rates.admit(topic.topic_name, topic.attributes)
                if _wants_keys(topic) and "KEYS" not in properties:
                    raise Refusal(MESSAGE_ILLEGAL, "a message to a compacted topic must have KEYS")
            half = (asks or header.sys_flag & TRANSACTION_MASK) and self._asks_for_half(
                header, properties
            )
            dead = None
            if header.topic[0] == GROUP_MARK:
                dead = self._dead_letters.take(draft, properties, header, command)
            if dead is not None:
                text = never_delayed(text, added)
            text = append(text, added)
            if half:
                kind = TRANSACTION
                result = self._put_half(draft, decode(text))
            elif asks and not HOOKED.isdisjoint(properties):
                kind = DELAY
                turned = decode(text)
                result = self._puts.put(draft, turned)
                if draft.topic == WHEEL_TOPIC:
                    handle = handle_of(turned, self._config.broker.broker_name)
            else:
                draft.properties = text.encode()
                draft.tags_code = tags_code(properties.get("TAGS"))
                if self._dedupe is not None and draft.topic in self.deduped:
                    result = self._dedupe.put(draft, properties, topic.read_queue_nums)
                else:
                    result = self._store.put(draft)
                queue_id = draft.queue_id
        except Refusal as refused:
            raise self._answers.refused(refused) from None
        if result.status is PutStatus.PUT_OK:
            if dead is not None:
                dead.dead_letters += 1
            if topic.attributes:
                self._rates.spend(topic.topic_name, topic.attributes, 1, len(draft.body))
        name, unique = topic.topic_name, special.unique
        put = Put(result, name, draft, queue_id, unique, special.waits, kind, handle)
        return self._answers.of_one(put, command, connection)

    # ── Halves ──

    def _asks_for_half(
        self, header: SendMessage | SendMessageV2, properties: dict[str, str]
    ) -> bool:
        """Whether this begins a transaction. Raises: Refusal when it may not."""
        if not is_half(properties, header.reconsume_times or 0):
            if header.sys_flag & TRANSACTION_PREPARED:
                # Stored as an ordinary message, it would be acknowledged and never delivered.
                raise Refusal(MESSAGE_ILLEGAL, "a half message must have the property TRAN_MSG")
            return False
        if self._config.broker.reject_transaction_message:
            host = self._config.broker.broker_ip1
            raise NoPermission(f"the broker[{host}] sending transaction message is forbidden")
        return True

    def _put_half(self, draft: MessageDraft, properties: dict[str, str]) -> PutResult:
        draft.sys_flag &= ~TRANSACTION_MASK
        self._puts.validate(draft, properties)
        topic = draft.topic
        half_of(draft, properties)
        if len(draft.properties) > HALF_PROPERTIES_MAX:
            raise Refusal(
                MESSAGE_ILLEGAL,
                f"the half message has {len(draft.properties)} bytes of properties, "
                f"{HALF_PROPERTIES_MAX} leave room for its checks",
            )
        result = self._puts.put_as_is(draft)
        if result.status is PutStatus.PUT_OK:
            self._transactions.began(topic, result.store_timestamp)
        return result


def _wants_keys(topic: TopicConfig) -> bool:
    return topic.attributes.get("cleanup.policy") == "COMPACTION"
