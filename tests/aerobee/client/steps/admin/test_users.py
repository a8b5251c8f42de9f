"""Changes at several brokers of which the first fails: no other is left as it was."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from aerobee.admin import GroupConfig
from aerobee.client.steps.admin.clients import close_client
from aerobee.client.steps.admin.consumption import set_readable, set_request_mode
from aerobee.client.steps.admin.groups import (
    create_group,
    delete_group,
    enable_group,
    limit_group,
)
from aerobee.client.steps.admin.topics import change_topic, create_topic
from aerobee.client.steps.admin.users import change_user, create_user, delete_user, grant, revoke
from aerobee.client.steps.instance import Instance
from aerobee.errors import AerobeeError, RequestTimeoutError
from aerobee.remoting.wire.bodies.group import GroupForbidden
from aerobee.remoting.wire.header import Header
from aerobee.remoting.wire.headers import auth
from aerobee.remoting.wire.headers.admin import CloseClient
from aerobee.remoting.wire.headers.group import (
    CreateGroup,
    DeleteGroup,
    GetAllGroupConfig,
    UpdateGroupForbidden,
)
from aerobee.remoting.wire.headers.namesrv import GetBrokerClusterInfo, GetRouteInfo
from aerobee.remoting.wire.headers.pop import SetMessageRequestMode
from aerobee.remoting.wire.headers.topic import CreateTopic, GetTopicConfig
from tests.aerobee.client.steps.stage import Line, Stage, answer, route


def silent() -> RequestTimeoutError:
    """What a broker makes of a request that it does not answer; notes are added to it."""
    return RequestTimeoutError("no answer within 5 s")


UNKNOWN = answer(3, remark="request type 900001 not supported")
EXISTS = answer(16, remark="The user is existed")
GROUP = {"groupName": "g", "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
GROUPS = json.dumps({"subscriptionGroupTable": {"g": GROUP}}).encode()


@pytest.fixture
def stage() -> Stage:
    """Two masters, of which every first request fails."""
    stage = Stage()
    brokers = {
        name: {"brokerName": name, "cluster": "c", "brokerAddrs": {"0": f"{name}:1"}}
        for name in ("a", "b")
    }
    table = {"brokerAddrTable": brokers, "clusterAddrTable": {"c": ["a", "b"]}}
    stage.answers(GetBrokerClusterInfo, answer(body=json.dumps(table).encode()))
    return stage


@pytest.mark.parametrize(
    ("header", "failure", "change"),
    [
        (auth.CreateUser, EXISTS, lambda routes: create_user(routes, "u", "secret")),
        (auth.UpdateUser, silent(), lambda routes: change_user(routes, "u", enabled=False)),
        (auth.DeleteUser, silent(), lambda routes: delete_user(routes, "u")),
        (
            auth.UpdateAcl,
            silent(),
            lambda routes: grant(routes, "u", "Topic:a", ["Pub"], deny=True),
        ),
        (auth.DeleteAcl, silent(), lambda routes: revoke(routes, "u")),
        (DeleteGroup, silent(), lambda routes: delete_group(routes, "g")),
        (CloseClient, UNKNOWN, lambda routes: close_client(routes, "id@1")),
    ],
)
def test_a_change_reaches_the_brokers_behind_one_that_fails(
    stage: Stage, header: type[Header], failure: Line, change: Callable[[Instance], Any]
) -> None:
    stage.answers(header, failure, answer(closed=1))
    with pytest.raises(AerobeeError) as raised:
        stage.perform(change(stage.instance))
    assert [ask.address for ask in stage.asked(header)] == ["a:1", "b:1"]
    assert "no error at b" in raised.value.__notes__


@pytest.fixture
def of_a_master() -> Stage:
    """A master and two slaves."""
    stage = Stage()
    addresses = {"0": "a:1", "1": "a:2", "2": "a:3"}
    broker = {"brokerName": "a", "cluster": "c", "brokerAddrs": addresses}
    table = {"brokerAddrTable": {"a": broker}, "clusterAddrTable": {"c": ["a"]}}
    stage.answers(GetBrokerClusterInfo, answer(body=json.dumps(table).encode()))
    return stage


@pytest.mark.parametrize("unknown", [False, True])
def test_users_are_changed_at_slaves_too_which_may_know_none(
    of_a_master: Stage, *, unknown: bool
) -> None:
    """The next master has users of its own: without the change it refuses them."""
    stage = of_a_master
    stage.answers(auth.CreateUser, answer(), UNKNOWN if unknown else answer(), answer())
    stage.perform(create_user(stage.instance, "u", "secret"))
    assert [ask.address for ask in stage.asked(auth.CreateUser)] == ["a:1", "a:2", "a:3"]
    stage.answers(auth.DeleteUser, answer())
    stage.perform(delete_user(stage.instance, "u", broker="a:2"))
    assert [ask.address for ask in stage.asked(auth.DeleteUser)] == ["a:2"]


def test_a_user_that_a_slave_has_already_is_there_as_it_was_made(of_a_master: Stage) -> None:
    """A slave was down when the user was made, or got the user by itself before."""
    stage = of_a_master
    stage.answers(auth.CreateUser, EXISTS, EXISTS, answer())
    stage.answers(auth.UpdateUser, answer())
    with pytest.raises(AerobeeError, match="existed"):
        stage.perform(create_user(stage.instance, "u", "secret"))
    assert [ask.address for ask in stage.asked(auth.CreateUser)] == ["a:1", "a:2", "a:3"]
    (update,) = stage.asked(auth.UpdateUser)
    assert update.address == "a:2"
    assert json.loads(bytes(update.body))["password"] == "secret"


def test_a_slave_that_keeps_a_change_from_itself_is_named_with_the_way(of_a_master: Stage) -> None:
    silent = RequestTimeoutError("no answer within 5 s")
    of_a_master.answers(auth.UpdateUser, answer(), silent, answer())
    with pytest.raises(RequestTimeoutError) as raised:
        of_a_master.perform(change_user(of_a_master.instance, "u", enabled=False))
    assert raised.value.__notes__ == [
        "a:2 is a slave: `--broker a:2` is it alone",
        "no error at a, a:3",
    ]


CONFIG = GroupConfig(name="g")
UNREADABLE = GroupForbidden(group="g", topic="t", readable=False).to_bytes()
TOPIC = answer(body=b'{"topicName":"t","readQueueNums":2,"writeQueueNums":2,"perm":6}')


@pytest.mark.parametrize(
    ("header", "change"),
    [
        (CreateGroup, lambda routes: create_group(routes, CONFIG)),
        (CreateGroup, lambda routes: limit_group(routes, "g", max_messages_per_s=5)),
        (CreateTopic, lambda routes: create_topic(routes, "t", wait=False)),
        (CreateTopic, lambda routes: change_topic(routes, "t", perm=4)),
        (SetMessageRequestMode, lambda routes: set_request_mode(routes, "g", "t", "POP")),
        (UpdateGroupForbidden, lambda routes: set_readable(routes, "g", "t", allowed=False)),
    ],
)
def test_a_setting_reaches_the_brokers_behind_one_that_is_silent(
    stage: Stage, header: type[Header], change: Callable[[Instance], Any]
) -> None:
    stage.answers(GetRouteInfo, route("a", "b"))
    stage.answers(GetAllGroupConfig, answer(body=GROUPS))
    stage.answers(GetTopicConfig, TOPIC, TOPIC)
    stage.answers(header, silent(), answer(body=UNREADABLE))
    with pytest.raises(RequestTimeoutError) as raised:
        stage.perform(change(stage.instance))
    assert len(stage.asked(header)) == 2
    assert "no error at b" in raised.value.__notes__


def test_a_group_is_paused_at_the_brokers_that_answer(stage: Stage) -> None:
    stage.answers(GetAllGroupConfig, silent(), answer(body=GROUPS))
    stage.answers(CreateGroup, answer())
    with pytest.raises(RequestTimeoutError):
        stage.perform(enable_group(stage.instance, "g", enabled=False))
    (asked,) = stage.asked(CreateGroup)
    assert asked.address == "b:1"
    assert json.loads(bytes(asked.body))["consumeEnable"] is False
