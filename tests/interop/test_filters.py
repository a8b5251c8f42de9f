"""Filters in SQL92 with real Java clients: push, pull with a filter of its own, and refusals."""

from typing import Any

import pytest

from tests.conftest import AnyBroker, StartBroker
from tests.kit.java_driver import JavaClient, JavaError

PARSE_FAILED = 23
WANTED = "region = 'north' AND price BETWEEN 10 AND 100"


@pytest.fixture(scope="module")
def broker(shared_broker: StartBroker) -> AnyBroker:
    """A broker that filters by properties."""
    return shared_broker(enablePropertyFilter=True)


def send(client: JavaClient, topic: str, prices: range, region: str) -> None:
    for price in prices:
        properties: dict[str, Any] = {"property.region": region, "property.price": price}
        client.send("p", topic, [f"{region} {price}"], **properties)


def test_a_push_consumer_gets_what_its_filter_wants_and_what_comes_later(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    for region in ("north", "south"):
        send(client, topic, range(0, 20, 5), region)
    client.consumer("c", broker.namesrv_address, topic, sql=WANTED, group=topic)
    got = client.received("c", 2)
    assert sorted(one.body for one in got) == ["north 10", "north 15"]
    send(client, topic, range(20, 24), "south")
    send(client, topic, range(20, 24), "north")
    got = client.received("c", 6, within_s=10)
    assert sorted(one.body for one in got)[2:] == [f"north {price}" for price in range(20, 24)]


def test_a_pull_brings_its_filter_along(client: JavaClient, broker: AnyBroker, topic: str) -> None:
    client.producer("p", broker.namesrv_address)
    for region in ("north", "south"):
        send(client, topic, range(0, 30, 5), region)
    got = client.select(broker.namesrv_address, topic, f"{topic}-g", WANTED)
    assert sorted(one.body for one in got) == [f"north {price}" for price in range(10, 30, 5)]
    assert client.select(broker.namesrv_address, topic, f"{topic}-g", "price > 1000") == []


@pytest.mark.parametrize("sql", ["price >", "price > 'x'", "price != 1"])
def test_a_consumer_whose_filter_does_not_parse_does_not_start(
    client: JavaClient, broker: AnyBroker, topic: str, sql: str
) -> None:
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, ["there is a broker to ask"])
    with pytest.raises(JavaError) as refused:
        client.consumer("c", broker.namesrv_address, topic, sql=sql)
    assert refused.value.code == PARSE_FAILED
