"""Topics on several brokers of which one fails, or has the topic no more."""

import json

import pytest

from aerobee.client.steps.admin.topics import change_topic, delete_topic, describe_topic
from aerobee.errors import BrokerError, ConnectError, RouteNotFoundError
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.admin import GetTopicStatsInfo, QueryTopicConsumeByWho
from aerobee.remoting.wire.headers.namesrv import (
    DeleteTopicInNamesrv,
    GetBrokerClusterInfo,
    GetRouteInfo,
)
from aerobee.remoting.wire.headers.topic import CreateTopic, DeleteTopicInBroker, GetTopicConfig
from tests.aerobee.client.steps.stage import Line, Stage, answer, route

NAMES = ("a", "b")
GONE = answer(ResponseCode.TOPIC_NOT_EXIST, remark="No topic in this broker.")
CONFIG = answer(body=b'{"topicName":"T","readQueueNums":2,"writeQueueNums":2,"perm":6}')


@pytest.fixture
def stage() -> Stage:
    """A name server that routes T to two brokers."""
    stage = Stage("ns:1")
    brokers = [
        {"brokerName": name, "cluster": "c", "brokerAddrs": {"0": f"{name}:1"}} for name in NAMES
    ]
    table = {"brokerAddrTable": dict(zip(NAMES, brokers, strict=True))}
    known = json.dumps({**table, "clusterAddrTable": {"c": NAMES}}).encode()
    stage.answers(GetBrokerClusterInfo, answer(body=known))
    stage.answers(GetRouteInfo, route(*NAMES))
    stage.answers(GetTopicStatsInfo, answer(body=b'{"offsetTable":{}}'))
    stage.answers(QueryTopicConsumeByWho, answer(body=b'{"groupList":[]}'))
    stage.answers(DeleteTopicInNamesrv, answer())
    return stage


@pytest.mark.parametrize("failure", [ConnectError("refused"), answer(1, remark="null pointer")])
def test_a_broker_that_fails_keeps_a_deletion_from_no_other(stage: Stage, failure: Line) -> None:
    stage.answers(DeleteTopicInBroker, failure, answer())
    with pytest.raises((ConnectError, BrokerError)) as raised:
        stage.perform(delete_topic(stage.instance, "T"))
    assert raised.value.__notes__ == ["no error at b"]
    assert [ask.address for ask in stage.asked(DeleteTopicInBroker)] == ["a:1", "b:1"]
    assert not stage.asked(DeleteTopicInNamesrv), "the route leads to what is left"


def test_a_topic_that_is_half_deleted_is_shown_and_deleted_at_last(stage: Stage) -> None:
    stage.answers(GetTopicConfig, GONE, CONFIG)
    described = stage.perform(describe_topic(stage.instance, "T"))
    assert [config.broker for config in described.configs] == ["b"]
    stage.answers(DeleteTopicInBroker, answer(), answer())
    stage.perform(delete_topic(stage.instance, "T"))
    assert stage.asked(DeleteTopicInNamesrv)


def test_a_change_brings_no_topic_back(stage: Stage) -> None:
    stage.answers(CreateTopic, answer())
    stage.answers(GetTopicConfig, GONE, CONFIG)
    (changed,) = stage.perform(change_topic(stage.instance, "T", queues=4))
    assert changed.broker == "b"
    assert [ask.address for ask in stage.asked(CreateTopic)] == ["b:10911"]
    stage.answers(GetTopicConfig, GONE, GONE)
    with pytest.raises(RouteNotFoundError):
        stage.perform(change_topic(stage.instance, "T", queues=4))
