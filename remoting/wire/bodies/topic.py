"""Topics: their settings, in bodies and in `topics.json`, and lists of names.

Source: semantics §4.1; admin §2 (TopicList, GroupList).
"""

from __future__ import annotations

from typing import Final

import msgspec

from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.bodies.data_version import DataVersion
from aerobee.remoting.wire.header import I32

MESSAGE_TYPE: Final = "message.type"
"""Names of attributes of a topic, without the sign of an edit: what its messages are."""
MAX_RATE: Final = "aerobee.max.rate"
"""Messages per second that clients may send; brokers in Java keep it, and do nothing with it."""
MAX_BYTES: Final = "aerobee.max.bytes"
"""Bytes of bodies per second."""


class TopicConfig(Body, msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One topic. `perm`: 4 read, 2 write, 1 inherit. 4.9 has no attributes."""

    attributes: dict[str, str] = {}
    order: bool = False
    perm: I32 = 6
    read_queue_nums: I32 = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: I32 = 0
    write_queue_nums: I32 = 16


class TopicConfigSerializeWrapper(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Topics with the version of their table. 4.9 has no queue mappings."""

    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = {}
    topic_queue_mapping_detail_map: dict[str, dict[str, object]] = {}
    topic_queue_mapping_info_map: dict[str, dict[str, object]] = {}


class TopicConfigs(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST; keys of attributes begin with a plus or a minus."""

    topic_config_list: list[TopicConfig]


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
