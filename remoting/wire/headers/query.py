"""Messages by key and by physical offset. Source: remoting §3.8."""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import I32, I64, Header, wire


class QueryMessage(Header):
    """QUERY_MESSAGE (12). With `unique_key` the key is a client's message id. Times in ms."""

    code = RequestCode.QUERY_MESSAGE
    topic: str
    key: str
    max_num: I32
    begin_timestamp: I64
    end_timestamp: I64
    unique_key: bool | None = wire("_UNIQUE_KEY_QUERY", default=None)


class QueryMessageResponse(Header):
    """How far the index has come."""

    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


class ViewMessageById(Header):
    """VIEW_MESSAGE_BY_ID (33). `offset` is the physical offset in the message id."""

    code = RequestCode.VIEW_MESSAGE_BY_ID
    offset: I64
    topic: str | None = None
