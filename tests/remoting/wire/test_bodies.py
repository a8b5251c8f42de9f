"""The bodies of one or two members."""

from __future__ import annotations

from aerobee.remoting.wire.bodies.client import CheckClientConfigBody, ConsumerList
from aerobee.remoting.wire.bodies.data_version import DataVersion
from aerobee.remoting.wire.bodies.kv_table import KVTable
from aerobee.remoting.wire.bodies.queue import LockBatchRequest, LockBatchResponse, MessageQueue
from aerobee.remoting.wire.bodies.topic import TopicConfig, TopicConfigSerializeWrapper, TopicList

QUEUE = b'{"brokerName":"b","queueId":0,"topic":"T"}'


def test_queue_locks_are_those_of_java() -> None:
    body = b'{"clientId":"c","consumerGroup":"g","mqSet":[%b],"onlyThisBroker":false}' % QUEUE
    request = LockBatchRequest.from_bytes(body)
    queue = MessageQueue(broker_name="b", queue_id=0, topic="T")
    assert request == LockBatchRequest(client_id="c", consumer_group="g", mq_set=[queue])
    assert request.to_bytes() == body
    assert LockBatchResponse([queue]).to_bytes() == b'{"lockOKMQSet":[%b]}' % QUEUE
    assert LockBatchResponse.from_bytes(b"{}").lock_ok_mq_set == []


def test_queues_serve_as_keys() -> None:
    one, same = (MessageQueue(broker_name="b", queue_id=0, topic="T") for _ in range(2))
    assert {one: 1}[same] == 1


def test_a_group_s_members() -> None:
    body = b'{"consumerIdList":["10.0.0.1@123"]}'
    assert ConsumerList.from_bytes(body) == ConsumerList(["10.0.0.1@123"])
    assert ConsumerList(["10.0.0.1@123"]).to_bytes() == body


def test_a_data_version_is_equal_only_in_all_three() -> None:
    version = DataVersion(state_version=0, timestamp=1, counter=4)
    assert version.to_bytes() == b'{"counter":4,"stateVersion":0,"timestamp":1}'
    assert DataVersion.from_bytes(b'{"counter":4,"timestamp":1}') == version
    assert DataVersion(1, 1, 4) != version


def test_topic_names() -> None:
    assert TopicList(topic_list=["T"]).to_bytes() == b'{"topicList":["T"]}'
    both = TopicList(topic_list=[], broker_addr="127.0.0.1:1")
    assert TopicList.from_bytes(both.to_bytes()) == both


def test_a_key_value_table() -> None:
    assert KVTable({"T": "b:4"}).to_bytes() == b'{"table":{"T":"b:4"}}'


def test_a_subscription_to_be_checked() -> None:
    body = b'{"clientId":"c","group":"g","subscriptionData":{"subString":"a > 1","topic":"T"}}'
    found = CheckClientConfigBody.from_bytes(body)
    assert (found.group, found.subscription_data.sub_string) == ("g", "a > 1")


def test_topics_of_a_4_9_broker_read_like_ours() -> None:
    old = (
        b'{"dataVersion":{"counter":1,"timestamp":5},"topicConfigTable":{"T":{"order":false,'
        b'"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T",'
        b'"topicSysFlag":0,"writeQueueNums":4}}}'
    )
    config = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
    wrapper = TopicConfigSerializeWrapper(
        data_version=DataVersion(0, 5, 1), topic_config_table={"T": config}
    )
    assert TopicConfigSerializeWrapper.from_bytes(old) == wrapper
    assert TopicConfigSerializeWrapper.from_bytes(wrapper.to_bytes()) == wrapper
