"""Which batches of a stream are written is known after a restart, and only that."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest

from aerobee.errors import BrokerNotFoundError, ConfigurationError, TransportError
from aerobee.spark.brokers import Cluster
from aerobee.spark.sink.commit_marker import CommitMarker, group_of
from tests.aerobee.spark.filling import make_topic
from tests.conftest import AnyBroker, StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.raw_client import RawConnection

pytestmark = pytest.mark.service

_names = count()
MakeMarker = Callable[..., CommitMarker]


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
def marker_of(broker: AnyBroker, topic: str) -> Iterator[MakeMarker]:
    made: list[Cluster] = []

    def make(sink: str = "sink", query: str = "q1", to: str = topic) -> CommitMarker:
        made.append(Cluster([broker.namesrv_address], timeout_s=1.0))
        return CommitMarker(made[-1], to, group_of(sink, query))

    yield make
    for cluster in made:
        cluster.close()


def test_a_batch_is_passed_once_it_is_stored(marker_of: MakeMarker) -> None:
    assert not marker_of().passed(0)
    marker_of().store(0, 10)
    assert marker_of().passed(0)
    assert not marker_of().passed(1)
    marker_of().store(1, 10)
    assert marker_of().passed(1)


def test_sinks_and_queries_do_not_know_of_each_other(marker_of: MakeMarker) -> None:
    marker_of().store(3, 10)
    assert not marker_of(sink="other").passed(3)
    assert not marker_of(query="q2").passed(3)


def test_a_checkpoint_older_than_the_topic_is_refused(marker_of: MakeMarker) -> None:
    marker_of().store(7, 10)
    with pytest.raises(ConfigurationError, match=r"batch 7 is in topic .* now batch 5 is to be"):
        marker_of().passed(5)


def test_the_mark_of_a_build_before_counts_without_its_rows(
    marker_of: MakeMarker, broker: AnyBroker, topic: str
) -> None:
    marker = marker_of()
    assert not marker.passed(0)
    fields = {"consumerGroup": marker.group, "topic": topic, "queueId": 0, "commitOffset": 6}
    with RawConnection(broker.address) as connection:
        assert connection.call(15, fields).code == 0
    assert marker.passed(5)
    marker.check(5, 7)
    assert not marker.passed(6)
    with pytest.raises(ConfigurationError, match="batch 5 is in topic"):
        marker.passed(4)
    marker.store(6, 7)
    assert marker.passed(6)


def test_a_batch_of_other_rows_than_were_written_is_another_one(marker_of: MakeMarker) -> None:
    """Its checkpoint has lost the last batch, or it is the second write of a foreachBatch."""
    marker_of().store(3, 10)
    marker_of().check(3, 10)
    for rows in (11, 9):
        words = f"3 is in topic .* with 10 rows, .* has {rows} rows"
        with pytest.raises(ConfigurationError, match=words):
            marker_of().check(3, rows)
    marker_of().store(4, 1 << 40)
    assert marker_of().passed(4)
    marker_of().check(4, 1 << 41)


def test_a_topic_that_is_not_made_yet_has_no_marks(marker_of: MakeMarker) -> None:
    marker = marker_of(to="not-yet")
    assert not marker.passed(0)
    marker.store(0, 10)
    assert not marker.passed(0)


def test_marks_outlive_the_broker(broker: AnyBroker, marker_of: MakeMarker) -> None:
    marker_of().store(2, 10)
    broker.restart()
    assert marker_of().passed(2)


def test_one_broker_of_several_is_enough(
    broker: AnyBroker, topic: str, marker_of: MakeMarker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    second = BrokerProcess(
        data=tmp_path_factory.mktemp("second") / "data",
        namesrv=broker.namesrv_address,
        settings={"brokerName": "broker-b"},
    )
    with second:
        make_topic(second, topic)
        marker_of().store(4, 10)
        second.kill()
        assert marker_of().passed(4)


def test_a_marker_that_nobody_can_be_asked_about_lets_nothing_through(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_broker()
    make_topic(broker, "fenced")
    cluster = Cluster([broker.namesrv_address], timeout_s=0.5)
    marker = CommitMarker(cluster, "fenced", group_of("sink", None))
    assert not marker.passed(0)
    route = cluster.route("fenced")
    broker.kill()

    # The name server is gone with the broker, but its last answer is remembered.
    monkeypatch.setattr(cluster, "route", lambda topic, *, fresh=False: route)
    with pytest.raises(TransportError):
        marker.passed(0)
    cluster.close()


def test_while_no_broker_has_a_master_nothing_is_taken_for_not_written(
    broker: AnyBroker, topic: str, marker_of: MakeMarker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a failover: the batch was written again once there was a master."""
    marker = marker_of()
    marker.store(3, 10)
    route = marker.brokers.route(topic)
    slaves = replace(route, brokers={"broker-a": {1: broker.address}})
    monkeypatch.setattr(marker.brokers, "route", lambda topic, *, fresh=False: slaves)
    with pytest.raises(BrokerNotFoundError, match="no master of broker-a is there now"):
        marker.passed(3)


def test_a_sink_id_becomes_part_of_a_group_name() -> None:
    assert group_of("orders", None) == "SPARK_SINK_orders"
    assert group_of("orders", "a") != group_of("orders", "b")
    with pytest.raises(ConfigurationError, match="sinkId"):
        group_of("with space", None)
    with pytest.raises(ConfigurationError, match="sinkId"):
        group_of("s" * 110, None)
