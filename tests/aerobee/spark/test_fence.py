"""Which batches of a stream are written is known after a restart, and only that."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from aerobee.errors import ConfigurationError, TransportError
from aerobee.spark.brokers import Cluster
from aerobee.spark.fence import Fence, group_of
from tests.aerobee.spark.filling import make_topic
from tests.conftest import AnyBroker, StartBroker
from tests.kit.broker_process import BrokerProcess

pytestmark = pytest.mark.service

_names = count()
MakeFence = Callable[..., Fence]


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    # Brokers as careful as production ones make no group by themselves.
    return start_broker(brokerName="broker-a", autoCreateSubscriptionGroup=False)


@pytest.fixture
def topic(broker: AnyBroker) -> str:
    name = f"fenced-{next(_names)}"
    make_topic(broker, name)
    return name


@pytest.fixture
def fence_of(broker: AnyBroker, topic: str) -> Iterator[MakeFence]:
    made: list[Cluster] = []

    def make(sink: str = "sink", query: str = "q1", to: str = topic) -> Fence:
        made.append(Cluster([broker.namesrv_address], timeout_s=1.0))
        return Fence(made[-1], to, group_of(sink, query))

    yield make
    for cluster in made:
        cluster.close()


def test_a_batch_is_passed_once_it_is_stored(fence_of: MakeFence) -> None:
    assert not fence_of().passed(0)
    fence_of().store(0)
    assert fence_of().passed(0)
    assert not fence_of().passed(1)
    fence_of().store(1)
    assert fence_of().passed(1)


def test_sinks_and_queries_do_not_know_of_each_other(fence_of: MakeFence) -> None:
    fence_of().store(3)
    assert not fence_of(sink="other").passed(3)
    assert not fence_of(query="q2").passed(3)


def test_a_checkpoint_older_than_the_topic_is_refused(fence_of: MakeFence) -> None:
    fence_of().store(7)
    with pytest.raises(ConfigurationError, match=r"batch 7 is in topic .* now batch 5 is to be"):
        fence_of().passed(5)


def test_a_topic_that_is_not_made_yet_has_no_marks(fence_of: MakeFence) -> None:
    fence = fence_of(to="not-yet")
    assert not fence.passed(0)
    fence.store(0)
    assert not fence.passed(0)


def test_marks_outlive_the_broker(broker: AnyBroker, fence_of: MakeFence) -> None:
    fence_of().store(2)
    broker.restart()
    assert fence_of().passed(2)


def test_one_broker_of_several_is_enough(
    broker: AnyBroker, topic: str, fence_of: MakeFence, tmp_path_factory: pytest.TempPathFactory
) -> None:
    second = BrokerProcess(
        data=tmp_path_factory.mktemp("second") / "data",
        namesrv=broker.namesrv_address,
        settings={"brokerName": "broker-b"},
    )
    with second:
        make_topic(second, topic)
        fence_of().store(4)
        second.kill()
        assert fence_of().passed(4)


def test_a_fence_that_nobody_can_be_asked_about_is_no_open_door(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker()
    make_topic(broker, "fenced")
    cluster = Cluster([broker.namesrv_address], timeout_s=0.5)
    fence = Fence(cluster, "fenced", group_of("sink", None))
    assert not fence.passed(0)
    route = cluster.route("fenced")
    broker.kill()

    # The name server is gone with the broker, but its last answer is remembered.
    monkeypatch.setattr(cluster, "route", lambda topic, *, fresh=False: route)
    with pytest.raises(TransportError):
        fence.passed(0)
    cluster.close()


def test_a_sink_id_becomes_part_of_a_group_name() -> None:
    assert group_of("orders", None) == "SPARK_SINK_orders"
    assert group_of("orders", "a") != group_of("orders", "b")
    with pytest.raises(ConfigurationError, match="sinkId"):
        group_of("with space", None)
    with pytest.raises(ConfigurationError, match="sinkId"):
        group_of("s" * 110, None)
