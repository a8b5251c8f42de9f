"""Queries the queues of a topic that a broker assigns to this client, to be pulled or popped.

Source: client §8.1 (RebalanceImpl), semantics §11.2 (QueryAssignmentProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.client.steps.answers import body_of, expect
from aerobee.client.steps.effects import Ask
from aerobee.client.wire_queues import from_wire
from aerobee.errors import BrokerNotFoundError, ConsumerNotOnlineError
from aerobee.remoting.wire.bodies.pop import AssignmentRequest, AssignmentResponse
from aerobee.remoting.wire.headers.pop import QueryAssignment

if TYPE_CHECKING:
    from aerobee.client.route import TopicRoute
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Instance

POP: Final = "POP"


def query_assignment(
    instance: Instance, group: str, topic: str, route: TopicRoute, strategy: str
) -> Steps[dict[MessageQueue, bool]]:
    """The assigned queues, and whether to pop from them; a queue id of −1 is all of a broker.

    Raises: BrokerNotFoundError, ConsumerNotOnlineError if the broker does not know this client,
    UnsupportedRequestError before 5.0, BrokerError, TransportError.
    """
    if not route.brokers:
        raise BrokerNotFoundError(f"the route of {topic} names no broker").about(topic=topic)
    name = instance.random.choice(sorted(route.brokers))
    wanted = AssignmentRequest(
        client_id=instance.config.client_id,
        consumer_group=group,
        strategy_name=strategy,
        topic=topic,
    )
    ask = Ask(
        address=instance.reader(name),
        header=QueryAssignment(),
        body=wanted.to_bytes(),
        timeout_s=instance.config.request_timeout,
    )
    answer = expect(ask, (yield ask), name)
    assigned = body_of(ask, answer, AssignmentResponse).message_queue_assignments
    if assigned is None:
        # The broker has no heartbeat of this client, or lost it in a restart.
        instance.subscriptions_changed()
        raise ConsumerNotOnlineError(206, "no member known", name, ask.address, "rebalance")
    return {from_wire(one.message_queue): one.mode == POP for one in assigned}
