"""Taking a delayed message back: whom is asked, and what is no handle."""

from base64 import urlsafe_b64encode

import pytest

from aerobee.client.settings.producer import ProducerConfig
from aerobee.client.steps.messages import UniqIds
from aerobee.client.steps.recalling import recall
from aerobee.client.steps.sending import Sender
from aerobee.errors import BrokerError, BrokerNotFoundError, ConfigurationError, ConnectError
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.send import RecallMessage
from tests.aerobee.client.steps.stage import Stage, answer, moved, route


def handle_of(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode()


HANDLE = handle_of("v1 T broker-b 1735689600001 ID")


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a", "broker-b"))
    stage.answers(RecallMessage, answer(msgId="ID"))
    return stage


def take_back(stage: Stage, handle: str | None, topic: str = "T") -> str:
    sender = Sender(stage.instance, ProducerConfig(group="g"), UniqIds(bytes(4), 1, 1))
    return stage.perform(recall(sender, topic, handle, None))


@pytest.mark.parametrize("handle", [HANDLE, HANDLE.rstrip("=")])
def test_the_broker_in_the_handle_is_asked(stage: Stage, handle: str) -> None:
    assert take_back(stage, handle) == "ID"
    (ask,) = stage.asked(RecallMessage)
    assert ask.address == "broker-b:10911"
    fields = {"producerGroup": "g", "topic": "T", "recallHandle": handle}
    assert ask.header.ext() == fields


def test_what_the_broker_refuses_is_told(stage: Stage) -> None:
    stage.answers(RecallMessage, answer(203, remark="too late"))
    with pytest.raises(BrokerError, match=r"RECALL_MESSAGE: broker-b .*too late"):
        take_back(stage, HANDLE)


def test_a_broker_that_is_gone_is_said_so(stage: Stage) -> None:
    with pytest.raises(BrokerNotFoundError, match="broker-c"):
        take_back(stage, handle_of("v1 T broker-c 1 ID"))


def test_a_broker_that_the_topic_was_extended_to_is_found(stage: Stage) -> None:
    take_back(stage, HANDLE)
    stage.now_s += 5.0
    stage.answers(GetRouteInfo, route("broker-a", "broker-b", "broker-c"))
    assert take_back(stage, handle_of("v1 T broker-c 1 ID")) == "ID"
    assert stage.asked(RecallMessage)[-1].address == "broker-c:10911"


def test_a_second_try_finds_a_broker_that_has_moved(stage: Stage) -> None:
    stage.answers(RecallMessage, ConnectError("refused"), answer(msgId="ID"))
    with pytest.raises(ConnectError):
        take_back(stage, HANDLE)
    stage.now_s += 1.0
    stage.answers(GetRouteInfo, moved("broker-b"))
    assert take_back(stage, HANDLE) == "ID"
    assert stage.asked(RecallMessage)[-1].address == "new-host:10911"


@pytest.mark.parametrize(
    ("handle", "text"),
    [
        (None, "was not delayed"),
        ("", "was not delayed"),
        ("abc", "is no recall handle"),
        ("ä", "is no recall handle"),
        (handle_of("v2 T broker-b 1 ID"), "is no recall handle"),
        (handle_of("v1 T broker-b 1"), "is no recall handle"),
        (handle_of("v1 U broker-b 1 ID"), "of a message to U, not to T"),
    ],
)
def test_what_is_no_handle_of_the_topic_is_refused(
    stage: Stage, handle: str | None, text: str
) -> None:
    with pytest.raises(ConfigurationError, match=text):
        take_back(stage, handle)
    assert stage.heard == []
