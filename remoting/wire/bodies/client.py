"""Clients, their groups and subscriptions: heartbeats, and what administrators see of them.

Enums are their names. C++ clients send ordinals and leave sets out, Go clients send the hash codes
as texts, Node clients name no expression type; all of it reads the same here. The hash codes are
carried along, but no one should trust them. Source: remoting §3.9, §6.6 (HeartbeatData); admin §2
(ProducerTableInfo).
"""

from __future__ import annotations

from typing import Any

import msgspec

from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.header import I64

CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
ORDINALS = {
    "consumeType": CONSUME_TYPES,
    "messageModel": MESSAGE_MODELS,
    "consumeFromWhere": CONSUME_FROM_WHERE,
}


class SubscriptionData(Body, msgspec.Struct, rename="camel", kw_only=True):
    """One topic and the expression on it. `expression_type` None means TAG; versions are ms."""

    class_filter_mode: bool = False
    code_set: list[int] = []
    expression_type: str | None = None
    sub_string: str = "*"
    sub_version: I64 = 0
    tags_set: list[str] = []
    topic: str


class ConsumerData(Body, msgspec.Struct, rename="camel", kw_only=True):
    """One consumer group of the client."""

    consume_from_where: str = CONSUME_FROM_WHERE[0]
    consume_type: str = CONSUME_TYPES[1]
    group_name: str
    message_model: str = MESSAGE_MODELS[1]
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class ProducerData(Body, msgspec.Struct, rename="camel"):
    """One producer group of the client."""

    group_name: str


class HeartbeatData(Body, msgspec.Struct, rename="camel", kw_only=True):
    """The client and all its groups. A fingerprint ≠ 0: subscriptions may be left out next time."""

    client_id: str = msgspec.field(name="clientID")
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: I64 = 0
    producer_data_set: list[ProducerData] = []
    without_sub: bool = False

    @classmethod
    def repaired(cls, document: Any) -> Any:
        """Ordinals become names."""
        if isinstance(document, dict):
            consumers = document.get("consumerDataSet")
            for consumer in consumers if isinstance(consumers, list) else ():
                if isinstance(consumer, dict):
                    name_ordinals(consumer)
        return document


def name_ordinals(consumer: dict[str, Any]) -> None:
    """Replace each number that stands for an enum; one out of range stays and is refused."""
    for member, names in ORDINALS.items():
        value = consumer.get(member)
        if type(value) is int and 0 <= value < len(names):
            consumer[member] = names[value]


class CheckClientConfigBody(Body, msgspec.Struct, rename="camel", kw_only=True):
    """The client, its group and the subscription to check."""

    client_id: str = ""
    group: str = ""
    namespace: str = ""
    subscription_data: SubscriptionData


class ConsumerList(Body, msgspec.Struct, rename="camel"):
    """The answer to GET_CONSUMER_LIST_BY_GROUP: client ids, each once."""

    consumer_id_list: list[str] = []


class ProducerInfo(msgspec.Struct, rename="camel", kw_only=True):
    """One connected producer. `remote_ip` starts with a slash, as Java prints addresses."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP", default="")
    language: str = ""
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTableInfo(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of GET_ALL_PRODUCER_INFO: group → its members."""

    data: dict[str, list[ProducerInfo]] = {}
