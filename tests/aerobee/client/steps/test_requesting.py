"""Requests through topics as a play: the question, the answer, and what is neither."""

import pytest

from aerobee.client.message import Message, ReceivedMessage
from aerobee.client.settings.producer import ProducerConfig
from aerobee.client.steps.effects import Ask
from aerobee.client.steps.messages import UniqIds, received
from aerobee.client.steps.requesting import ask_through_topic, reply
from aerobee.client.steps.sending import Sender
from aerobee.errors import ConfigurationError, MessageIllegalError, ReplyTimeoutError
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.client import Heartbeat
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.send import SendMessageV2, SendReplyMessageV2
from aerobee.store.format import properties, record
from tests.aerobee.client.steps.stage import Stage, answer, route


def stored(ask: Ask) -> Command:
    return answer(msgId="OID", queueId=ask.header.ext()["e"], queueOffset=7)


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a", "broker-b", queues=1))
    stage.answers(SendMessageV2, stored)
    stage.answers(SendReplyMessageV2, stored)
    stage.answers(Heartbeat, answer())
    return stage


def sender(stage: Stage) -> Sender:
    made = Sender(stage.instance, ProducerConfig(group="g"), UniqIds(bytes(4), 1, 1))
    made.begin()
    return made


def pushed(correlation_id: str, body: bytes = b"answer", sys_flag: int = 0) -> Command:
    named = properties.encode({"CORRELATION_ID": correlation_id, "UNIQ_KEY": "A"})
    fields = {
        "producerGroup": "other",
        "topic": "c_REPLY_TOPIC",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 3,
        "sysFlag": sys_flag,
        "bornTimestamp": 1_700_000_000_000,
        "flag": 5,
        "properties": named,
        "storeTimestamp": 1_700_000_000_001,
    }
    ext = {name: str(value) for name, value in fields.items()}
    return Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext=ext, body=body)


def named(ask: Ask) -> dict[str, str]:
    return properties.decode(ask.header.ext()["i"])


def test_all_brokers_know_who_asks_before_the_question_leaves(stage: Stage) -> None:
    def answered(ask: Ask) -> Command:
        assert stage.instance.serve(pushed(named(ask)["CORRELATION_ID"])) == 0
        return stored(ask)

    stage.answers(SendMessageV2, answered)
    message = stage.perform(ask_through_topic(sender(stage), Message("T", b"?"), 2.5))
    assert (message.body, message.message_id, message.flag) == (b"answer", "A", 5)
    assert (message.topic, message.queue_offset) == ("c_REPLY_TOPIC", -1)
    kinds = [type(ask.header) for ask in stage.heard]
    assert kinds == [GetRouteInfo, Heartbeat, Heartbeat, SendMessageV2]
    said = named(stage.heard[-1])
    assert (said["REPLY_TO_CLIENT"], said["TTL"]) == ("me@1", "2500")
    assert stage.instance.questions == {}


def test_an_answer_that_does_not_come_is_missed_in_time(stage: Stage) -> None:
    began = stage.now_s
    with pytest.raises(ReplyTimeoutError, match=r"no answer to message .* within 2 s"):
        stage.perform(ask_through_topic(sender(stage), Message("T", b"?"), 2.0))
    assert stage.now_s == began + 2
    (ask,) = stage.asked(SendMessageV2)
    assert stage.instance.serve(pushed(named(ask)["CORRELATION_ID"])) == 0, "it is too late"
    assert stage.instance.questions == {}


def test_a_question_that_cannot_be_sent_fails_at_once(stage: Stage) -> None:
    stage.answers(SendMessageV2, answer(13, remark="illegal"))
    with pytest.raises(MessageIllegalError):
        stage.perform(ask_through_topic(sender(stage), Message("T", b"?"), 2.0))
    assert stage.waits == []
    assert stage.instance.questions == {}


def test_an_answer_that_cannot_be_read_ends_nothing(stage: Stage) -> None:
    with pytest.raises(ReplyTimeoutError):
        stage.perform(ask_through_topic(sender(stage), Message("T", b"?"), 2.0))
    assert stage.instance.serve(pushed("x", b"no zlib", 0x301)) == 1


def test_a_delayed_question_is_refused(stage: Stage) -> None:
    with pytest.raises(ConfigurationError, match="no delay"):
        stage.perform(ask_through_topic(sender(stage), Message("T", b"?", delay_level=1), 2.0))


def request(**missing: str) -> ReceivedMessage:
    said = {"CLUSTER": "c", "CORRELATION_ID": "1", "REPLY_TO_CLIENT": "you@2", "TTL": "9"}
    host = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
    draft = record.MessageDraft(
        topic="T",
        queue_id=1,
        body=b"?",
        properties=properties.encode(said | missing).encode(),
        born_host=host,
        store_host=host,
    )
    (message,) = received(record.encode(draft, 5, 99, 1_700_000_000_001), "broker-a", None)
    return message


def test_a_reply_goes_to_the_reply_topic_of_the_cluster(stage: Stage) -> None:
    assert stage.perform(reply(sender(stage), request(), b"!", {"mine": "1"})).ok
    (ask,) = stage.asked(SendReplyMessageV2)
    assert ask.header.ext()["b"] == "c_REPLY_TOPIC"
    said = named(ask)
    said.pop("UNIQ_KEY")
    assert said == {
        "mine": "1",
        "WAIT": "true",
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "1",
        "REPLY_TO_CLIENT": "you@2",
        "TTL": "9",
    }


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
def test_what_is_no_request_has_no_reply(stage: Stage, missing: str) -> None:
    with pytest.raises(ConfigurationError, match="is no request"):
        stage.perform(reply(sender(stage), request(**{missing: ""}), b"!", {}))
