"""The members of a consumer group. Source: remoting §3.9."""

from __future__ import annotations

import msgspec

from aerobee.remoting.wire.bodies.body import Body


class ConsumerList(Body, msgspec.Struct, rename="camel"):
    """The answer to GET_CONSUMER_LIST_BY_GROUP: client ids, each once."""

    consumer_id_list: list[str] = []
