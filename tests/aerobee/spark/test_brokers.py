import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from time import monotonic

import pytest

from aerobee.blocking import AdminClient, Producer
from aerobee.client.blocking.connections import Connections
from aerobee.client.message import Message
from aerobee.client.route import TopicRoute, in_order
from aerobee.client.send_result import MessageQueue
from aerobee.client.steps import offsets
from aerobee.errors import (
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    NoNameServerError,
    RequestTimeoutError,
    RouteNotFoundError,
    SubscriptionError,
    TransportError,
)
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.headers.group import CreateGroup
from aerobee.remoting.wire.headers.offset import GetMaxOffset
from aerobee.remoting.wire.headers.topic import GetTopicConfig
from aerobee.spark.brokers import Cluster, cluster_of, preferred
from aerobee.spark.offsets import Queue
from aerobee.store.format.system_names import TOOLS_GROUP
from tests.aerobee.spark.filling import bodies, expire, fill
from tests.aerobee.spark.replicas import AT_MASTER, AT_SLAVE, TOPIC, replicas
from tests.conftest import AnyBroker, StartBroker
from tests.kit.ports import HOST, free_port
from tests.kit.raw_client import RawConnection, pull_fields, records
from tests.kit.source_tree import ROOT

pytestmark = pytest.mark.service

PULL = 11
TIMEOUT_S = 3.0
_numbers = count()


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker()


@pytest.fixture
def cluster(broker: AnyBroker) -> Iterator[Cluster]:
    made = Cluster([broker.namesrv_address])
    yield made
    made.close()


@pytest.fixture
def topic(broker: AnyBroker) -> str:
    """A topic of two queues that no other test uses."""
    return make_topic(broker, 2)


def make_topic(broker: AnyBroker, queues: int, perm: int = 6) -> str:
    name = f"topic-{next(_numbers)}"
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_topic(name, queues=queues, perm=perm)
    return name


def queues_of(cluster: Cluster, topic: str) -> list[Queue]:
    return [queue for queue, _addresses in cluster.queues([topic])]


def send(broker: AnyBroker, queue: Queue, times: int) -> None:
    with Producer(broker.namesrv_address) as producer:
        for number in range(times):
            to = MessageQueue(queue.topic, queue.broker, queue.queue_id)
            producer.send(Message(queue.topic, b"%d" % number), queue=to)


# ── Name servers ──


def test_topics_queues_and_where_they_are(broker: AnyBroker, cluster: Cluster, topic: str) -> None:
    found = cluster.queues([topic])
    assert [queue.queue_id for queue, _ in found] == [0, 1]
    assert {queue.topic for queue, _ in found} == {topic}
    assert {addresses for _, addresses in found} == {(broker.address,)}
    assert topic in cluster.topics()
    name = found[0][0].broker
    assert cluster.brokers() == {name: (broker.address,)}
    assert [queue.queue_id for queue in cluster.route(topic).to_subscribe] == [0, 1]


def test_queues_of_several_topics_come_sorted(broker: AnyBroker, cluster: Cluster) -> None:
    topics = [make_topic(broker, 2), make_topic(broker, 1)]
    found = [queue for queue, _ in cluster.queues(topics[::-1])]
    assert found == sorted(found)
    assert {queue.topic for queue in found} == set(topics)


def test_what_may_not_be_read_has_no_queues(broker: AnyBroker, cluster: Cluster) -> None:
    topic = make_topic(broker, 2, perm=2)
    assert cluster.queues([topic]) == []


def test_a_route_is_remembered_until_a_fresh_one_is_asked_for(
    broker: AnyBroker, cluster: Cluster, topic: str
) -> None:
    assert len(cluster.route(topic).to_publish) == 2
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_topic(topic, queues=3)
    assert len(cluster.route(topic).to_publish) == 2
    assert len(cluster.route(topic, fresh=True).to_publish) == 3
    assert len(cluster.queues([topic])) == 3


def test_a_missing_topic_is_named(cluster: Cluster) -> None:
    with pytest.raises(RouteNotFoundError, match="no route for topic not-there"):
        cluster.queues(["not-there"])
    with pytest.raises(RouteNotFoundError, match="not-there"):
        cluster.min_offsets([Queue("not-there", "unheard-of", 0)])


def test_an_unknown_broker_is_named(cluster: Cluster, topic: str) -> None:
    with pytest.raises(BrokerNotFoundError, match=f"queue 0 of topic {topic} on broker nobody"):
        cluster.max_offsets([Queue(topic, "nobody", 0)])


def test_the_next_name_server_is_asked_when_one_is_silent(broker: AnyBroker, topic: str) -> None:
    nobody = f"{HOST}:{free_port()}"
    cluster = Cluster([nobody, broker.namesrv_address])
    assert len(cluster.queues([topic])) == 2
    cluster.close()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each pause between requests; none of them is made."""
    made: list[float] = []
    monkeypatch.setattr("aerobee.client.blocking.connections.sleep", made.append)
    return made


def test_without_a_name_server_the_error_names_all_that_were_asked(pauses: list[float]) -> None:
    one, two = (f"{HOST}:{free_port()}" for _ in range(2))
    with pytest.raises(NoNameServerError, match=f"{one}.*{two}"):
        Cluster([one, two]).topics()
    assert sum(pauses) < 5.0
    with pytest.raises(ConfigurationError):
        Cluster(["no address:x"])


@pytest.mark.parametrize(
    ("read_from", "expected"),
    [
        ("master", [("m", "s", "t"), ("m", "s", "t")]),
        ("slave", [("s", "t", "m"), ("s", "t", "m")]),
        ("any", [("m", "s", "t"), ("s", "t", "m")]),
    ],
)
def test_whom_to_read_from(read_from: str, expected: list[tuple[str, ...]]) -> None:
    addresses = in_order({2: "t", 0: "m", 1: "s"})
    queues = [Queue("t", "b", number) for number in range(2)]
    assert [preferred(addresses, read_from, queue) for queue in queues] == expected


# ── Offsets ──


def test_bounds_of_queues(broker: AnyBroker, cluster: Cluster, topic: str) -> None:
    queues = queues_of(cluster, topic)
    send(broker, queues[1], 3)
    assert cluster.min_offsets(queues) == {queues[0]: 0, queues[1]: 0}
    assert cluster.max_offsets(queues) == {queues[0]: 0, queues[1]: 3}
    assert cluster.max_offsets([]) == {}


@pytest.mark.ours  # 4.9 says 0 for nothing, and keeps offsets of groups that it does not know
def test_a_group_that_nobody_knows_has_committed_nothing(cluster: Cluster, topic: str) -> None:
    queues = queues_of(cluster, topic)
    assert cluster.committed("unheard-of", queues) == dict.fromkeys(queues)
    with pytest.raises(SubscriptionError, match="unheard-of"):
        cluster.commit("unheard-of", {queues[0]: 7})


def test_what_a_group_has_committed_is_told(
    broker: AnyBroker, cluster: Cluster, topic: str
) -> None:
    queues = queues_of(cluster, topic)
    group = f"group-of-{topic}"
    config = SubscriptionGroupConfig(group_name=group)
    cluster.call(broker.address, CreateGroup(), config.to_bytes())
    cluster.commit(group, {queues[0]: 7})
    assert cluster.committed(group, queues)[queues[0]] == 7
    cluster.commit(group, {queues[0]: 8, queues[1]: 1})
    assert cluster.committed(group, queues) == {queues[0]: 8, queues[1]: 1}


def corrected(cluster: Cluster, queue: Queue, near: int, ms: int) -> int:
    """What becomes of an offset that a broker named for a time, where that is only near."""
    of_tools = offsets.Offsets(cluster.routes, TOOLS_GROUP)
    connections = Connections(TIMEOUT_S)
    try:
        return connections.perform(of_tools.corrected(MessageQueue(*queue), near, ms))
    finally:
        connections.close()


def stored_at(broker: AnyBroker, queue: Queue, count: int) -> list[int]:
    """The store time of each message of a queue, by a plain client."""
    times: list[int] = []
    with RawConnection(broker.address) as raw:
        while len(times) < count:
            fields = pull_fields("TOOLS_CONSUMER", queue.topic, queue.queue_id, len(times))
            times += [one.store_timestamp for one in records(raw.call(PULL, fields).body)]
    return times


def first_since(times: list[int], ms: int) -> int:
    return next((at for at, stored in enumerate(times) if stored >= ms), len(times))


@pytest.mark.parametrize("exact_since", [offsets.EXACT_TIME_SINCE, 1 << 30])
def test_offsets_by_time_are_those_of_the_first_message_since(
    broker: AnyBroker,
    cluster: Cluster,
    topic: str,
    exact_since: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offsets, "EXACT_TIME_SINCE", exact_since)
    full, empty = queues_of(cluster, topic)
    send(broker, full, 60)
    times = stored_at(broker, full, 60)
    wanted = {times[0] - 1000, times[-1] + 1, times[-1] + 1000}
    wanted |= {at + more for at in times for more in (-1, 0, 1)}
    for ms in sorted(wanted):
        expected = {full: first_since(times, ms), empty: 0}
        assert cluster.offsets_at([full, empty], ms) == expected, f"{ms - times[0]} ms"


@pytest.mark.parametrize("near", [5, 6, 7])
def test_a_broker_that_comes_near_is_corrected_whichever_message_it_names(
    broker: AnyBroker, cluster: Cluster, topic: str, near: int
) -> None:
    queue, _ = queues_of(cluster, topic)
    send(broker, queue, 10)
    times = stored_at(broker, queue, 10)
    # 4.9 names the message before, or any of those stored in the millisecond asked for.
    first = first_since(times, times[near])
    for named in {max(0, first - 1), *range(first, near + 1)}:
        assert corrected(cluster, queue, named, times[near]) == first
    assert corrected(cluster, queue, 9, times[9] + 1) == 10
    assert corrected(cluster, queue, 0, times[0] - 1) == 0


def test_a_place_by_time_lies_in_the_queue(start_broker: StartBroker) -> None:
    """4.9 names a place in front of a queue whose messages are all gone."""
    broker = start_broker(mappedFileSizeCommitLog=65_536)
    topic = make_topic(broker, 1)
    fill(broker, topic, bodies(600, 200))
    expire(broker, 2)
    cluster = Cluster([broker.namesrv_address])
    [queue] = queues_of(cluster, topic)
    least = cluster.min_offsets([queue])[queue]
    assert least > 0
    assert corrected(cluster, queue, 0, 1) == least
    cluster.close()


def test_one_request_and_its_refusal(broker: AnyBroker, cluster: Cluster, topic: str) -> None:
    assert cluster.call(broker.address, GetMaxOffset(topic=topic, queue_id=0)).code == 0
    # 4.9 does not know the request, others not the topic.
    with pytest.raises(BrokerError, match=rf"GET_TOPIC_CONFIG: .*{broker.address} answered"):
        cluster.call(broker.address, GetTopicConfig(topic="no-topic"))


# ── What goes wrong ──


def test_a_broker_that_was_killed_is_named_and_found_again(
    start_broker: StartBroker, pauses: list[float]
) -> None:
    broker = start_broker()
    topic = make_topic(broker, 2)
    cluster = Cluster([broker.namesrv_address])
    queues = queues_of(cluster, topic)
    send(broker, queues[0], 2)
    broker.kill()
    with pytest.raises(TransportError, match=f"GET_MAX_OFFSET.*{broker.address}|{broker.address}"):
        cluster.max_offsets(queues)
    with pytest.raises(TransportError, match=broker.address):
        cluster.call(broker.address, GetMaxOffset(topic=topic, queue_id=0))
    with pytest.raises(TransportError, match=broker.address):
        cluster.commit("group", dict.fromkeys(queues, 0))
    assert sum(pauses) < 8.0
    broker.start()
    assert cluster.max_offsets(queues) == {queues[0]: 2, queues[1]: 0}
    assert [queue for queue, _ in cluster.queues([topic])] == queues
    assert cluster.call(broker.address, GetMaxOffset(topic=topic, queue_id=0)).code == 0
    cluster.close()


def test_ends_are_those_of_the_master_while_the_route_has_one(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    with replicas(start_broker(brokerName="names"), tmp_path) as both:
        cluster = Cluster([both.namesrv_address], timeout_s=0.4)
        [queue] = queues_of(cluster, TOPIC)
        assert cluster.max_offsets([queue]) == {queue: AT_MASTER}
        os.kill(both.master.child.pid, signal.SIGSTOP)
        with pytest.raises(RequestTimeoutError, match=both.master.address):
            cluster.max_offsets([queue])
        os.kill(both.master.child.pid, signal.SIGCONT)
        both.kill_master()
        assert cluster.queues([TOPIC]) == [(queue, (both.slave.address,))]
        assert not cluster.has_master(queue)
        assert cluster.max_offsets([queue]) == {queue: AT_SLAVE}
        with pytest.raises(
            BrokerNotFoundError, match=r"queue 0 of topic .* the master of broker .* is down"
        ):
            cluster.commit("group", {queue: 1})
        cluster.close()


def test_connections_to_where_a_broker_was_are_closed(cluster: Cluster, topic: str) -> None:
    def moved_to(address: str) -> None:
        route = TopicRoute((), (), {"moved": {0: address}})
        cluster.routes.remember("elsewhere", route)
        cluster.queues([topic])

    with socket.create_server((HOST, 0)) as server:
        address = f"{HOST}:{server.getsockname()[1]}"
        moved_to(address)
        channel = cluster.channel(address)
        moved_to(address)
        assert not channel.closed, "the broker is there"
        moved_to(f"{HOST}:1")
        assert channel.closed


def test_the_same_cluster_is_asked_again_and_again(broker: AnyBroker, topic: str) -> None:
    cluster = cluster_of((broker.namesrv_address,))
    assert cluster_of([broker.namesrv_address]) is cluster
    assert cluster_of([f"{HOST}:1"]) is not cluster
    queues = queues_of(cluster, topic)
    channel = cluster.channel(broker.address)
    cluster.max_offsets(queues)
    assert cluster.channel(broker.address) is channel
    cluster.close()


def test_threads_share_a_cluster(cluster: Cluster, topic: str) -> None:
    queues = queues_of(cluster, topic)
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(cluster.max_offsets(queues))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
    assert found == [{queues[0]: 0, queues[1]: 0}] * 8


FORK = """
import os, sys
from aerobee.spark.brokers import cluster_of
namesrv, topic = sys.argv[1:]
cluster = cluster_of([namesrv])
queues = [queue for queue, _ in cluster.queues([topic])]
before = cluster.max_offsets(queues)
child = os.fork()
if not child:
    # The parent's object and a new one of the same name servers: both must work, on new sockets.
    again = cluster_of([namesrv])
    fine = again is not cluster and cluster.max_offsets(queues) == before
    os._exit(0 if fine and again.max_offsets(queues) == before else 1)
_, status = os.waitpid(child, 0)
assert cluster.max_offsets(queues) == before
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_child_process_connects_for_itself(broker: AnyBroker, topic: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, broker.namesrv_address, topic],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=240,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.alone
def test_a_thousand_queues_are_planned_in_a_second(broker: AnyBroker, cluster: Cluster) -> None:
    topic = make_topic(broker, 1024)

    def plan() -> int:
        queues = queues_of(cluster, topic)
        cluster.min_offsets(queues)
        return len(cluster.max_offsets(queues))

    assert min(timed(plan, 1024) for _ in range(3)) <= 1.0


def timed(what: Callable[[], int], expected: int) -> float:
    begun = monotonic()
    assert what() == expected
    return monotonic() - begun
