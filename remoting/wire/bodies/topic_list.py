"""Names of topics, and of groups. Source: admin §2 (TopicList, GroupList)."""

from __future__ import annotations

import msgspec

from aerobee.remoting.wire.bodies.body import Body


class GroupList(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Names of groups."""

    group_list: list[str]


class TopicList(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Names; `broker_addr` only in answers that have one."""

    topic_list: list[str]
    broker_addr: str | None = None

    def to_bytes(self) -> bytes:
        """Compact JSON."""
        document: dict[str, object] = {"topicList": self.topic_list}
        if self.broker_addr is not None:
            document["brokerAddr"] = self.broker_addr
        return msgspec.json.encode(document)
