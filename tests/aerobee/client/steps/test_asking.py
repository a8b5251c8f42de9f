"""Which requests are asked again, how often, and of whom."""

from dataclasses import replace

import pytest

from aerobee.client.send_result import MessageQueue
from aerobee.client.steps.asking import ask_address, ask_broker
from aerobee.errors import BrokerBusyError, BrokerNotFoundError, ConnectError
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.offset import GetMaxOffset
from tests.aerobee.client.steps.stage import Stage, answer, route

T0 = MessageQueue("T", "broker-a", 0)
HEADER = GetMaxOffset(topic="T", queue_id=0)
BUSY = 2
NO_TOPIC = 17


@pytest.fixture
def stage() -> Stage:
    """A client that asks three times."""
    stage = Stage()
    stage.instance.config = replace(stage.instance.config, lookup_tries=3)
    stage.answers(GetRouteInfo, route("broker-a", broker_ids="1,2"))
    return stage


def addresses(stage: Stage) -> list[str]:
    return [ask.address for ask in stage.asked(GetMaxOffset)]


def test_what_may_pass_is_asked_again_of_the_next_slave(stage: Stage) -> None:
    stage.answers(GetMaxOffset, ConnectError("refused"), answer(BUSY), answer(offset=7))
    _ask, found = stage.perform(ask_broker(stage.instance, T0, HEADER))
    assert found.code == 0
    assert addresses(stage) == ["broker-a:10912", "broker-a:10913", "broker-a:10912"]
    assert [wait.seconds for wait in stage.waits] == [0.1, 0.5]


def test_the_last_error_is_raised_when_all_tries_are_used(stage: Stage) -> None:
    stage.answers(GetMaxOffset, ConnectError("refused"), answer(BUSY))
    with pytest.raises(BrokerBusyError):
        stage.perform(ask_broker(stage.instance, T0, HEADER))
    assert len(addresses(stage)) == 3


def test_a_refusal_for_good_is_an_answer(stage: Stage) -> None:
    stage.answers(GetMaxOffset, answer(NO_TOPIC))
    _ask, found = stage.perform(ask_broker(stage.instance, T0, HEADER))
    assert found.code == NO_TOPIC
    assert len(addresses(stage)) == 1


def test_what_is_for_the_master_waits_for_no_slave(stage: Stage) -> None:
    with pytest.raises(BrokerNotFoundError, match="queue 0 of topic T on broker broker-a: the mas"):
        stage.perform(ask_broker(stage.instance, T0, HEADER, master_only=True))
    assert not addresses(stage)


def test_the_caller_may_want_one_try(stage: Stage) -> None:
    stage.answers(GetMaxOffset, ConnectError("refused"))
    with pytest.raises(ConnectError):
        stage.perform(ask_address(stage.instance, "b:1", HEADER, tries=1))
    assert addresses(stage) == ["b:1"]
