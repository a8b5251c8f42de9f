"""Hooks hear of every send, may add properties, and can break nothing."""

import logging

import pytest

from aerobee.client.factory import make_config
from aerobee.client.message import Message
from aerobee.client.settings.producer import ProducerConfig
from aerobee.client.steps.messages import UniqIds
from aerobee.client.steps.sending import Sender
from aerobee.errors import ConfigurationError, MessageIllegalError
from aerobee.hooks import Hook, SendContext
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.send import SendBatchMessage, SendMessageV2
from aerobee.store.format import properties
from aerobee.store.format.batch import batch_items
from tests.aerobee.client.steps.stage import Stage, answer, route


class Recorder(Hook):
    """Writes down what it hears, and adds a property."""

    def __init__(self, name: str = "hook", value: str = "was here") -> None:
        self.name = name
        self.value = value
        self.before: list[SendContext] = []
        self.after: list[SendContext] = []

    def before_send(self, send: SendContext) -> None:
        self.before.append(send)
        send.properties[self.name] = self.value

    def after_send(self, send: SendContext) -> None:
        self.after.append(send)


class Broken(Hook):
    """Fails whenever it is called."""

    def before_send(self, send: SendContext) -> None:
        raise RuntimeError("before")

    def after_send(self, send: SendContext) -> None:
        raise RuntimeError("after")


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a", queues=1))
    stage.answers(SendMessageV2, answer(msgId="OID", queueId=0, queueOffset=7))
    stage.answers(SendBatchMessage, answer(msgId="O1,O2", queueId=0, queueOffset=7))
    return stage


def sender(stage: Stage, *hooks: Hook) -> Sender:
    ids = UniqIds(bytes(4), 1, 1)
    return Sender(stage.instance, ProducerConfig(group="g"), ids, hooks=hooks)


def stored(stage: Stage) -> list[dict[str, str]]:
    """The properties of what was sent in a request of its own."""
    return [dict(properties.decode(ask.header.ext()["i"])) for ask in stage.asked(SendMessageV2)]


def test_a_hook_hears_of_a_send_before_and_after_and_adds_properties(stage: Stage) -> None:
    hook = Recorder()
    message = Message("T", b"x", properties={"hook": "mine"})
    result = stage.perform(sender(stage, hook).send(message, None, None, False))
    (heard,) = hook.after
    assert hook.before == [heard]
    assert (heard.topic, heard.group, heard.oneway, heard.half) == ("T", "g", False, False)
    assert (heard.messages, heard.message_ids) == ((message,), [result.message_id])
    assert (heard.results, heard.error) == ([result], None)
    assert [named["hook"] for named in stored(stage)] == ["was here"]
    assert message.properties == {"hook": "mine"}


def test_each_message_of_a_batch_has_what_a_hook_adds(stage: Stage) -> None:
    hook = Recorder()
    messages = [Message("T", b"1"), Message("T", b"2", properties={"a": "b"})]
    results = stage.perform(sender(stage, hook).send_batch(messages, None))
    (ask,) = stage.asked(SendBatchMessage)
    items = list(batch_items(ask.body))
    assert [properties.decode(named)["hook"] for _, _, named in items] == 2 * ["was here"]
    assert [bytes(body) for _, body, _ in items] == [b"1", b"2"]
    (heard,) = hook.after
    assert heard.results == results
    assert heard.message_ids == [one.message_id for one in results]


def test_a_send_that_failed_or_is_one_way_is_heard_of_too(stage: Stage) -> None:
    hook = Recorder()
    stage.answers(SendMessageV2, answer(13, remark="illegal"))
    with pytest.raises(MessageIllegalError):
        stage.perform(sender(stage, hook).send(Message("T", b"x"), None, None, False))
    stage.perform(sender(stage, hook).send_oneway(Message("T", b"x")))
    failed, oneway = hook.after
    assert isinstance(failed.error, MessageIllegalError)
    assert (oneway.oneway, oneway.error, oneway.results) == (True, None, ())
    assert [named["hook"] for named in stored(stage)] == 2 * ["was here"]


def test_a_send_that_was_cancelled_is_heard_of(stage: Stage) -> None:
    hook = Recorder()
    steps = sender(stage, hook).send(Message("T", b"x"), None, None, False)
    steps.send(None)
    steps.close()
    (heard,) = hook.after
    assert (heard.error, heard.results) == (None, ())


def test_hooks_nest(stage: Stage) -> None:
    said: list[str] = []

    class Named(Hook):
        def __init__(self, name: str) -> None:
            self.name = name

        def before_send(self, send: SendContext) -> None:
            said.append(f"before {self.name}")

        def after_send(self, send: SendContext) -> None:
            said.append(f"after {self.name}")

    both = (Named("a"), Named("b"))
    stage.perform(sender(stage, *both).send(Message("T", b"x"), None, None, False))
    assert said == ["before a", "before b", "after b", "after a"]


def test_a_hook_that_fails_is_logged_and_breaks_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Recorder()
    with caplog.at_level(logging.ERROR, "aerobee"):
        result = stage.perform(
            sender(stage, Broken(), hook).send(Message("T", b"x"), None, None, False)
        )
    assert result.ok
    assert len(hook.after) == 1
    assert [str(one.exc_info[1]) for one in caplog.records if one.exc_info] == ["before", "after"]


@pytest.mark.parametrize(
    ("name", "value"), [("TAGS", "A"), ("a", ""), ("a", "\x01"), ("a", "x" * 40_000)]
)
def test_a_property_that_cannot_be_is_left_out(
    stage: Stage, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    one = sender(stage, Recorder(name, value))
    assert stage.perform(one.send(Message("T", b"x"), None, None, False)).ok
    assert len(stage.perform(one.send_batch([Message("T", b"x"), Message("T", b"y")], None))) == 2
    assert [set(named) for named in stored(stage)] == [{"UNIQ_KEY", "WAIT"}]
    assert caplog.text.count("left out") == 2


def test_the_properties_of_other_hooks_stay_where_one_is_left_out(stage: Stage) -> None:
    one = sender(stage, Recorder("TAGS", "A"), Recorder("traceparent", "00-1"))
    assert stage.perform(one.send(Message("T", b"x"), None, None, False)).ok
    assert [set(named) for named in stored(stage)] == [{"UNIQ_KEY", "WAIT", "traceparent"}]


def test_what_is_no_hook_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no before_send: derive it from"):
        make_config(None, hooks=[object()])  # type: ignore[list-item]  # so it is
