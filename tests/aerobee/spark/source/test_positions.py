"""Topics and queues that options speak of, and where a position lies in each queue."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING

import pytest

from aerobee.errors import BrokerNotFoundError, ConfigurationError, RouteNotFoundError
from aerobee.spark.brokers import cluster_of
from aerobee.spark.offsets import (
    CommittedPosition,
    EarliestPosition,
    ExplicitPosition,
    LatestPosition,
    Queue,
    TimePosition,
)
from aerobee.spark.options import read_options
from aerobee.spark.source.positions import check_brokers, matching, queues_of, resolved
from tests.aerobee.spark.filling import bodies, fill, make_topic
from tests.kit.raw_client import RawConnection, topic_fields

if TYPE_CHECKING:
    from aerobee.spark.brokers import Cluster
    from aerobee.spark.options import ReadOptions
    from tests.conftest import AnyBroker, StartBroker

KNOWN = ("orders", "orders-eu", "%RETRY%lake", "%DLQ%lake", "RMQ_SYS_TRACE_TOPIC", "TBW102")
CREATE_TOPIC = 17
LATE_MS = 4_102_444_800_000
"""The year 2100."""
_numbers = count()


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        (".*", ("orders", "orders-eu")),
        ("orders", ("orders",)),
        ("orders.+", ("orders-eu",)),
        ("%DLQ%.*", ("%DLQ%lake",)),
        (r"^\%RETRY\%.*", ("%RETRY%lake",)),
        (".*lake", ()),
        (".*TRACE.*|TBW102", ()),
    ],
)
def test_a_pattern_means_whole_names_and_no_topics_of_the_system(
    pattern: str, topics: tuple[str, ...]
) -> None:
    assert matching(pattern, KNOWN) == topics


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker()


@pytest.fixture
def topic(broker: AnyBroker) -> str:
    name = f"place-{next(_numbers)}"
    make_topic(broker, name, 2)
    fill(broker, name, bodies(10))
    return name


def options(broker: AnyBroker, **given: str) -> ReadOptions:
    lower = {name.lower(): value for name, value in given.items()}
    return read_options({"nameserver": broker.namesrv_address, **lower}, stream=True)


def cluster(broker: AnyBroker) -> Cluster:
    return cluster_of(options(broker, topic="any").name_servers)


def queues(broker: AnyBroker, topic: str) -> list[Queue]:
    return [*queues_of(cluster(broker), options(broker, topic=topic))]


def test_queues_are_those_of_topics_of_a_pattern_or_just_the_assigned_ones(
    broker: AnyBroker, topic: str
) -> None:
    all_queues = queues(broker, topic)
    assert [queue.queue_id for queue in all_queues] == [0, 1]
    by_pattern = options(broker, subscribePattern=f"{topic}.*")
    assert queues_of(cluster(broker), by_pattern) == dict.fromkeys(all_queues, (broker.address,))
    last = {topic: {all_queues[1].broker: [1]}}
    assigned = queues_of(cluster(broker), options(broker, assign=json.dumps(last)))
    assert [*assigned] == all_queues[1:]


def test_what_is_not_there_is_named(broker: AnyBroker, topic: str) -> None:
    name = queues(broker, topic)[0].broker
    beyond = options(broker, assign=json.dumps({topic: {name: [1, 7]}}))
    with pytest.raises(ConfigurationError, match=f"no queue 7 of topic {topic}"):
        queues_of(cluster(broker), beyond)
    both = options(broker, topic=f"{topic},never-made")
    with pytest.raises(RouteNotFoundError, match="never-made"):
        queues_of(cluster(broker), both)
    told: list[str] = []
    found = queues_of(cluster(broker), both, lambda topic, error: told.append(topic))
    assert (len(found), told) == (2, ["never-made"])


def test_a_topic_that_may_not_be_read_is_named(broker: AnyBroker, topic: str) -> None:
    """An empty table would look as if there were no messages."""
    closed = f"closed-{topic}"
    with RawConnection(broker.address) as connection:
        fields = topic_fields(closed) | {"perm": 2}
        assert connection.call(CREATE_TOPIC, fields).code == 0
    both = options(broker, topic=f"{topic},{closed}")
    with pytest.raises(ConfigurationError, match=f"subscribe: topic {closed} has no queue that"):
        queues_of(cluster(broker), both)
    assert len(queues_of(cluster(broker), both, lambda topic, error: None)) == 2
    pattern = options(broker, subscribePattern=f"{topic}|{closed}")
    assert len(queues_of(cluster(broker), pattern)) == 2


def test_a_position_lies_somewhere_in_every_queue(broker: AnyBroker, topic: str) -> None:
    first, second = queues(broker, topic)
    both, read = [first, second], options(broker, topic=topic, group="places")
    ask = cluster(broker)
    assert resolved(ask, EarliestPosition(), both, read) == {first: 0, second: 0}
    assert resolved(ask, LatestPosition(), both, read) == {first: 10, second: 0}
    assert resolved(ask, CommittedPosition(LatestPosition()), both, read) == {first: 10, second: 0}
    assert resolved(ask, ExplicitPosition({first: -1, second: 0}), both, read) == {
        first: 10,
        second: 0,
    }
    assert resolved(ask, ExplicitPosition({first: -2, second: -1}), both, read) == {
        first: 0,
        second: 0,
    }
    late = TimePosition(topics={topic: LATE_MS}, queues={first: 1}, otherwise="latest")
    assert resolved(ask, late, both, read) == {first: 0, second: 0}


def test_a_position_that_leaves_a_queue_open_is_refused(broker: AnyBroker, topic: str) -> None:
    first, second = queues(broker, topic)
    ask, read = cluster(broker), options(broker, topic=topic)
    with pytest.raises(ConfigurationError, match="name every queue"):
        resolved(ask, ExplicitPosition({first: 1}), [first, second], read)
    with pytest.raises(ConfigurationError, match=r"queue 1 of topic .* not read or not there"):
        resolved(ask, ExplicitPosition({first: 1, second: 1}), [first], read)
    with pytest.raises(ConfigurationError, match="say nothing of queue 1"):
        resolved(ask, TimePosition(queues={first: 1}), [first, second], read)
    with pytest.raises(ConfigurationError, match="no message is as new"):
        resolved(ask, TimePosition(ms=LATE_MS), [first], read)


def test_brokers_that_must_be_there_are_named_or_counted() -> None:
    for wanted in (None, 2, 1, ("a",), ("b", "a")):
        check_brokers(wanted, ("b", "a", "a"))
    told = r"option brokers: {}: a, b\. A broker that is down is in no route"
    with pytest.raises(
        BrokerNotFoundError, match=told.format("3 brokers are asked for, and 2 are there")
    ):
        check_brokers(3, ("b", "a"))
    with pytest.raises(BrokerNotFoundError, match=told.format("broker c and d is not there")):
        check_brokers(("a", "c", "d"), ("b", "a"))
    with pytest.raises(BrokerNotFoundError, match="0 are there: none"):
        check_brokers(1, ())


def test_a_read_that_names_its_brokers_does_not_begin_without_one(
    broker: AnyBroker, topic: str
) -> None:
    options = {"nameserver": broker.namesrv_address, "topic": topic}
    cluster = cluster_of((broker.namesrv_address,))
    [name] = {queue.broker for queue in queues_of(cluster, read_options(options, False))}
    for brokers in (name, "1"):
        found = queues_of(cluster, read_options(options | {"brokers": brokers}, False))
        assert len(found) == 2
    for brokers in ("2", f"{name},broker-down"):
        asked = read_options(options | {"brokers": brokers}, False)
        with pytest.raises(BrokerNotFoundError, match="is in no route"):
            queues_of(cluster, asked)
        assert queues_of(cluster, asked, lambda *_: None), "a stream that runs waits for it"
