"""Message queries by physical offset.

Source: remoting §3.8, store format §7.3 (QueryMessageProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.errors import Refusal
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import query as headers
    from aerobee.store.message_store import MessageStore


class QueryProcessor:
    """Code 33. Records are sent as they are stored."""

    def __init__(self, *, store: MessageStore, guarded: bool = False) -> None:
        """`guarded`: the rights on a message are those on the topic that the request names."""
        self.store = store
        self.guarded = guarded

    def by_id(
        self, header: headers.ViewMessageById, command: Command, connection: Caller
    ) -> Answer | Awaitable[Answer]:
        """VIEW_MESSAGE_BY_ID: the message that begins there, if one does."""

        def look() -> Answer:
            record = self.store.stored_message(header.offset)
            if self.guarded and header.topic and record is not None:
                message = self.store.message(header.offset)
                record = record if message and message.topic == header.topic else None
            if record is None:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"can not find message by the offset, {header.offset}",
                )
            return Answer(body=[record])

        return self.store.reading(look)
