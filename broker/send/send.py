"""SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE: request → checked message → store → answer.

One way for every send: it is checked; what is plain, that is, asks for nothing special, is stored
together with the plain ones behind it, in one append, and their answers are one buffer for each
connection. A send that is not plain (a delay, a transaction, a new topic, a batch) ends such a run,
and is put by itself. Clients and their tests depend on the order of checks. Source:
SendMessageProcessor, AbstractSendMessageProcessor.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from aerobee.broker.answers import refusal
from aerobee.broker.core.drafts import BROKER_BITS
from aerobee.broker.errors import PutPostponed, Refusal
from aerobee.broker.send.answers import Put
from aerobee.broker.send.known_properties import KnownProperties
from aerobee.broker.send.priorities import place
from aerobee.broker.send.special_sends import HOOKED, MESSAGE_ILLEGAL, Special
from aerobee.store.format.priority import PRIORITY
from aerobee.store.format.properties import append, decode, encode
from aerobee.store.format.record import TRANSACTION_MASK, MessageDraft
from aerobee.store.format.tags import tags_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aerobee.broker.core.core import Core
    from aerobee.broker.saved.save import SavedTable
    from aerobee.broker.send.answers import SendAnswers, Sends
    from aerobee.broker.send.batches import Batches
    from aerobee.broker.send.destinations import Destinations
    from aerobee.broker.send.special_sends import SpecialSends
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.routes import Outcome
    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.send import SendMessage, SendMessageV2

    Requests: TypeAlias = Iterable[tuple[Command, SendMessage | SendMessageV2, Connection]]
    Known: TypeAlias = tuple[bytes, bytes, int]
    """Unique key, stored properties and tags code."""
    CheckedSend: TypeAlias = tuple[bytes, MessageDraft, Special | None]
    """A send that no common check refuses: its unique key and its draft if it is plain, or what
    makes it special."""

CLIENT_BITS: Final = ~BROKER_BITS
REGION_FIELDS: Final = frozenset({"CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK"})
"""Properties that the broker sets itself; those of a client are dropped."""
ASKING: Final = REGION_FIELDS | HOOKED | {"TRAN_MSG", PRIORITY}
"""Properties of which a send has to be looked at by itself."""
RUN_BYTES: Final = 64 << 10
"""A run ends with the message that takes its bodies to this size: a millisecond."""


class Send:
    """The send processor. `run`, `one` and `batch` are its routes."""

    def __init__(
        self,
        core: Core,
        *,
        destinations: Destinations,
        topic_file: SavedTable,
        new_unique_key: Callable[[], str],
        answers: SendAnswers,
        specials: SpecialSends,
        batches: Batches,
    ) -> None:
        self._options = core.config.broker
        self._store = core.store
        self._store_host = core.store_host
        self._waits = core.config.answers_wait
        self._destinations = destinations
        self._topic_file = topic_file
        self._new_unique_key = new_unique_key
        self._answers = answers
        self._specials = specials
        self._batches = batches
        self._deduped = specials.deduped
        self.settings_changed()

    def settings_changed(self) -> None:
        """Derive from the settings what is added to each message and answer."""
        answers = self._answers
        answers.settings_changed()
        self._added = (
            f"CLUSTER\x01{self._options.broker_cluster_name}\x02"
            f"MSG_REGION\x01{answers.region}\x02TRACE_ON\x01{answers.trace_on}\x02"
        )
        self._known = KnownProperties()

    # ── Routes ──

    def run(
        self,
        header: SendMessage | SendMessageV2,
        command: Command,
        connection: Connection,
        rest: Requests,
    ) -> int | Outcome:
        """Store and answer a send and the `rest` behind it, as far as they are plain; returns how
        many, or what became of the first if that is not plain, or is refused. Raises: PutPostponed.
        """
        sends: Sends = []
        drafts: list[MessageDraft] = []
        size, waits, pool = 0, self._waits, self._answers.pool
        check = self._checked
        first = ((command, header, connection),)
        try:
            for command, header, connection in chain(first, rest) if rest else first:
                try:
                    unique, draft, special = check(header, command, connection, header.batch)
                except Refusal:
                    if drafts:
                        break
                    raise
                if special is not None:
                    if drafts:
                        break
                    return special.way.serve(draft, special, header, command, connection)
                sends.append((command, connection, unique))
                drafts.append(draft)
                size += len(draft.body)
                if size > RUN_BYTES or (waits and pool.depth + len(sends) >= pool.capacity):
                    break
            stored, status = self._store.writer.put_run(drafts)
            if not stored:
                raise self._answers.not_put(status)
        except PutPostponed:
            raise
        except Refusal as refused:
            # As an error it would have each of them served by itself, the first once more.
            return refusal(refused)
        del sends[len(stored) :]
        self._answers.of_run(stored, sends)
        return len(stored)

    def one(
        self, header: SendMessage | SendMessageV2, command: Command, connection: Caller
    ) -> Outcome:
        """Store one message, whose answer is not as those of others (codes 10 and 310)."""
        unique, draft, special = self._checked(header, command, connection, header.batch)
        if special is not None:
            return special.way.serve(draft, special, header, command, connection)
        stored, queue_id = self._store.put(draft), draft.queue_id
        put = Put(stored, draft.topic, draft, queue_id, unique.decode(), self._waits)
        return self._answers.of_one(put, command, connection)

    def batch(
        self, header: SendMessage | SendMessageV2, command: Command, connection: Caller
    ) -> Outcome:
        """Store each message of a batch (code 320, or the batch flag under another code)."""
        _, draft, special = self._checked(header, command, connection, batch=True)
        assert special is not None
        return special.way.serve(draft, special, header, command, connection)

    # ── The way ──

    def _checked(
        self,
        header: SendMessage | SendMessageV2,
        command: Command,
        connection: Caller,
        batch: bool | None,
    ) -> CheckedSend:
        """Check a send. Raises: Refusal. Hot."""
        name, sys_flag, text = header.topic, header.sys_flag, header.properties or ""
        try:
            topic, queue_id, ordinary = self._destinations.place(header)
            if not command.body and not batch:
                raise Refusal(MESSAGE_ILLEGAL, "the message body is empty")
        except Refusal as refused:
            raise self._answers.refused(refused) from None
        plain = (
            ordinary
            and not batch
            and not sys_flag & TRANSACTION_MASK
            and name not in self._deduped
            and name not in self._topic_file.unsaved
        )
        special = None
        known = self._known.find(text) if plain else None
        if known is None:
            properties = decode(text)
            waits = self._waits and properties.get("WAIT", "true").lower() == "true"
            if batch:
                known = b"", b"", 0
                special = Special(self._batches, topic, properties, waits)
            else:
                if PRIORITY in properties:
                    queue_id = place(properties, queue_id, topic.write_queue_nums)
                    # A message of another type has lost it.
                    text = text if PRIORITY in properties else encode(properties)
                known, special = self._look(text, topic, properties, plain, waits)
        unique, stored, code = known
        draft = MessageDraft(
            name,
            queue_id,
            command.body,
            stored,
            connection.host,
            self._store_host,
            header.flag,
            sys_flag & CLIENT_BITS,
            header.born_timestamp,
            header.reconsume_times or 0,
            0,
            code,
        )
        return unique, draft, special

    def _look(
        self, text: str, topic: TopicConfig, properties: dict[str, str], plain: bool, waits: bool
    ) -> tuple[Known, Special | None]:
        """Look at the properties of one message, and remember them if it is plain."""
        asks = not ASKING.isdisjoint(properties)
        kept = _without(properties, REGION_FIELDS) if asks else text
        key = properties.get("UNIQ_KEY")
        if key is None:
            key = self._new_unique_key()
            kept = append(kept, f"UNIQ_KEY\x01{key}\x02")
        unique = key.encode()
        # Of letters and digits: no JSON has to escape it.
        if plain and not asks and waits == self._waits and unique.isalnum():
            known = unique, append(kept, self._added).encode(), tags_code(properties.get("TAGS"))
            self._known.note(text, *known)
            return known, None
        special = Special(self._specials, topic, properties, waits, asks, key, kept, self._added)
        return (unique, b"", 0), special


def _without(properties: dict[str, str], names: frozenset[str]) -> str:
    return encode({name: value for name, value in properties.items() if name not in names})
