"""Topics made and listed. Source: admin §3 (updateTopic, topicList), client §13."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.message import TOPIC_MAX, check_name
from aerobee.client.route import MASTER_ID
from aerobee.client.steps.answers import body_of, expect
from aerobee.client.steps.effects import Ask, Signal, Wait
from aerobee.client.steps.routes import AUTO_CREATE_TOPIC
from aerobee.errors import (
    BrokerNotFoundError,
    ConfigurationError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from aerobee.remoting.wire.bodies.topic_list import TopicList
from aerobee.remoting.wire.headers.namesrv import GetAllTopicList
from aerobee.remoting.wire.headers.topic import CreateTopic

if TYPE_CHECKING:
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Instance
    from aerobee.client.steps.routes import Routes

__all__ = ["create_topic", "topics"]

QUEUES_MAX = 65_536
PERMS = frozenset({0, 2, 4, 6})
ROUTE_CHECK_S = 0.1
ROUTE_WITHIN_S = 10.0


def create_topic(instance: Instance, name: str, queues: int, perm: int, wait: bool) -> Steps[None]:
    """Make or change a topic on every master; with `wait` until the name server routes it.

    Raises: ConfigurationError, BrokerNotFoundError, BrokerError, TransportError,
    RequestTimeoutError if the route does not come.
    """
    check_name("topic", name, TOPIC_MAX)
    if not 1 <= queues <= QUEUES_MAX:
        raise ConfigurationError(f"a topic has 1 to {QUEUES_MAX} queues, not {queues}")
    if perm not in PERMS:
        raise ConfigurationError("perm is 6 (read and write), 4 (read), 2 (write) or 0")
    header = CreateTopic(
        topic=name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
        attributes="",
        force=False,
    )
    masters = yield from _masters(instance)
    for broker_name, address in masters.items():
        ask = Ask(address=address, header=header, timeout_s=instance.config.request_timeout)
        expect(ask, (yield ask), broker_name)
    if wait:
        yield from _until_routed(instance, name, set(masters), queues)


def _masters(instance: Instance) -> Steps[dict[str, str]]:
    """Address of every master the name server knows, by broker name."""
    cluster = yield from instance.greet(instance.config.request_timeout)
    masters = {
        name: data.broker_addrs[MASTER_ID]
        for name, data in sorted(cluster.broker_addr_table.items())
        if MASTER_ID in data.broker_addrs
    }
    if not masters:
        raise BrokerNotFoundError("the name server knows no broker")
    return masters


def _until_routed(instance: Instance, topic: str, brokers: set[str], queues: int) -> Steps[None]:
    deadline = instance.clock.monotonic() + ROUTE_WITHIN_S
    never = Signal()
    while instance.clock.monotonic() < deadline:
        try:
            route = yield from instance.fetch_route(topic, instance.config.request_timeout)
        except RouteNotFoundError:
            pass
        else:
            routed = {q.broker_name for q in route.to_subscribe or route.to_publish}
            if brokers <= set(route.brokers) and (routed or not queues):
                return
        yield Wait(never, ROUTE_CHECK_S)
    raise RequestTimeoutError(
        f"topic {topic} is made, but the name server does not route it after {ROUTE_WITHIN_S} s"
    )


def topics(routes: Routes) -> Steps[list[str]]:
    """The names of all topics, sorted, system topics included. Raises: NoNameServerError."""
    ask, answer = yield from routes.ask_name_server(
        GetAllTopicList(), routes.config.request_timeout
    )
    expect(ask, answer, "name server")
    return sorted(body_of(ask, answer, TopicList).topic_list)
