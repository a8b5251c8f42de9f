import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from aerobee.broker.config.settings.broker import BrokerOptions
from aerobee.broker.errors import (
    AttributesIllegal,
    LimitReached,
    NameIllegal,
    NoPermission,
    Refusal,
    TooFast,
    TopicNotExist,
)
from aerobee.broker.topics.topics import TopicTable
from aerobee.remoting.rate_limit import RateLimit
from aerobee.remoting.wire import relaxed_json
from aerobee.remoting.wire.bodies.topic import TopicConfig

OPTIONS = BrokerOptions(broker_name="broker-a")

JAVA_5_4 = b"""{
\t"dataVersion":{ "counter":3, "stateVersion":0, "timestamp":1700000000000 },
\t"topicConfigTable":{
\t\t"TopicTest":{
\t\t\t"attributes":{ "message.type":"NORMAL" }, "order":false, "perm":6, "readQueueNums":8,
\t\t\t"topicFilterType":"SINGLE_TAG", "topicName":"TopicTest", "topicSysFlag":0, "writeQueueNums":8
\t\t}
\t}
}"""
JAVA_4_9 = b"""{
\t"dataVersion":{ "counter":3, "timestamp":1700000000000 },
\t"topicConfigTable":{
\t\t"TopicTest":{ "order":true, "perm":4, "readQueueNums":8,
\t\t\t"topicFilterType":"SINGLE_TAG", "topicName":"TopicTest", "topicSysFlag":0, "writeQueueNums":2
\t\t}
\t}
}"""


class Changes(list[str]):
    def __call__(self, names: Iterable[str]) -> None:
        self.extend(names)


def table(options: BrokerOptions = OPTIONS, **limits: Any) -> TopicTable:
    return TopicTable(options, **limits)


def wanted(topic: str = "T", queues: int = 8, **fields: Any) -> TopicConfig:
    return TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, **fields)


def document(content: bytes) -> dict[str, Any]:
    decoded = relaxed_json.decode(content)
    assert isinstance(decoded, dict)
    return decoded


@pytest.mark.parametrize(
    ("topic", "queues", "perm"),
    [
        ("SELF_TEST_TOPIC", 1, 6),
        ("TBW102", 8, 7),
        ("BenchmarkTest", 1024, 6),
        ("DefaultCluster", 16, 7),
        ("broker-a", 1, 7),
        ("OFFSET_MOVED_EVENT", 1, 6),
        ("SCHEDULE_TOPIC_XXXX", 18, 6),
        ("DefaultCluster_REPLY_TOPIC", 1, 6),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 1, 6),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, 6),
        ("rmq_sys_REVIVE_LOG_DefaultCluster", 8, 6),
        ("rmq_sys_SYNC_BROKER_MEMBER_broker-a", 1, 1),
        ("rmq_sys_wheel_timer", 1, 6),
    ],
)
def test_built_in_topics_exist_from_the_start(topic: str, queues: int, perm: int) -> None:
    config = table().get(topic)
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (queues, queues, perm)


def test_settings_decide_about_some_built_in_topics() -> None:
    options = dataclasses.replace(
        OPTIONS,
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        trace_topic_enable=True,
    )
    topics = table(options)
    assert topics.get("TBW102") is None
    assert topics.is_system("TBW102")
    assert topics.configs["DefaultCluster"].perm == 1
    assert topics.configs["broker-a"].perm == 1
    assert topics.get("RMQ_SYS_TRACE_TOPIC") is not None


def test_a_send_to_an_unknown_topic_creates_it_from_the_template() -> None:
    changes = Changes()
    topics = table()
    topics.listeners.append(changes)
    config = topics.for_send("T", "TBW102", 4, 123)
    assert config == wanted(queues=4, perm=6)
    assert topics.get("T") is config
    assert topics.sendable("T") is config
    assert changes == ["T"]
    assert (topics.version.counter, topics.version.timestamp) == (1, 123)


@pytest.mark.parametrize(("asked", "queues"), [(4, 4), (100, 8), (0, 0), (-3, 0)])
def test_queues_are_bounded_by_the_template_and_by_the_request(asked: int, queues: int) -> None:
    assert table().for_send("T", "TBW102", asked, 0).write_queue_nums == queues


def test_any_topic_with_the_inherit_bit_is_a_template() -> None:
    assert table().for_send("T", "DefaultCluster", 100, 0).write_queue_nums == 16
    with pytest.raises(TopicNotExist):
        table().for_send("T", "BenchmarkTest", 4, 0)


def test_a_known_topic_is_not_changed_by_a_send() -> None:
    topics = table()
    first = topics.for_send("T", "TBW102", 4, 0)
    assert topics.for_send("T", "nothing", 8, 0) is first
    assert topics.version.counter == 1


def test_without_auto_create_the_template_creates_nothing() -> None:
    # A store taken over may still hold the template.
    topics = table()
    topics.settings = dataclasses.replace(OPTIONS, auto_create_topic_enable=False)
    with pytest.raises(TopicNotExist) as caught:
        topics.for_send("T", "TBW102", 4, 0)
    assert caught.value.code == 17
    assert caught.value.remark.startswith("topic[T] not exist")
    assert topics.for_send("%RETRY%g", "TBW102", 4, 0).write_queue_nums == 1


def test_unit_mode_marks_what_a_send_creates() -> None:
    topics = table()
    assert topics.for_send("T", "TBW102", 4, 0, unit_mode=True).topic_sys_flag == 1
    assert topics.for_send("%RETRY%g", "", 4, 0, unit_mode=True).topic_sys_flag == 2


def test_no_send_creates_a_topic_with_an_illegal_name() -> None:
    for topic in ("", "a b", "../x", "a" * 128):
        with pytest.raises(NameIllegal):
            table().for_send(topic, "TBW102", 4, 0)


def test_the_brokers_own_topics_are_not_for_clients() -> None:
    topics = table()
    assert topics.get("SELF_TEST_TOPIC") is not None
    assert topics.sendable("SELF_TEST_TOPIC") is None
    with pytest.raises(NoPermission):
        topics.for_send("SELF_TEST_TOPIC", "TBW102", 4, 0)


def test_topics_are_limited_and_retry_topics_do_not_take_their_room() -> None:
    topics = table()
    topics.max_topics = len(topics.configs) + 1
    topics.for_send("A", "TBW102", 4, 0)
    with pytest.raises(LimitReached) as caught:
        topics.for_send("B", "TBW102", 4, 0)
    assert caught.value.code == 1
    assert topics.get("B") is None
    assert topics.for_group("g", 1, 0)
    assert topics.for_send("A", "TBW102", 4, 0) is topics.get("A")


def test_a_group_gets_its_retry_topic_once() -> None:
    topics = table()
    assert topics.for_group("g", 1, 0)
    assert not topics.for_group("g", 1, 0)
    assert topics.configs["%RETRY%g"] == wanted("%RETRY%g", 1)


def test_a_retry_topic_follows_the_order_flag_of_its_group() -> None:
    topics = table()
    topics.for_group("g", 1, 0)
    assert topics.for_group("g", 1, 0, order=True)
    assert topics.configs["%RETRY%g"].order


def test_a_group_without_retry_queues_gets_no_retry_topic() -> None:
    topics = table()
    assert not topics.for_group("g", 0, 0)
    assert topics.get("%RETRY%g") is None


def test_an_administrator_creates_and_changes_a_topic() -> None:
    changes = Changes()
    topics = table()
    topics.listeners.append(changes)
    assert topics.update(wanted(), {"+message.type": "FIFO"}, 0)
    assert topics.update(wanted(queues=4, perm=4, order=True), {}, 0)
    config = topics.configs["T"]
    assert (config.read_queue_nums, config.perm, config.order) == (4, 4, True)
    assert config.attributes == {"message.type": "FIFO"}
    assert changes == ["T", "T"]


def test_an_equal_config_changes_nothing() -> None:
    topics = table()
    topics.update(wanted(), {}, 0)
    assert not topics.update(wanted(), {}, 9)
    assert topics.version.counter == 1


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (wanted("a b"), 29),
        (wanted("TBW102"), 29),
        (wanted("rmq_sys_mine"), 29),
        (wanted("CHECKPOINT_TOPIC"), 29),
        (wanted(queues=1025), 29),
        (wanted(queues=-1), 29),
        (wanted(perm=8), 29),
        (wanted(perm=-1), 29),
        (wanted(topic_sys_flag=4), 29),
        (wanted(topic_sys_flag=-1), 29),
        (wanted(topic_filter_type="NO_TAG"), 1),
    ],
)
def test_a_topic_that_may_not_be_is_refused(config: TopicConfig, code: int) -> None:
    topics = table()
    before = topics.document()
    with pytest.raises(Refusal) as caught:
        topics.update(config, {}, 0)
    assert caught.value.code == code
    assert topics.document() == before


def test_a_system_topic_is_refused_by_name() -> None:
    with pytest.raises(NameIllegal, match=r"The topic\[TBW102\] is conflict with system topic\."):
        table().update(wanted("TBW102"), {}, 0)


def test_mixed_topics_are_an_invalid_parameter() -> None:
    with pytest.raises(Refusal) as caught:
        table().update(wanted(), {"+message.type": "MIXED"}, 0)
    assert caught.value.code == 29


def test_a_refused_attribute_creates_no_topic() -> None:
    topics = table()
    with pytest.raises(AttributesIllegal, match="not supported"):
        topics.update(wanted(), {"+queue.type": "BatchCQ"}, 0)
    assert topics.get("T") is None


def test_a_deleted_topic_is_gone_and_its_name_free() -> None:
    changes = Changes()
    topics = table()
    topics.listeners.append(changes)
    topics.update(wanted(), {}, 0)
    assert topics.delete("T", 0, 0)
    assert not topics.delete("T", 0, 0)
    assert topics.get("T") is None
    assert topics.sendable("T") is None
    assert changes == ["T", "T"]


def test_topics_whose_config_was_lost_are_taken_up_again() -> None:
    topics = table()
    assert topics.adopt("T", 4, 0)
    assert not topics.adopt("T", 8, 0)
    assert not topics.adopt("../T", 4, 0)
    assert topics.configs["T"].read_queue_nums == 4


def test_the_file_of_the_5_4_line_loads_over_the_built_in_topics() -> None:
    topics = table()
    assert topics.load(document(JAVA_5_4)) == []
    assert topics.configs["TopicTest"] == wanted("TopicTest", attributes={"message.type": "NORMAL"})
    assert topics.sendable("TopicTest") is not None
    assert topics.get("TBW102") is not None
    assert topics.version.counter == 3


def test_the_file_of_the_4_9_line_loads_with_defaults_for_what_it_lacks() -> None:
    topics = table()
    topics.load(document(JAVA_4_9))
    config = topics.configs["TopicTest"]
    assert (config.write_queue_nums, config.perm, config.order) == (2, 4, True)
    assert config.attributes == {}


def test_the_file_wins_over_the_built_in_topics() -> None:
    topics = table()
    topics.load({"topicConfigTable": {"TBW102": {"writeQueueNums": 3, "perm": 7}}})
    assert topics.for_send("T", "TBW102", 16, 0).write_queue_nums == 3


def test_a_file_with_absurd_numbers_loads_with_queues_that_can_be_walked_over() -> None:
    topics = table()
    absurd = {"readQueueNums": (1 << 31) - 1, "writeQueueNums": -5, "perm": 255, "topicSysFlag": -1}
    assert topics.load({"topicConfigTable": {"T": absurd}}) == []
    config = topics.configs["T"]
    assert (config.read_queue_nums, config.write_queue_nums) == (32_768, 0)
    assert (config.perm, config.topic_sys_flag) == (255, -1)


def test_names_that_are_paths_are_left_out_of_a_loaded_table() -> None:
    topics = table()
    rejected = topics.load({"topicConfigTable": {"../../x": {}, "a" * 255: {}}})
    assert rejected == ["../../x"]
    assert topics.get("a" * 255) is not None


def test_a_broker_named_like_a_host_keeps_its_topic() -> None:
    topics = table(dataclasses.replace(OPTIONS, broker_name="host.example.org"))
    assert topics.load(json.loads(msgspec.json.encode(topics.document()))) == []


@pytest.mark.parametrize(
    "broken",
    [
        {"topicConfigTable": {"T": {"perm": "all"}}},
        {"topicConfigTable": ["T"]},
        {"topicConfigTable": {"T": 1}},
        {"topicConfigTable": {"T": {}}, "dataVersion": 7},
    ],
)
def test_a_broken_document_leaves_the_table_as_it_was(broken: dict[str, Any]) -> None:
    topics = table()
    before = topics.document()
    with pytest.raises((ValueError, TypeError, AttributeError)):
        topics.load(broken)
    assert topics.document() == before


def test_a_saved_table_loads_as_it_was_with_fields_that_only_others_know() -> None:
    topics = table()
    stored = document(JAVA_5_4)
    stored["later"] = [1]
    stored["topicConfigTable"]["TopicTest"]["colour"] = "red"
    topics.load(stored)
    topics.for_send("T", "TBW102", 4, 5)
    saved = json.loads(msgspec.json.encode(topics.document()))
    assert saved["later"] == [1]
    assert saved["topicConfigTable"]["TopicTest"]["colour"] == "red"
    assert saved["topicConfigTable"]["T"] == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "T",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    again = table()
    again.load(saved)
    assert again.configs == topics.configs
    assert again.version == topics.version


def test_topics_of_a_kind_can_be_found() -> None:
    topics = table()
    topics.load({"topicConfigTable": {"B": {"attributes": {"queue.type": "BatchCQ"}}, "A": {}}})
    assert topics.with_attribute("queue.type", "BatchCQ") == ["B"]


def test_topics_are_made_by_use_only_so_fast_and_by_administrators_at_once() -> None:
    topics = table()
    topics.rate = RateLimit(2, 1)
    topics.for_send("T0", "TBW102", 4, 1_000)
    topics.for_send("T1", "TBW102", 4, 1_000)
    with pytest.raises(TooFast, match="no new topic now") as refused:
        topics.for_send("T2", "TBW102", 4, 1_000)
    assert refused.value.code == 2
    topics.for_send("T1", "TBW102", 4, 1_000)
    topics.update(wanted("T3"), {}, 1_000)
    topics.for_send("T2", "TBW102", 4, 2_000)
