"""RECALL_MESSAGE: cancel a timer message.

The recall is itself a timer message for the same slot: it is found there before anything is
delivered. So the answer says that the recall is stored, not that the timer was still waiting.
Source: semantics §9.5 (RecallMessageProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.answers import kept_answer
from aerobee.broker.core.names import check_sendable
from aerobee.broker.errors import NoPermission, PutPostponed, Refusal, TopicNotExist
from aerobee.broker.timers.timer_properties import DELETE_KEY, DELIVER_AT, read_handle
from aerobee.remoting.server.routes import HELD
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.send import RecallMessage, RecallMessageResponse
from aerobee.store.format.record import MessageDraft
from aerobee.store.format.system_names import RETRY_PREFIX
from aerobee.store.results import PutStatus

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core
    from aerobee.broker.timers.timer_properties import RecallHandle
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Outcome
    from aerobee.remoting.wire.command import Command
    from aerobee.store.results import PutOutcome

TAG: Final = "_RECALL_TAG_"
BODY: Final = b"0"


class RecallProcessor:
    """The processor."""

    def __init__(self, core: Core, topics: TopicTable) -> None:
        self._config = core.config
        self._store = core.store
        self._puts = core.puts
        self._clock = core.clock
        self._store_host = core.store_host
        self._topics = topics
        self._waits = core.config.answers_wait

    def recall(self, header: RecallMessage, command: Command, connection: Caller) -> Outcome:
        """Store the recall. Raises: Refusal."""
        handle = self._check(header)
        result = self._puts.put(*self._message(header, handle, connection))
        if result.status is PutStatus.SEGMENT_LATE:
            raise PutPostponed
        if result.status is not PutStatus.PUT_OK:
            cause = self._store.flags.cause or result.status.name
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"recall failed: {cause}")
        region = self._config.broker.region_id
        response = RecallMessageResponse(msg_id=handle.unique_key, region=region)
        if not self._waits:
            return Answer(ResponseCode.SUCCESS, response)

        def durable(kept: PutOutcome) -> None:
            connection.answer(command, kept_answer(kept, response))

        self._store.when_durable(result.end_offset, durable)
        return HELD

    def _check(self, header: RecallMessage) -> RecallHandle:
        broker = self._config.broker
        now_ms = self._clock.now_ms()
        if not broker.recall_message_enable:
            raise NoPermission("recall failed, recallMessageEnable is false")
        gate_ms = broker.start_accept_send_request_time_stamp_ms
        if now_ms < gate_ms:
            raise Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"broker unable to service, until {gate_ms}"
            )
        check_sendable(header.topic)
        if header.topic.startswith(RETRY_PREFIX):
            raise NoPermission(f"recall failed, no message of topic[{header.topic}] has a handle")
        if self._topics.get(header.topic) is None:
            raise TopicNotExist(header.topic)
        handle = read_handle(header.recall_handle)
        if not (header.producer_group or "").isprintable():
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION, "recall failed, the producer group is no name"
            )
        limit_ms = now_ms + self._config.store.timer_max_delay_s * 1_000
        for wrong, what in (
            (handle.topic != header.topic, "topic"),
            (handle.broker != broker.broker_name, "broker"),
            (not now_ms < handle.deliver_ms <= limit_ms, "time"),
        ):
            if wrong:
                raise Refusal(
                    ResponseCode.ILLEGAL_OPERATION, f"recall failed, the {what} does not match"
                )
        return handle

    def _message(
        self, header: RecallMessage, handle: RecallHandle, connection: Caller
    ) -> tuple[MessageDraft, dict[str, str]]:
        now_ms = self._clock.now_ms()
        draft = MessageDraft(
            handle.topic,
            0,
            BODY,
            b"",
            connection.host,
            self._store_host,
            born_timestamp=now_ms,
        )
        properties = {
            "TAGS": TAG,
            "UNIQ_KEY": handle.unique_key,
            DELETE_KEY: handle.unique_key,
            DELIVER_AT: str(handle.deliver_ms),
            "BORN_TIMESTAMP": str(now_ms),
            "PGROUP": header.producer_group or "",
        }
        return draft, properties
