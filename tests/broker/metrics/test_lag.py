"""How far groups are behind, as a scrape of a broker says while they consume."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from aerobee import ConsumeFrom, Message, ReceivedMessage
from aerobee.admin import GroupConfig
from aerobee.blocking import AdminClient, PopConsumer, Producer, PullConsumer
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import metrics_of
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

LAG = "rocketmq_consumer_lag_messages"
LAG_MS = "rocketmq_consumer_lag_latency_milliseconds"
IN_FLIGHT = "rocketmq_consumer_inflight_messages"
READY = "rocketmq_consumer_ready_messages"
READY_MS = "rocketmq_consumer_queueing_latency_milliseconds"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(data=tmp_path_factory.mktemp("lag") / "data") as broker:
        yield broker


def figures(broker: BrokerProcess, group: str, *, retry: bool = False) -> dict[str, float]:
    """Metric → value, of a group in its one topic."""
    found: dict[str, float] = defaultdict(float)
    for name, labels, value in metrics_of(broker):
        mine = labels.get("consumer_group") == group
        if mine and labels.get("is_retry") == str(retry).lower():
            assert name not in found, f"two series of {name} for {group}"
            found[name] = value
    return dict(found)


def send(broker: BrokerProcess, topic: str, count: int) -> None:
    with AdminClient(broker.namesrv_address) as admin, Producer(broker.namesrv_address) as producer:
        admin.create_topic(topic, queues=2)
        for number in range(count):
            producer.send(Message(topic, b"%d" % number))


def polled(consumer: PullConsumer, count: int) -> list[ReceivedMessage]:
    """The next messages, waited for."""
    got: list[ReceivedMessage] = []
    while len(got) < count:
        more = consumer.poll(timeout=10)
        assert more, f"{len(got)} of {count} messages"
        got += more
    return got


def test_a_pull_consumer_is_behind_by_what_it_has_not_committed(broker: BrokerProcess) -> None:
    send(broker, "pulled", 10)
    with PullConsumer(
        "pulls", broker.namesrv_address, auto_commit=False, start_from=ConsumeFrom.FIRST
    ) as consumer:
        consumer.subscribe("pulled")
        got = polled(consumer, 10)
        consumer.done(*got)
        consumer.commit()
        eventually(lambda: figures(broker, "pulls").get(LAG) == 0, within_s=10, what="no lag")
        send(broker, "pulled", 6)
        polled(consumer, 6)
        seen = figures(broker, "pulls")
    assert (seen[LAG], seen[IN_FLIGHT], seen[READY]) == (6, 6, 0)
    assert seen[LAG_MS] > 0
    assert seen[READY_MS] == 0


def test_a_group_without_members_falls_behind_all_the_same(broker: BrokerProcess) -> None:
    send(broker, "left", 2)
    with PullConsumer("leavers", broker.namesrv_address, start_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("left")
        got = polled(consumer, 2)
        consumer.done(*got)
    send(broker, "left", 5)
    eventually(lambda: figures(broker, "leavers")[LAG_MS] >= 50, within_s=10, what="50 ms")
    seen = figures(broker, "leavers")
    assert (seen[LAG], seen[IN_FLIGHT], seen[READY]) == (5, 0, 5)
    assert seen[LAG_MS] == seen[READY_MS] >= 50


def test_what_was_popped_is_in_flight_until_it_is_acknowledged(broker: BrokerProcess) -> None:
    send(broker, "popped", 8)
    with PopConsumer(
        "pops", broker.namesrv_address, invisible=2, start_from=ConsumeFrom.FIRST
    ) as consumer:
        got: list[ReceivedMessage] = []
        while len(got) < 5:
            got += consumer.receive("popped", max_messages=5 - len(got), wait=5)
        seen = figures(broker, "pops")
        assert (seen[LAG], seen[IN_FLIGHT], seen[READY]) == (8, 5, 3)
        assert seen[LAG_MS] >= seen[READY_MS] > 0
        consumer.ack(*got[:4])
        eventually(lambda: figures(broker, "pops")[IN_FLIGHT] == 1, within_s=30, what="4 acks")
        # The fifth comes back by way of the topic in which POP puts messages again.
        eventually(
            lambda: figures(broker, "pops", retry=True).get(READY) == 1,
            within_s=30,
            what="the message that nobody acknowledged",
        )
        assert figures(broker, "pops")[IN_FLIGHT] == 0


def test_a_deleted_group_has_no_series_any_more(broker: BrokerProcess) -> None:
    send(broker, "brief", 1)
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_group(GroupConfig(name="short"))
        admin.reset_offsets("short", "brief", ConsumeFrom.FIRST)
        assert figures(broker, "short")[LAG] == 1
        admin.delete_group("short")
    assert figures(broker, "short") == {}
