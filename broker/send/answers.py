"""The answers to sends: made now, or when their messages are on disk and on slaves.

Answers of a run are made from one template while the disk works, and go out together when all of it
is there; to calls of another protocol each is told by itself. Any other send gets an answer of its
own, in the encoding of its request.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import trio

from aerobee.broker.answers import KEPT_CODES, KEPT_REMARKS, first_put_refused, kept_answer
from aerobee.broker.counters.broker_stats import NORMAL
from aerobee.broker.send.stages import SendStages
from aerobee.remoting.latency import SUCCESS_RESULT, UNSENT_RESULT
from aerobee.remoting.server.routes import HELD, PendingAnswer
from aerobee.remoting.server.states import CLOSED
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import answer_around
from aerobee.remoting.wire.frame import HEAD
from aerobee.remoting.wire.headers.send import SendMessageRefused, SendMessageResponse
from aerobee.remoting.wire.typed_command import TypedCommand
from aerobee.store.format.message_id import offset_id, offset_ids
from aerobee.store.results import PutOutcome, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.core.core import Core
    from aerobee.broker.errors import Refusal
    from aerobee.broker.saved.save import SavedTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.routes import Plain
    from aerobee.remoting.wire.command import Command
    from aerobee.store.format.record import MessageDraft
    from aerobee.store.queues.dispatch_request import DispatchRequest
    from aerobee.store.results import PutResult

    Sends: TypeAlias = list[tuple[Command, Any, bytes]]
    """The sends of a run, each with its unique key."""
    Frames: TypeAlias = list[tuple[Connection, bytes, list[float]]]
    """The answers to consecutive sends of a connection, and when these arrived."""

SUCCESS: Final = int(ResponseCode.SUCCESS)


class Put(msgspec.Struct, frozen=True, gc=False):
    """The result of the put for one request, and the fields of its answer."""

    result: PutResult
    topic: str
    """The topic that its request is for."""
    draft: MessageDraft
    """The stored message in its topic, or the common fields of the messages of a batch."""
    queue_id: int
    """The queue in the answer: a delayed message lies in another one than its own."""
    unique: str | None
    """The unique key; None for a batch."""
    waits: bool
    """Whether the answer waits for the disk."""
    kind: str = NORMAL
    """The kind as which it counts."""
    handle: str | None = None
    """The handle by which its timer can be recalled."""
    msg_ids: str | None = None
    """The ids of its messages, where they have been formatted already."""


class SendAnswers:
    """Counts what was stored, and answers."""

    def __init__(self, core: Core, topic_file: SavedTable) -> None:
        """No answer goes out before `topic_file` has the topic that its send created."""
        self._options = core.config.broker
        self._store = core.store
        self._stats = core.stats
        self._store_host = core.store_host
        self._topic_file = topic_file
        self._waits = core.config.answers_wait
        self.pool = core.rounds.reactor.pools["send"]
        """The pool of the routes."""
        latencies = core.rounds.reactor.stats.latencies
        self._stages = SendStages(core.stats.send_stages, latencies, core.clock.monotonic)
        self.settings_changed()

    def settings_changed(self) -> None:
        """Derive from the settings what all answers have in common."""
        self.region = self._options.region_id
        self.trace_on = "true" if self._options.trace_on else "false"
        self._refused = SendMessageRefused(self.region, self.trace_on)
        answer = SendMessageResponse(
            msg_id=self._store_host.hex().upper() + "%016X",
            queue_id=0,
            queue_offset=0,
            transaction_id="%b",
            region=self.region.replace("%", "%%"),
            trace_on=self.trace_on,
        )
        fields = {**answer.ext(), "queueId": "%d", "queueOffset": "%d"}
        self._templates = {
            kept: b"%d".join(answer_around(code, KEPT_REMARKS.get(kept), fields))
            for kept, code in KEPT_CODES.items()
        }
        """To be filled with opaque, physical offset, queue id, queue offset and unique key."""
        self._durable = self._templates[PutOutcome.DURABLE]

    def refused(self, refused: Refusal) -> Refusal:
        """Add region and trace switch, which trace clients expect in every answer."""
        refused.header = self._refused
        return refused

    def not_put(self, status: PutStatus) -> Refusal:
        """The answer to a send whose message was not stored."""
        return self.refused(first_put_refused(status, self._store))

    # ── A run ──

    def of_run(self, stored: list[DispatchRequest], sends: Sends) -> None:
        """Count and answer sends whose answers are alike but for the numbers and keys in them."""
        self._count(stored)
        first, peer, _ = sends[0]
        # All of a run have one form: their route is that of one listener.
        frames: Frames = []
        if not isinstance(first, TypedCommand):
            frames = _frames(self._durable, stored, sends)
        if self._waits:
            self._run_when_durable(frames, stored, sends)
            return
        if self._stages.idle:
            self._stages.appended(first.arrived, peer.context.now)
        self._tell(PutOutcome.DURABLE, frames, stored, sends)

    def _tell(
        self, kept: PutOutcome, frames: Frames, stored: list[DispatchRequest], sends: Sends
    ) -> None:
        """Give the answers: `frames`, or to requests in another form than a frame each its own."""
        if frames:
            _send(frames, sends[0][0].code, KEPT_CODES[kept])
            return
        for request, (command, caller, unique) in zip(stored, sends, strict=True):
            response = SendMessageResponse(
                msg_id=offset_id(self._store_host, request.physical_offset),
                queue_id=request.queue.queue_id,
                queue_offset=request.queue_offset,
                transaction_id=unique.decode(),
                region=self.region,
                trace_on=self.trace_on,
            )
            caller.answer(command, kept_answer(kept, response))

    def _run_when_durable(
        self, frames: Frames, stored: list[DispatchRequest], sends: Sends
    ) -> None:
        (first, peer, _), last = sends[0], stored[-1]
        pool, count = self.pool, len(sends)
        for command, _, _ in sends:
            command.release()

        def durable(kept: PutOutcome) -> None:
            pool.depth -= count
            late = frames
            if frames and not kept:
                late = _frames(self._templates[kept], stored, sends)
            self._tell(kept, late, stored, sends)

        pool.depth += count
        self._when_durable(last.physical_offset + last.size, first, peer, durable)

    def _count(self, stored: list[DispatchRequest]) -> None:
        """Count the messages of a run; those of one size and topic at once. Hot."""
        topic, size, count = stored[0].queue.topic, stored[0].size, 0
        for request in stored:
            if request.size != size or request.queue.topic != topic:
                self._stats.topic_in(topic).put(count, count * size)
                topic, size, count = request.queue.topic, request.size, 0
            count += 1
        self._stats.topic_in(topic).put(count, count * size)

    # ── One send ──

    def of_one(self, put: Put, command: Command, connection: Caller) -> Plain:
        """Count and answer one send. Raises: Refusal, when nothing was stored."""
        result = put.result
        if result.status is not PutStatus.PUT_OK:
            raise self.not_put(result.status)
        self._stats.topic_in(put.draft.topic, put.kind).put(result.count, result.size)
        if command.oneway:
            return None
        response = SendMessageResponse(
            msg_id=put.msg_ids or self.message_ids(result),
            queue_id=put.queue_id,
            queue_offset=result.queue_offset,
            transaction_id=put.unique,
            recall_handle=put.handle,
            region=self.region,
            trace_on=self.trace_on,
        )
        saved = self._topic_file
        if not (saved.has(put.topic) and saved.has(put.draft.topic)):
            return PendingAnswer(self._after_save(result, response, waits=put.waits))
        if not put.waits:
            if self._stages.idle:
                self._stages.appended(command.arrived, connection.context.now)
            return Answer(SUCCESS, response)

        def durable(kept: PutOutcome) -> None:
            connection.answer(command, kept_answer(kept, response))

        self._when_durable(result.end_offset, command, connection, durable)
        return HELD

    async def _after_save(
        self, result: PutResult, response: SendMessageResponse, *, waits: bool
    ) -> Answer:
        """Answer once the topic, created by this send, would survive a crash like its message.

        When the topic cannot be saved, the message is stored all the same: the next start finds the
        topic in the log.
        """
        with suppress(OSError):
            await self._topic_file.catch_up()
        if not waits:
            return Answer(SUCCESS, response)
        done = trio.Event()
        answers: list[Answer] = []

        def durable(kept: PutOutcome) -> None:
            answers.append(kept_answer(kept, response))
            done.set()

        self._store.when_durable(result.end_offset, durable)
        await done.wait()
        return answers[0]

    def message_ids(self, result: PutResult) -> str:
        """The ids of the messages of a put."""
        if result.offsets:
            return offset_ids(self._store_host, result.offsets)
        return offset_id(self._store_host, result.physical_offset)

    def _when_durable(
        self,
        end_offset: int,
        command: Command,
        connection: Caller,
        durable: Callable[[PutOutcome], None],
    ) -> None:
        stages = self._stages
        if stages.idle:
            durable = stages.until_durable(command.arrived, connection.context.now, durable)
        self._store.when_durable(end_offset, durable)


def _frames(template: bytes, stored: list[DispatchRequest], sends: Sends) -> Frames:
    """The answers to stored sends. Hot."""
    pack = HEAD.pack
    answers: Frames = []
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


def _send(answers: Frames, request_code: int, response_code: int) -> None:
    """Queue them, and note that their requests have ended."""
    ended = answers[0][0].context.stats.latencies.ended
    for peer, data, arrivals in answers:
        closed = peer.state is CLOSED
        result = UNSENT_RESULT if closed else SUCCESS_RESULT
        ended[request_code, response_code, False, result].extend(arrivals)
        if not closed:
            peer.put(data)
