"""Message queries: by key, by unique key, by physical offset.

Source: remoting §3.8, store format §7.3 (QueryMessageProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.errors import Refused
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers import query as headers

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.wire.command import Command
    from aerobee.store.message_store import MessageStore

__all__ = ["QueryProcessor"]

NOTHING: Final = "can not find message, maybe time range not correct"


class QueryProcessor:
    """Codes 12 and 33. Records are sent as they are stored; clients compare keys once more."""

    def __init__(self, *, store: MessageStore, guarded: bool = False) -> None:
        """`guarded`: the rights on a message are those on the topic that the request names."""
        self.store = store
        self.guarded = guarded

    async def by_key(
        self, header: headers.QueryMessage, command: Command, connection: Connection
    ) -> Answer:
        """QUERY_MESSAGE: the newest messages with a key in a time range, in the order of the
        log.
        """
        most = header.max_num
        if header.unique_key:
            most = self.store.config.default_query_max_num
        found = await self.store.index.query(
            header.topic, header.key, most, header.begin_timestamp, header.end_timestamp
        )
        answer_header = headers.QueryMessageResponse(
            index_last_update_timestamp=found.index_timestamp,
            index_last_update_phyoffset=found.index_physical_offset,
        )
        if not found.records:
            return Answer(int(ResponseCode.QUERY_NOT_FOUND), header=answer_header, remark=NOTHING)
        return Answer(header=answer_header, body=found.records)

    def by_id(
        self, header: headers.ViewMessageById, command: Command, connection: Connection
    ) -> Answer | Awaitable[Answer]:
        """VIEW_MESSAGE_BY_ID: the message that begins there, if one does."""

        def look() -> Answer:
            record = self.store.stored_message(header.offset)
            if self.guarded and header.topic and record is not None:
                message = self.store.message(header.offset)
                record = record if message and message.topic == header.topic else None
            if record is None:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"can not find message by the offset, {header.offset}",
                )
            return Answer(body=[record])

        return self.store.reading(look)
