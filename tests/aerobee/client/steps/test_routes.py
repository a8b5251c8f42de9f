"""What a client knows of name servers, routes and brokers, and when it asks again."""

import pytest

from aerobee.client.steps.routes import NOBODY_PAUSE_S
from aerobee.errors import (
    AerobeeError,
    BrokerNotFoundError,
    ConnectError,
    NoNameServerError,
    RouteNotFoundError,
    TransportError,
)
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.namesrv import GetBrokerClusterInfo, GetRouteInfo
from tests.aerobee.client.steps.stage import Stage, answer, no_topic, route

NO_BROKERS = b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
ONE_BROKER = b'{"brokerAddrTable":{"b":{"brokerName":"b","brokerAddrs":{"0":"b:1"}}}}'


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a", broker_ids="0,1"))
    return stage


def test_readers_take_a_slave_when_there_is_no_master(stage: Stage) -> None:
    stage.answers(GetRouteInfo, route("broker-a", broker_ids="1"))
    stage.perform(stage.instance.fetch_route("T", 1.0))
    assert stage.instance.reader("broker-a") == "broker-a:10912"
    with pytest.raises(BrokerNotFoundError):
        stage.instance.master("broker-a")


def test_without_a_master_slaves_are_asked_in_turn_and_the_error_says_what_is_missing(
    stage: Stage,
) -> None:
    stage.answers(GetRouteInfo, route("broker-a", broker_ids="2,1"))
    stage.perform(stage.instance.fetch_route("T", 1.0))
    asked = [stage.instance.reader("broker-a", turn) for turn in range(3)]
    assert asked == ["broker-a:10912", "broker-a:10913", "broker-a:10912"]
    assert not stage.instance.has_master("broker-a")
    with pytest.raises(BrokerNotFoundError, match="master of broker broker-a is down"):
        stage.instance.master("broker-a")
    with pytest.raises(BrokerNotFoundError, match="no route names"):
        stage.instance.reader("broker-b")


def test_addresses_that_no_broker_has_any_more_are_told_once(stage: Stage) -> None:
    stage.perform(stage.instance.fetch_route("T", 1.0))
    assert stage.instance.take_left() == set()
    stage.answers(GetRouteInfo, route("broker-a", broker_ids="0"))
    stage.perform(stage.instance.fetch_route("T", 1.0))
    assert stage.instance.take_left() == {"broker-a:10912"}
    assert stage.instance.take_left() == set()


def test_those_who_ask_together_turn_to_the_next_name_server_once() -> None:
    stage = Stage("ns:1", "ns:2")
    both = [stage.instance.fetch_route(topic, 1.0) for topic in "TU"]
    first = [next(steps) for steps in both]
    second = [steps.throw(ConnectError("refused")) for steps in both]
    assert [getattr(ask, "address", None) for ask in first + second] == ["ns:1"] * 2 + ["ns:2"] * 2
    for steps in both:
        with pytest.raises(StopIteration):
            steps.send(route("broker-a"))


def test_the_first_route_is_waited_for_while_no_broker_is_there(stage: Stage) -> None:
    stage.answers(GetRouteInfo, *[no_topic()] * 4, route("broker-a"))
    stage.answers(GetBrokerClusterInfo, answer(body=NO_BROKERS))
    began = stage.now_s
    found = stage.perform(stage.instance.first_route_to_publish("T", 10.0))
    assert len(found.to_publish) == 4
    assert stage.now_s - began == 2 * NOBODY_PAUSE_S


def test_the_plan_for_a_topic_to_be_made_is_made_anew_once_it_is_suspect(stage: Stage) -> None:
    """It was kept for as long as the topic was not made, so for ever where it had no master."""
    gone, back = route("broker-a", broker_ids="1"), route("broker-a", broker_ids="0,1")
    stage.answers(GetRouteInfo, no_topic(), gone, no_topic(), back)
    with pytest.raises(BrokerNotFoundError, match="masters of topic T are down"):
        stage.perform(stage.instance.route_to_publish("T", 1.0))
    stage.instance.suspect("T")
    stage.now_s += 1.0
    found = stage.perform(stage.instance.route_to_publish("T", 1.0))
    assert len(found.to_publish) == 4


def test_a_topic_that_nobody_has_or_makes_is_not_waited_for(stage: Stage) -> None:
    stage.answers(GetRouteInfo, no_topic())
    stage.answers(GetBrokerClusterInfo, answer(body=ONE_BROKER))
    with pytest.raises(RouteNotFoundError, match="no route for topic T"):
        stage.perform(stage.instance.first_route_to_publish("T", 10.0))
    assert not stage.waits


def test_a_broker_that_comes_while_it_is_looked_for_is_found(stage: Stage) -> None:
    stage.answers(GetRouteInfo, NoNameServerError("nobody"), no_topic(), no_topic(), route("b"))
    stage.answers(GetBrokerClusterInfo, answer(body=ONE_BROKER))
    found = stage.perform(stage.instance.first_route_to_publish("T", 10.0))
    assert {queue.broker_name for queue in found.to_publish} == {"b"}


def test_no_broker_at_all_is_waited_for_so_long_and_no_longer(stage: Stage) -> None:
    stage.answers(GetRouteInfo, no_topic())
    stage.answers(GetBrokerClusterInfo, NoNameServerError("nobody"))
    began = stage.now_s
    with pytest.raises(RouteNotFoundError):
        stage.perform(stage.instance.first_route_to_publish("T", 3.0))
    assert stage.now_s - began == 3.0


def test_the_order_of_an_ordered_topic_is_the_name_servers(stage: Stage) -> None:
    body = b'{"orderTopicConf":"b1:2;b2:1","brokerDatas":[],"queueDatas":[]}'
    stage.answers(GetRouteInfo, Command(0, body=body))
    found = stage.perform(stage.instance.fetch_route("T", 1.0))
    assert [str(queue) for queue in found.to_publish] == ["T/b1/0", "T/b1/1", "T/b2/0"]


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        (no_topic(), RouteNotFoundError, ("T", None, None, "17 No topic route info")),
        (route("b", broker_ids="1"), BrokerNotFoundError, ("T", "b", None, None)),
        (route("b", perm=4), RouteNotFoundError, ("T", None, None, None)),
        (ConnectError("refused"), NoNameServerError, ("T", None, "ns:1", None)),
        (answer(body=b"x"), TransportError, ("T", None, "ns:1", None)),
    ],
)
def test_an_error_says_where_and_what_about(
    line: Command | AerobeeError, kind: type[AerobeeError], said: tuple[str | None, ...]
) -> None:
    stage = Stage()
    stage.answers(GetRouteInfo, line)
    with pytest.raises(kind) as raised:
        stage.perform(stage.instance.route_to_publish("T", 3.0))
    error = raised.value
    remark = error.remark and error.remark.partition(" in name")[0]
    assert (error.topic, error.broker, error.address, remark) == said


def test_a_broker_that_no_route_names_is_named(stage: Stage) -> None:
    with pytest.raises(BrokerNotFoundError, match="no route names") as raised:
        stage.instance.master("elsewhere")
    assert raised.value.broker == "elsewhere"
