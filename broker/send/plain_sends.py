"""Consecutive sends that ask for nothing special: one append, one buffer of answers per connection.

The checks are those of `Send.one`. A message that one of them would not let through, or that needs
more than a put (a delay, a transaction, a new topic), ends the run: `Send.one` serves it, and says
what is wrong with it. Under SYNC_FLUSH the answers of a run are made while the disk works, and go
out together when all of it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aerobee.broker.answers import KEPT_CODES
from aerobee.broker.core.drafts import BROKER_BITS
from aerobee.broker.send.destinations import WRITE_BIT
from aerobee.broker.send.send import GROUP_MARK, NOT_PLAIN, TRANSACTION_BITS
from aerobee.remoting.latency import SUCCESS_RESULT, UNSENT_RESULT
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import answer_around
from aerobee.remoting.wire.frame import HEAD
from aerobee.remoting.wire.headers.send import SendMessageResponse
from aerobee.store.format.properties import append, decode
from aerobee.store.format.record import MessageDraft
from aerobee.store.format.tags import tags_code
from aerobee.store.results import PutOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.broker.core.core import Core
    from aerobee.broker.saved.save import SavedTable
    from aerobee.broker.send.send import Send
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.send import SendMessage, SendMessageV2
    from aerobee.store.queues.dispatch_request import DispatchRequest

    Requests: TypeAlias = Iterator[tuple[Command, SendMessage | SendMessageV2, Connection]]
    Sends: TypeAlias = list[tuple[Command, Connection, bytes]]
    """Those of a run, each with its unique key."""
    Answers: TypeAlias = list[tuple[Connection, bytes, list[float]]]
    """The answers of consecutive sends of a connection, and when these arrived."""

RUN_BYTES: Final = 64 << 10
"""A run ends with the message that takes its bodies and properties to this size: a millisecond."""
KNOWN_MAX: Final = 1_024
"""Properties that are remembered."""
KNOWN_CHARS: Final = 256
"""Of longer ones nothing is remembered."""
UNIQUE: Final = "UNIQ_KEY\x01"
KEYS: Final = "KEYS\x01"
SUCCESS: Final = int(ResponseCode.SUCCESS)


class PropertyTemplate(NamedTuple):
    """The stored properties of plain messages, all but their unique key.

    A producer's messages mostly have it in common, so it is looked at once.
    """

    before: bytes
    """What is stored before the unique key, its name included."""
    after: bytes
    """What is stored behind it."""
    tags_code: int


class PlainSends:
    """The run of the routes of `send`."""

    def __init__(
        self, core: Core, send: Send, *, topics: TopicTable, topic_file: SavedTable
    ) -> None:
        self._options = core.config.broker
        self._store = core.store
        self._stats = core.stats
        self._store_host = core.store_host
        self._send = send
        self._topics = topics
        self._topic_file = topic_file
        self._waits = core.config.answers_wait
        self._pool = core.rounds.reactor.pools["send"]
        """The pool of the routes."""
        self.settings_changed()

    def settings_changed(self) -> None:
        """Derive from the settings what all answers have in common."""
        send = self._send
        self._known: dict[tuple[str, str], PropertyTemplate] = {}
        answer = SendMessageResponse(
            msg_id=self._store_host.hex().upper() + "%016X",
            queue_id=0,
            queue_offset=0,
            transaction_id="%b",
            region=send.region.replace("%", "%%"),
            trace_on=send.trace_on,
        )
        fields = {**answer.ext(), "queueId": "%d", "queueOffset": "%d"}
        self._templates = {
            kept: b"%d".join(answer_around(code, None, fields)) for kept, code in KEPT_CODES.items()
        }
        self._stored = self._templates[PutOutcome.DURABLE]
        """To be filled with opaque, physical offset, queue id, queue offset and unique key."""

    def serve(self, requests: Requests) -> int:
        """Store and answer the first requests, as far as they are plain; returns how many."""
        options = self._options
        if (
            options.start_accept_send_request_time_stamp_ms
            or not options.broker_permission & WRITE_BIT
            or not self._topic_file.clean
        ):
            return 0
        sends: Sends = []
        drafts: list[MessageDraft] = []
        size, waits, pool = 0, self._waits, self._pool
        for command, header, connection in requests:
            unique, draft = self._draft(header, command, connection)
            if draft is None:
                break
            sends.append((command, connection, unique))
            drafts.append(draft)
            size += len(draft.body) + len(draft.properties)
            if size > RUN_BYTES or (waits and pool.depth + len(sends) >= pool.capacity):
                break
        stored = self._store.writer.put_run(drafts)
        if stored:
            del sends[len(stored) :]
            self._count(stored)
            (self._answer_when_durable if waits else self._answer_now)(stored, sends)
        return len(stored)

    def _draft(
        self, header: SendMessage | SendMessageV2, command: Command, connection: Connection
    ) -> tuple[bytes, MessageDraft | None]:
        """The unique key and the draft of a plain message. Hot."""
        name, queue_id, text = header.topic, header.queue_id, header.properties
        topic = self._topics.sendable(name)
        if (
            topic is None
            or topic.attributes
            or name[0] == GROUP_MARK
            or not 0 <= queue_id < topic.write_queue_nums
            or not text
            or not command.body
            or header.batch
            or header.sys_flag & TRANSACTION_BITS
        ):
            return b"", None
        plain = self._properties(text)
        if plain is None:
            return b"", None
        unique, properties, code = plain
        return unique, MessageDraft(
            name,
            queue_id,
            command.body,
            properties,
            connection.host,
            self._store_host,
            header.flag,
            header.sys_flag & ~BROKER_BITS,
            header.born_timestamp,
            header.reconsume_times or 0,
            0,
            code,
        )

    def _properties(self, text: str) -> tuple[bytes, bytes, int] | None:
        """Unique key, stored properties and tags code of a plain message; None: it is not. Hot."""
        # Keys are each message's own, so that what is around would never come again.
        if KEYS in text:
            return self._look(text)
        before, found, rest = text.rpartition(UNIQUE)
        if not found:
            return None
        key, _, after = rest.partition("\x02")
        unique = key.encode()
        template = self._known.get((before, after))
        if template is not None:
            if not unique.isalnum():
                return None
            return unique, template.before + unique + template.after, template.tags_code
        looked = self._look(text)
        short = len(before) + len(after) <= KNOWN_CHARS
        if looked is not None and short and unique == looked[0] and before[-1:] in ("", "\x02"):
            front = f"{before}{UNIQUE}".encode()
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            _, stored, code = looked
            self._known[before, after] = PropertyTemplate(
                front, stored[len(front) + len(unique) :], code
            )
        return looked

    def _look(self, text: str) -> tuple[bytes, bytes, int] | None:
        properties = decode(text)
        # Of letters and digits: no JSON has to escape it.
        unique = properties.get("UNIQ_KEY", "").encode()
        if not unique.isalnum() or not NOT_PLAIN.isdisjoint(properties):
            return None
        if self._waits and properties.get("WAIT", "true").lower() != "true":
            return None
        stored = append(text, self._send.added).encode()
        return unique, stored, tags_code(properties.get("TAGS"))

    # ── Effects ──

    def _count(self, stored: list[DispatchRequest]) -> None:
        topic_in = self._stats.topic_in
        topic, counters = "", None
        for request in stored:
            if counters is None or request.queue.topic != topic:
                topic = request.queue.topic
                counters = topic_in(topic)
            counters.put(1, request.size)

    def _answer_now(self, stored: list[DispatchRequest], sends: Sends) -> None:
        first, peer, _ = sends[0]
        _send(_answers(self._stored, stored, sends), first.code, SUCCESS)
        if self._send.stages.idle:
            self._send.stages.appended(first.arrived, peer.context.now)

    def _answer_when_durable(self, stored: list[DispatchRequest], sends: Sends) -> None:
        """Answer once the last of them is on disk and on slaves, or all of them with a timeout."""
        (first, peer, _), last = sends[0], stored[-1]
        answers, templates = _answers(self._stored, stored, sends), self._templates
        pool, count = self._pool, len(sends)
        for command, _, _ in sends:
            command.release()

        def durable(kept: PutOutcome) -> None:
            pool.depth -= count
            if kept:
                _send(answers, first.code, SUCCESS)
            else:
                late = _answers(templates[kept], stored, sends)
                _send(late, first.code, KEPT_CODES[kept])

        call: Callable[[PutOutcome], None] = durable
        if self._send.stages.idle:
            call = self._send.stages.until_durable(first.arrived, peer.context.now, durable)
        pool.depth += count
        self._store.when_durable(last.physical_offset + last.size, call)


def _answers(template: bytes, stored: list[DispatchRequest], sends: Sends) -> Answers:
    """The answers of stored sends. Hot."""
    pack = HEAD.pack
    answers: Answers = []
    frames: list[bytes] = []
    arrivals: list[float] = []
    peer = sends[0][1]
    for request, (command, connection, unique) in zip(stored, sends, strict=True):
        if connection is not peer:
            answers.append((peer, b"".join(frames), arrivals))
            frames.clear()
            peer, arrivals = connection, []
        queue = request.queue
        head = template % (
            command.opaque,
            request.physical_offset,
            queue.queue_id,
            request.queue_offset,
            unique,
        )
        frames += (pack(4 + len(head), len(head)), head)
        arrivals.append(command.arrived)
    answers.append((peer, b"".join(frames), arrivals))
    return answers


def _send(answers: Answers, request_code: int, response_code: int) -> None:
    """Queue them, and note that their requests have ended."""
    ended = answers[0][0].context.stats.latencies.ended
    for peer, data, arrivals in answers:
        result = UNSENT_RESULT if peer.closed else SUCCESS_RESULT
        ended[request_code, response_code, False, result].extend(arrivals)
        if not peer.closed:
            peer.put(data)
