"""SEND_REPLY_MESSAGE: the reply to a request message.

It is pushed to the producer of the request, and also kept in the reply topic. The answer to the
replier says whether the push arrived; nobody waits for the kept copy. Source: semantics §13,
remoting §3.4 (ReplyMessageProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.answers import STORED
from aerobee.broker.core.drafts import BROKER_BITS
from aerobee.remoting.errors import RemotingError
from aerobee.remoting.server.routes import PendingAnswer
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.send import PushReplyMessage, SendMessageResponse
from aerobee.store.format.message_id import offset_id
from aerobee.store.format.properties import append, decode
from aerobee.store.format.record import MessageDraft
from aerobee.store.format.tags import tags_code

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aerobee.broker.consumers.clients import ClientTable
    from aerobee.broker.core.core import Core
    from aerobee.broker.send.destinations import Destinations
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.send import SendReplyMessage, SendReplyMessageV2

PUSH_TIMEOUT_S: Final = 10.0
"""How long the requesting client may take to accept its reply."""
SUCCESS: Final = int(ResponseCode.SUCCESS)
SYSTEM_ERROR: Final = int(ResponseCode.SYSTEM_ERROR)

log = structlog.stdlib.get_logger(__name__)


class ReplyProcessor:
    """Codes 324 and 325."""

    def __init__(self, core: Core, *, destinations: Destinations, clients: ClientTable) -> None:
        self._config = core.config
        self._puts = core.puts
        self._stats = core.stats
        self._clock = core.clock
        self._store_host = core.store_host
        self._address = core.address
        self._destinations = destinations
        self._clients = clients
        self._region = core.config.broker.region_id

    def reply(
        self,
        header: SendReplyMessage | SendReplyMessageV2,
        command: Command,
        connection: Caller,
    ) -> Answer | PendingAnswer:
        """Keep the reply, push it to the requester, and answer whether the push arrived.

        A requester that takes its time, or hangs, holds up no reply to others.
        """
        _, queue_id, _ = self._destinations.place(header)
        body = bytes(command.body)
        response = SendMessageResponse(
            msg_id="0",
            queue_id=queue_id,
            queue_offset=0,
            region=self._region,
            trace_on="true" if self._config.broker.trace_on else "false",
        )
        if self._config.broker.store_reply_message_enable:
            self._keep(header, body, connection, response)
        client_id = decode(header.properties or "").get("REPLY_TO_CLIENT")
        if client_id is None:
            remark = "REPLY_TO_CLIENT is null, can not reply message"
            return Answer(SYSTEM_ERROR, response, remark)
        asking = self._clients.producer(client_id)
        if asking is None:
            remark = f"push reply message fail, channel of <{client_id}> not found."
            return Answer(SYSTEM_ERROR, response, remark)
        push = self._push_of(header, connection)
        calling = asking.connection.call(push.code, push, body, PUSH_TIMEOUT_S)
        return PendingAnswer(_when_pushed(calling, client_id, response))

    def _push_of(
        self, header: SendReplyMessage | SendReplyMessageV2, connection: Caller
    ) -> PushReplyMessage:
        """The header with which a reply is pushed."""
        now_ms = self._clock.now_ms()
        return PushReplyMessage(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=append(header.properties or "", f"PUSH_REPLY_TIME\x01{now_ms}\x02"),
            reconsume_times=header.reconsume_times or 0,
            unit_mode=bool(header.unit_mode),
            born_host=connection.address,
            store_host=self._address,
            store_timestamp=now_ms,
        )

    def _keep(
        self,
        header: SendReplyMessage | SendReplyMessageV2,
        body: bytes,
        connection: Caller,
        response: SendMessageResponse,
    ) -> None:
        """Store the reply as it came; its offset goes into the response."""
        properties = header.properties or ""
        draft = MessageDraft(
            header.topic,
            response.queue_id,
            body,
            properties.encode(),
            connection.host,
            self._store_host,
            header.flag,
            header.sys_flag & ~BROKER_BITS,
            header.born_timestamp,
            header.reconsume_times or 0,
            tags_code=tags_code(decode(properties).get("TAGS")),
        )
        result = self._puts.put_as_is(draft)
        if result.status not in STORED:
            log.warning("reply.not_kept", topic=header.topic, status=result.status.name)
            return
        self._stats.topic_in(header.topic).put(result.count, result.size)
        response.msg_id = offset_id(self._store_host, result.physical_offset)
        response.queue_offset = result.queue_offset


async def _when_pushed(
    calling: Awaitable[Command], client_id: str, response: SendMessageResponse
) -> Answer:
    """The answer once the requester has the reply, or does not take it."""
    try:
        reply = await calling
    except RemotingError as error:
        return Answer(SYSTEM_ERROR, response, f"push reply message to {client_id} fail. {error}")
    if reply.code == SUCCESS:
        return Answer(SUCCESS, response)
    remark = f"push reply message to {client_id} fail. {reply.remark or reply.code}"
    return Answer(SYSTEM_ERROR, response, remark)
