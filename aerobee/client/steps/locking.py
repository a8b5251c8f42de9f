"""Locks of queues at brokers, for orderly consumers.

Source: client §9.5, semantics §12 (RebalanceImpl.lock).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.steps.answers import body_of, expect
from aerobee.client.steps.effects import Ask
from aerobee.client.wire_queues import from_wire, to_wire
from aerobee.errors import AerobeeError
from aerobee.remoting.wire.bodies import queue as bodies
from aerobee.remoting.wire.headers.client import LockBatchMq, UnlockBatchMq

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Instance
    from aerobee.remoting.wire.header import Header

WITHIN_S = 1.0


def lock_queues(
    instance: Instance, group: str, queues: Iterable[MessageQueue]
) -> Steps[frozenset[MessageQueue]]:
    """Lock queues of one broker, or renew; returns those that are locked. Raises: AerobeeError."""
    wanted = list(queues)
    ask = _request(instance, group, LockBatchMq(), wanted)
    answer = expect(ask, (yield ask), wanted[0].broker_name)
    granted = body_of(ask, answer, bodies.LockBatchResponse).lock_ok_mq_set
    return frozenset(from_wire(one) for one in granted)


def unlock_queues(instance: Instance, group: str, queues: Iterable[MessageQueue]) -> Steps[None]:
    """Unlock queues of one broker; if that fails, the locks expire."""
    wanted = list(queues)
    try:
        ask = _request(instance, group, UnlockBatchMq(), wanted)
        expect(ask, (yield ask), wanted[0].broker_name)
    except AerobeeError as error:
        name = wanted[0].broker_name
        instance.log_once(f"unlock {name}", "broker %s was not told of locks: %s", name, error)


def _request(instance: Instance, group: str, header: Header, queues: Iterable[MessageQueue]) -> Ask:
    wanted = list(queues)
    body = bodies.LockBatchRequest(
        client_id=instance.config.client_id,
        consumer_group=group,
        mq_set=[to_wire(queue) for queue in wanted],
    )
    address = instance.master(wanted[0].broker_name)
    return Ask(address=address, header=header, body=body.to_bytes(), timeout_s=WITHIN_S)
