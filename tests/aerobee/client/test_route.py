import pytest

from aerobee.client.route import in_order, read_route
from aerobee.client.send_result import MessageQueue
from aerobee.remoting.wire.bodies.route import BrokerData, QueueData, TopicRouteData


def queues(broker: str, perm: int, read: int, write: int) -> QueueData:
    return QueueData(broker_name=broker, perm=perm, read_queue_nums=read, write_queue_nums=write)


def names(found: tuple[MessageQueue, ...]) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in found]


@pytest.fixture
def data() -> TopicRouteData:
    return TopicRouteData(
        broker_datas=[
            BrokerData(broker_name=name, broker_addrs={0: f"{name}:1"}) for name in ("a", "b", "c")
        ],
        queue_datas=[queues("b", 6, 2, 1), queues("a", 4, 1, 1), queues("c", 2, 1, 1)],
    )


def test_what_may_be_read_and_what_may_be_written(data: TopicRouteData) -> None:
    route = read_route("t", data)
    assert names(route.to_subscribe) == [("a", 0), ("b", 0), ("b", 1)]
    assert names(route.to_publish) == [("b", 0), ("c", 0)]
    assert route.readable == route.to_subscribe
    assert names(read_route("t", data, 1).readable) == [("a", 0), ("b", 0)]


def test_an_order_of_its_own_leaves_the_readable_queues_as_they_are(data: TopicRouteData) -> None:
    data.order_topic_conf = "b:1"
    route = read_route("t", data)
    assert names(route.to_subscribe) == [("b", 0)]
    assert names(route.readable) == [("a", 0), ("b", 0), ("b", 1)]


def test_the_master_comes_first_and_the_slaves_by_number() -> None:
    assert in_order({2: "t", 0: "m", 1: "s"}) == ("m", "s", "t")
    assert in_order({3: "t", 1: "s"}) == ("s", "t")
