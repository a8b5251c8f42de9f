"""Requests about one client: those that the broker forwards to it, and to close its connections.

The broker finds the client's connection and forwards the request; it returns the client's response
unchanged. Source: admin §4.3 (AdminBrokerProcessor.callConsumer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.changes import ChangeAnswer, change, quoted
from aerobee.broker.core.names import was_delivered
from aerobee.broker.errors import Refusal
from aerobee.remoting.errors import CallTimedOut, RemotingError
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.admin import CloseClientResponse
from aerobee.store.format.message_id import read_offset_id

if TYPE_CHECKING:
    from aerobee.broker.consumers.clients import Client
    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header
    from aerobee.remoting.wire.headers import admin as headers

OLDEST_CLIENT: Final = 62
"""V3_1_8_SNAPSHOT, the first version that answers these requests."""
ANSWER_WITHIN_S: Final = 10.0


class ClientCalls:
    """Handles the codes 307, 309 and 900001."""

    def __init__(self, core: Core, *, topics: TopicTable, consumers: ConsumerTables) -> None:
        self.store = core.store
        self.guarded = core.config.auth.enabled
        self.broker_name = core.config.broker.broker_name
        self.topics = topics
        self.groups = consumers.groups
        self.clients = consumers.clients

    async def running_info(
        self, header: headers.GetConsumerRunningInfo, command: Command, connection: Caller
    ) -> Answer:
        """GET_CONSUMER_RUNNING_INFO: the client's queues and its consume rates."""
        client = self._client(header.consumer_group, header.client_id)
        return await self._ask(client, header)

    async def consume_directly(
        self, header: headers.ConsumeMessageDirectly, command: Command, connection: Caller
    ) -> Answer:
        """CONSUME_MESSAGE_DIRECTLY: the client consumes a stored message now; offsets stay."""
        group = self.groups.existing(header.consumer_group)
        client = self._client(header.consumer_group, header.client_id or "")
        record = await self.store.complete(lambda: self._record(header))
        topic = self.topics.get(header.topic or "")
        header.broker_name = self.broker_name
        header.group_sys_flag = group.group_sys_flag
        header.topic_sys_flag = 0 if topic is None else topic.topic_sys_flag
        return await self._ask(client, header, record)

    def close(self, header: headers.CloseClient, command: Command, connection: Caller) -> Answer:
        """AEROBEE_CLOSE_CLIENT: the client may connect again, and most do so by themselves."""
        connections = [
            holder.connection for holder in self.clients.holders.get(header.client_id, {}).values()
        ]
        if not connections:
            name = quoted(header.client_id)
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no client with the id {name} is connected")
        for peer in connections:
            peer.close("an administrator asked for it")
        changes = change(header.client_id, {"connections": len(connections)}, {"connections": 0})
        return ChangeAnswer(header=CloseClientResponse(closed=len(connections)), changes=changes)

    def _record(self, header: headers.ConsumeMessageDirectly) -> bytes:
        """The stored message of an id; an id made by a client holds no physical offset."""
        message_id = header.msg_id or ""
        try:
            _, physical_offset = read_offset_id(message_id)
        except ValueError as error:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"msgId [{message_id[:64]}] is no offset id: ask for the one that sends return",
            ) from error
        record = self.store.stored_message(physical_offset)
        if self.guarded and header.topic and record is not None:
            # The rights were checked for the topic that the request names.
            message, group = self.store.message(physical_offset), header.consumer_group
            if message is None or not was_delivered(message.topic, group, header.topic):
                record = None
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"there is no message [{message_id}] any more")
        return bytes(record)

    def _client(self, group: str, client_id: str) -> Client:
        """The newest connection of a member. Raises: Refusal."""
        entry = self.clients.group(group)
        connections = [
            client
            for client in (entry.clients.values() if entry else ())
            if client.client_id == client_id
        ]
        if not connections:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        if connections[-1].version < OLDEST_CLIENT:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> is too old to be asked: upgrade it to 3.1.8 or later",
            )
        return connections[-1]

    async def _ask(self, client: Client, header: Header, body: bytes = b"") -> Answer:
        """The client's response, its bytes unchanged. Raises: Refusal."""
        try:
            response = await client.connection.call(header.code, header, body, ANSWER_WITHIN_S)
        except CallTimedOut as error:
            raise Refusal(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{client.client_id}>: {error}"
            ) from error
        except RemotingError as error:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"consumer <{client.client_id}>: {error}"
            ) from error
        return Answer(response.code, remark=response.remark, body=bytes(response.body))
