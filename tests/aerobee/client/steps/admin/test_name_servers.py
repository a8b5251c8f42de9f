"""Changes that every name server is told of."""

import json

import pytest

from aerobee.client.steps.admin.name_servers import delete_kv, set_write_permission
from aerobee.client.steps.admin.topics import delete_topic
from aerobee.errors import ConnectError
from aerobee.remoting.wire.headers.namesrv import (
    AddWritePermOfBroker,
    DeleteKvConfig,
    DeleteTopicInNamesrv,
    GetBrokerClusterInfo,
    WipeWritePermOfBroker,
)
from aerobee.remoting.wire.headers.topic import DeleteTopicInBroker
from tests.aerobee.client.steps.stage import Stage, answer

DEAD = ConnectError("refused")


@pytest.fixture
def stage() -> Stage:
    stage = Stage("dead:1", "ns:2", "ns:3")
    broker = {"brokerName": "a", "cluster": "c", "brokerAddrs": {"0": "a:1"}}
    table = {"brokerAddrTable": {"a": broker}, "clusterAddrTable": {"c": ["a"]}}
    stage.answers(GetBrokerClusterInfo, DEAD, answer(body=json.dumps(table).encode()))
    stage.answers(DeleteTopicInBroker, answer())
    stage.answers(DeleteTopicInNamesrv, DEAD, answer())
    stage.answers(DeleteKvConfig, DEAD, answer())
    stage.answers(WipeWritePermOfBroker, DEAD, answer(wipeTopicCount=3), answer(wipeTopicCount=4))
    stage.answers(AddWritePermOfBroker, answer(addTopicCount=3), answer(addTopicCount=4))
    return stage


def test_a_dead_name_server_keeps_no_change_from_the_others(stage: Stage) -> None:
    everyone = ["dead:1", "ns:2", "ns:3"]
    with pytest.raises(ConnectError):
        stage.perform(delete_topic(stage.instance, "T"))
    assert [ask.address for ask in stage.asked(DeleteTopicInNamesrv)] == everyone
    with pytest.raises(ConnectError):
        stage.perform(delete_kv(stage.instance, "space", "key"))
    assert [ask.address for ask in stage.asked(DeleteKvConfig)] == everyone
    with pytest.raises(ConnectError):
        stage.perform(set_write_permission(stage.instance, "a", allowed=False))
    assert [ask.address for ask in stage.asked(WipeWritePermOfBroker)] == everyone


def test_as_many_topics_are_told_as_one_of_them_has_changed(stage: Stage) -> None:
    assert stage.perform(set_write_permission(stage.instance, "a", allowed=True)) == 4
    stage.answers(WipeWritePermOfBroker, answer(wipeTopicCount=3), answer(wipeTopicCount=4))
    assert stage.perform(set_write_permission(stage.instance, "a", allowed=False)) == 4
