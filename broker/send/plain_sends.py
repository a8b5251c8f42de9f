"""Consecutive sends that ask for nothing special: one append, one buffer of answers per connection.

The checks are those of `Send.one`. A message that one of them would not let through, or that needs
more than a put (a delay, a transaction, a new topic), ends the run: `Send.one` serves it, and says
what is wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from aerobee.broker.core.drafts import BROKER_BITS
from aerobee.broker.send.destinations import WRITE_BIT
from aerobee.broker.send.send import GROUP_MARK, LOOKED_AT, TRANSACTION_BITS
from aerobee.remoting.latency import SUCCESS_RESULT
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import answer_around
from aerobee.remoting.wire.frame import HEAD
from aerobee.remoting.wire.headers.send import SendMessageResponse
from aerobee.store.format.properties import append, decode
from aerobee.store.format.record import MessageDraft
from aerobee.store.format.tags import tags_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.core.core import Core
    from aerobee.broker.saved.save import SavedTable
    from aerobee.broker.send.send import Send
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.send import SendMessage, SendMessageV2
    from aerobee.store.queues.dispatch import DispatchRequest

    Requests: TypeAlias = Iterator[tuple[Command, SendMessage | SendMessageV2, Connection]]
    Sends: TypeAlias = list[tuple[Command, Connection, bytes]]
    """Those of a run, each with its unique key."""

__all__ = ["PlainSends"]

RUN_BYTES: Final = 64 << 10
"""A run ends with the message that takes its bodies and properties to this size: a millisecond."""
SUCCESS: Final = int(ResponseCode.SUCCESS)


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
        self.settings_changed()

    def settings_changed(self) -> None:
        """Derive from the settings what all answers have in common."""
        send = self._send
        answer = SendMessageResponse(
            msg_id=self._store_host.hex().upper() + "%016X",
            queue_id=0,
            queue_offset=0,
            transaction_id="%b",
            region=send.region.replace("%", "%%"),
            trace_on=send.trace_on,
        )
        fields = {**answer.ext(), "queueId": "%d", "queueOffset": "%d"}
        before, after = answer_around(SUCCESS, None, fields)
        self._answer = before + b"%d" + after
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
        size = 0
        for command, header, connection in requests:
            unique, draft = self._draft(header, command, connection)
            if draft is None:
                break
            sends.append((command, connection, unique))
            drafts.append(draft)
            size += len(draft.body) + len(draft.properties)
            if size > RUN_BYTES:
                break
        stored = self._store.writer.put_run(drafts)
        if stored:
            self._answer_all(stored, sends)
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
        properties = decode(text)
        # Of letters and digits: no JSON has to escape it.
        unique = properties.get("UNIQ_KEY", "").encode()
        if not unique.isalnum() or not LOOKED_AT.isdisjoint(properties):
            return b"", None
        return unique, MessageDraft(
            name,
            queue_id,
            command.body,
            append(text, self._send.added).encode(),
            connection.host,
            self._store_host,
            header.flag,
            header.sys_flag & ~BROKER_BITS,
            header.born_timestamp,
            header.reconsume_times or 0,
            0,
            tags_code(properties.get("TAGS")),
        )

    def _answer_all(self, stored: list[DispatchRequest], sends: Sends) -> None:
        """Count the stored messages, and queue consecutive answers of a connection as one buffer.
        Hot.
        """
        template, pack, topic_in = self._answer, HEAD.pack, self._stats.topic_in
        first, peer, _ = sends[0]
        context = peer.context
        ended = context.stats.latencies.ended[first.code, SUCCESS, False, SUCCESS_RESULT]
        answers: list[bytes] = []
        topic, counters = "", None
        for request, (command, connection, unique) in zip(stored, sends, strict=False):
            if connection is not peer:
                peer.put(b"".join(answers))
                answers.clear()
                peer = connection
            queue = request.queue
            if counters is None or queue.topic != topic:
                topic = queue.topic
                counters = topic_in(topic)
            counters.put(1, request.size)
            head = template % (
                command.opaque,
                request.physical_offset,
                queue.queue_id,
                request.queue_offset,
                unique,
            )
            answers += (pack(4 + len(head), len(head)), head)
            ended.append(command.arrived)
        peer.put(b"".join(answers))
        if self._send.stages.idle:
            self._send.stages.appended(first.arrived, context.now)
