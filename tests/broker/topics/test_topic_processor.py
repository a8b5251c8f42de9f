import json
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from aerobee.broker.config.settings.broker import BrokerOptions
from aerobee.broker.counters.creation_times import CreationTimes
from aerobee.broker.errors import AttributesIllegal, NameIllegal, Refusal
from aerobee.broker.topics.topic_processor import TopicProcessor
from aerobee.broker.topics.topics import TopicTable
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.topic import TopicConfig
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.headers import topic as headers
from tests.broker.peers import HandClock, Peer, request

OPTIONS = BrokerOptions()


class Disk:
    """A table file that is durable when the test says so."""

    def __init__(self) -> None:
        self.clean = True
        self.synced = trio.Event()
        self.full = False

    def dirty(self, names: object) -> None:
        self.clean = False

    async def catch_up(self) -> None:
        await self.synced.wait()
        if self.full:
            raise OSError(28, "No space left on device")
        self.clean = True


class Desk:
    def __init__(self) -> None:
        self.disk = Disk()
        self.topics = TopicTable(OPTIONS)
        self.topics.listeners.append(self.disk.dirty)
        self.processor = TopicProcessor(
            topics=self.topics,
            saved=self.disk,
            clock=HandClock(),
            times=CreationTimes(),
            page=10,
        )
        self.peer: Any = Peer()

    def update(self, topic: str = "T", **fields: Any) -> Any:
        given: dict[str, Any] = {
            "default_topic": "TBW102",
            "read_queue_nums": 8,
            "write_queue_nums": 8,
            "perm": 6,
            "topic_filter_type": "SINGLE_TAG",
            "order": False,
            **fields,
        }
        header = headers.CreateTopic(topic=topic, **given)
        command = request(RequestCode.UPDATE_AND_CREATE_TOPIC)
        return self.processor.update(header, command, self.peer)

    def page(self, **fields: Any) -> tuple[dict[str, Any], int | None]:
        command = request(RequestCode.GET_ALL_TOPIC_CONFIG)
        header = headers.GetAllTopicConfig(**fields)
        answer = finished(self.processor.all_configs(header, command, self.peer))
        assert isinstance(answer, Answer)
        assert isinstance(answer.body, bytes)
        assert isinstance(answer.header, headers.GetAllTopicConfigResponse)
        return json.loads(answer.body), answer.header.total_topic_num


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.trio
async def test_a_created_topic_is_answered_when_it_is_on_disk(
    desk: Desk, nursery: trio.Nursery
) -> None:
    answers: list[Answer] = []

    async def wait_for(work: Any) -> None:
        answers.append(await work)

    nursery.start_soon(wait_for, desk.update().work)
    await trio.testing.wait_all_tasks_blocked()
    assert desk.topics.get("T") == TopicConfig(
        topic_name="T", read_queue_nums=8, write_queue_nums=8
    )
    assert answers == []
    desk.disk.synced.set()
    await trio.testing.wait_all_tasks_blocked()
    assert [answer.code for answer in answers] == [0]


@pytest.mark.trio
async def test_an_equal_config_is_answered_at_once_only_if_it_is_on_disk(desk: Desk) -> None:
    first = desk.update()
    second = desk.update()
    desk.disk.synced.set()
    await first.work
    await second.work
    assert desk.update() == Answer()
    assert desk.topics.version.counter == 1


@pytest.mark.trio
async def test_a_topic_that_cannot_be_saved_is_an_error(desk: Desk) -> None:
    desk.disk.full = True
    desk.disk.synced.set()
    with pytest.raises(Refusal, match="No space left") as caught:
        await desk.update().work
    assert caught.value.code == 1


@pytest.mark.parametrize(
    ("fields", "kind", "code"),
    [
        ({"topic": "a b"}, NameIllegal, 29),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, NameIllegal, 29),
        ({"topic": "a" * 128}, NameIllegal, 29),
        ({"attributes": "+queue.type=BatchCQ"}, AttributesIllegal, 1),
        ({"attributes": "+cleanup.policy=COMPACTION"}, AttributesIllegal, 1),
        ({"attributes": "+message.type=MIXED"}, Refusal, 29),
        ({"attributes": "colour=red"}, AttributesIllegal, 1),
        ({"topic_filter_type": "?"}, Refusal, 1),
        ({"read_queue_nums": 1025}, Refusal, 29),
    ],
)
def test_what_may_not_be_created_is_refused(
    desk: Desk, fields: dict[str, Any], kind: type[Refusal], code: int
) -> None:
    with pytest.raises(kind) as caught:
        desk.update(**fields)
    assert caught.value.code == code
    assert desk.disk.clean


@pytest.mark.trio
async def test_attributes_come_as_edits(desk: Desk) -> None:
    desk.disk.synced.set()
    await desk.update(attributes="+message.type=FIFO").work
    await desk.update(attributes="+message.type=DELAY", order=True).work
    assert desk.topics.configs["T"].attributes == {"message.type": "DELAY"}
    assert desk.topics.configs["T"].order


def test_one_topic_is_answered_with_its_config(desk: Desk) -> None:
    header = headers.GetTopicConfig(topic="TBW102")
    command = request(RequestCode.GET_TOPIC_CONFIG)
    answer = desk.processor.config(header, command, desk.peer)
    assert isinstance(answer.body, bytes)
    assert json.loads(answer.body) == {
        "attributes": {},
        "order": False,
        "perm": 7,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "TBW102",
        "topicSysFlag": 0,
        "writeQueueNums": 8,
    }
    with pytest.raises(Refusal) as caught:
        desk.processor.config(headers.GetTopicConfig(topic="T"), command, desk.peer)
    assert caught.value.code == 17


def test_a_client_that_names_no_page_gets_every_topic(desk: Desk) -> None:
    body, total = desk.page()
    assert set(body["topicConfigTable"]) == set(desk.topics.configs)
    assert total == len(desk.topics.configs)
    assert body["dataVersion"] == {"counter": 0, "stateVersion": 0, "timestamp": 0}


def test_a_client_that_asks_page_by_page_gets_each_topic_once(desk: Desk) -> None:
    names: list[str] = []
    version = ""
    while True:
        body, total = desk.page(topic_seq=len(names), data_version=version, max_topic_num=4)
        assert body["topicConfigTable"]
        names += body["topicConfigTable"]
        version = json.dumps(body["dataVersion"])
        if total is None or len(names) >= total:
            break
    assert names == sorted(desk.topics.configs)


def test_a_page_is_no_larger_than_the_broker_allows(desk: Desk) -> None:
    body, _ = desk.page(topic_seq=0, data_version="", max_topic_num=1000)
    assert len(body["topicConfigTable"]) == 10


@pytest.mark.parametrize("version", ["", "{", "[]", '{"counter":9,"timestamp":1}', None])
def test_a_client_with_another_version_begins_again(desk: Desk, version: str | None) -> None:
    body, _ = desk.page(topic_seq=5, data_version=version, max_topic_num=2)
    assert list(body["topicConfigTable"]) == sorted(desk.topics.configs)[:2]


def test_a_client_with_our_version_goes_on(desk: Desk) -> None:
    version = msgspec.json.encode(desk.topics.version).decode()
    body, _ = desk.page(topic_seq=5, data_version=version, max_topic_num=2)
    assert list(body["topicConfigTable"]) == sorted(desk.topics.configs)[5:7]


def test_a_negative_page_is_the_first(desk: Desk) -> None:
    body, _ = desk.page(topic_seq=-3, data_version="", max_topic_num=-1)
    assert list(body["topicConfigTable"]) == sorted(desk.topics.configs)[:10]


@pytest.mark.trio
async def test_an_edit_between_the_steps_of_a_list_is_not_lost(desk: Desk) -> None:
    desk.topics.put(TopicConfig(topic_name="a"))
    wanted = [{"topicName": name, "attributes": {"+aerobee.max.rate": "9"}} for name in ("a", "b")]
    body = json.dumps({"topicConfigList": wanted}).encode()
    header = headers.CreateTopics()
    command = request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)
    steps = desk.processor.update_all(header, command, desk.peer)
    next(steps)
    edited = TopicConfig(topic_name="a", attributes={"message.type": "FIFO"})
    desk.topics.put(edited)
    desk.disk.synced.set()
    answer: Any = finished(steps)
    await answer.work
    assert desk.topics.configs["a"].attributes == {"message.type": "FIFO", "aerobee.max.rate": "9"}
    assert desk.topics.configs["b"].attributes == {"aerobee.max.rate": "9"}
