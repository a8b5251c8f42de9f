"""Queues that a client of an orderly group wants to lock. Source: remoting §3.9."""

from __future__ import annotations

import msgspec

from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.header import I32


class MessageQueue(Body, msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One queue of one topic on one broker."""

    broker_name: str
    queue_id: I32
    topic: str


class LockBatchRequest(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    client_id: str
    consumer_group: str
    mq_set: list[MessageQueue] = []
    only_this_broker: bool = False


class LockBatchResponse(Body, msgspec.Struct, rename="camel"):
    """The queues that the client holds a lock on."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")
