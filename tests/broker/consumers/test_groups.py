import dataclasses
import json
from typing import Any

import msgspec
import pytest

from aerobee.broker.config.settings.broker import BrokerOptions
from aerobee.broker.consumers.groups import GroupTable
from aerobee.broker.errors import GroupNotExist, LimitReached, NameIllegal
from aerobee.remoting.wire import relaxed_json
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig

OPTIONS = BrokerOptions()
STRICT = dataclasses.replace(OPTIONS, auto_create_subscription_group=False)

JAVA_5_4 = b"""{
\t"dataVersion":{ "counter":0, "stateVersion":0, "timestamp":1700000000000 },
\t"forbiddenTable":{"GID_A":{"T":4}},
\t"subscriptionGroupTable":{
\t\t"GID_A":{
\t\t\t"attributes":{}, "brokerId":0, "consumeBroadcastEnable":true, "consumeEnable":false,
\t\t\t"consumeFromMinEnable":true, "consumeMessageOrderly":false, "consumeTimeoutMinute":15,
\t\t\t"groupName":"GID_A", "groupRetryPolicy":{ "type":"CUSTOMIZED" }, "groupSysFlag":0,
\t\t\t"notifyConsumerIdsChangedEnable":true, "retryMaxTimes":3, "retryQueueNums":2,
\t\t\t"whichBrokerWhenConsumeSlowly":1
\t\t}
\t}
}"""


def document(content: bytes) -> dict[str, Any]:
    decoded = relaxed_json.decode(content)
    assert isinstance(decoded, dict)
    return decoded


def test_eight_groups_exist_from_the_start() -> None:
    groups = GroupTable(STRICT)
    assert len(groups.configs) == 8
    assert groups.get("TOOLS_CONSUMER") == SubscriptionGroupConfig(group_name="TOOLS_CONSUMER")


def test_a_new_group_has_the_defaults_of_rocketmq() -> None:
    config = GroupTable(OPTIONS).require("g", 0)
    assert config.consume_enable
    assert config.consume_broadcast_enable
    assert config.notify_consumer_ids_changed_enable
    assert not config.consume_message_orderly
    assert (config.retry_queue_nums, config.retry_max_times) == (1, 16)
    assert (config.broker_id, config.which_broker_when_consume_slowly) == (0, 1)


def test_the_first_look_up_creates_a_group() -> None:
    changes: list[str] = []
    groups = GroupTable(OPTIONS)
    groups.listeners.append(changes.extend)
    config = groups.find("g", 55)
    assert groups.find("g", 56) is config
    assert groups.get("g") is config
    assert changes == ["g"]
    assert (groups.version.counter, groups.version.timestamp) == (1, 55)


def test_without_auto_create_only_system_groups_come_by_themselves() -> None:
    groups = GroupTable(STRICT)
    assert groups.find("g", 0) is None
    assert groups.find("CID_RMQ_SYS_new", 0) is not None
    with pytest.raises(GroupNotExist) as caught:
        groups.require("g", 0)
    assert caught.value.code == 26


@pytest.mark.parametrize("group", ["", "a b", "../x", "a" * 121])
def test_no_look_up_creates_a_group_with_an_illegal_name(group: str) -> None:
    groups = GroupTable(OPTIONS)
    assert groups.find(group, 0) is None
    with pytest.raises(NameIllegal):
        groups.update(SubscriptionGroupConfig(group_name=group), 0)


def test_groups_are_limited() -> None:
    groups = GroupTable(dataclasses.replace(OPTIONS, max_consumer_groups=9))
    groups.find("g", 0)
    with pytest.raises(LimitReached, match="maxConsumerGroups is 9"):
        groups.find("h", 0)
    assert groups.find("g", 0) is not None


def test_an_equal_config_changes_nothing() -> None:
    groups = GroupTable(OPTIONS)
    config = SubscriptionGroupConfig(group_name="g", retry_max_times=3)
    assert groups.update(config, 0)
    assert not groups.update(SubscriptionGroupConfig(group_name="g", retry_max_times=3), 0)
    assert groups.version.counter == 1


def test_forbidding_one_topic_leaves_the_others_of_the_group() -> None:
    groups = GroupTable(OPTIONS)
    groups.forbid_read("g", "t", True, 0)
    groups.forbid_read("g", "u", True, 0)
    assert not groups.may_read("g", "t")
    assert groups.may_read("h", "t")
    groups.forbid_read("g", "t", False, 0)
    assert groups.may_read("g", "t")
    assert not groups.may_read("g", "u")


def test_a_deleted_group_takes_what_was_forbidden_to_it() -> None:
    groups = GroupTable(OPTIONS)
    groups.find("g", 0)
    groups.forbid_read("g", "t", True, 0)
    assert groups.delete("g", 0)
    assert not groups.delete("g", 0)
    assert groups.get("g") is None
    assert groups.may_read("g", "t")


def test_what_was_forbidden_to_a_group_that_was_never_made_goes_with_its_deletion() -> None:
    groups = GroupTable(STRICT)
    groups.forbid_read("g", "t", True, 0)
    version, saved = groups.version, list[Any]()
    groups.listeners.append(saved.append)
    assert not groups.delete("g", 1)
    assert groups.may_read("g", "t")
    assert saved == [("g",)]
    assert groups.version != version
    assert not groups.delete("g", 2)
    assert saved == [("g",)]


def test_the_file_of_the_5_4_line_loads_over_the_built_in_groups() -> None:
    groups = GroupTable(OPTIONS)
    assert groups.load(document(JAVA_5_4)) == []
    config = groups.configs["GID_A"]
    assert (config.consume_enable, config.retry_max_times, config.retry_queue_nums) == (False, 3, 2)
    assert not groups.may_read("GID_A", "T")
    assert groups.get("TOOLS_CONSUMER") is not None


def test_a_file_without_the_newer_fields_loads_with_defaults() -> None:
    groups = GroupTable(OPTIONS)
    groups.load({"subscriptionGroupTable": {"GID_A": {"groupName": "GID_A", "brokerId": 0}}})
    assert groups.configs["GID_A"] == SubscriptionGroupConfig(group_name="GID_A")


def test_long_group_names_found_in_a_store_are_served() -> None:
    groups = GroupTable(OPTIONS)
    rejected = groups.load({"subscriptionGroupTable": {"a" * 248: {}, "b" * 249: {}, "../c": {}}})
    assert rejected == ["b" * 249, "../c"]
    assert groups.find("a" * 248, 0) is not None
    assert groups.update(SubscriptionGroupConfig(group_name="a" * 248, retry_max_times=1), 0)


def test_numbers_that_nobody_may_set_any_more_load_and_are_saved() -> None:
    groups = GroupTable(OPTIONS)
    absurd = {"retryMaxTimes": -7, "retryQueueNums": 1 << 40, "brokerId": 10**30}
    groups.load({"subscriptionGroupTable": {"g": absurd}})
    assert groups.configs["g"].retry_queue_nums == 1 << 40
    saved = json.loads(msgspec.json.encode(groups.document()))
    assert saved["subscriptionGroupTable"]["g"].items() >= absurd.items()


@pytest.mark.parametrize(
    "broken",
    [
        {"subscriptionGroupTable": []},
        {"subscriptionGroupTable": {"g": {"retryMaxTimes": "many"}}},
        {"subscriptionGroupTable": {"g": {}}, "forbiddenTable": {"g": 1}},
    ],
)
def test_a_broken_document_leaves_the_table_as_it_was(broken: dict[str, Any]) -> None:
    groups = GroupTable(OPTIONS)
    before = groups.document()
    with pytest.raises((ValueError, TypeError, AttributeError)):
        groups.load(broken)
    assert groups.document() == before


def test_a_saved_table_loads_as_it_was_with_fields_that_only_others_know() -> None:
    groups = GroupTable(OPTIONS)
    stored = document(JAVA_5_4)
    stored["subscriptionGroupTable"]["GID_A"]["colour"] = "red"
    groups.load(stored)
    saved = json.loads(msgspec.json.encode(groups.document()))
    assert saved["forbiddenTable"] == {"GID_A": {"T": 4}}
    assert saved["subscriptionGroupTable"]["GID_A"]["colour"] == "red"
    assert saved["subscriptionGroupTable"]["GID_A"]["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
    assert "subscriptionDataSet" not in saved["subscriptionGroupTable"]["GID_A"]
    again = GroupTable(OPTIONS)
    again.load(saved)
    assert again.configs == groups.configs


def test_what_groups_may_not_read_has_a_limit() -> None:
    saved: list[object] = []
    groups = GroupTable(OPTIONS, max_forbidden=2)
    groups.listeners.append(saved.append)
    for topic in ("a", "b"):
        groups.forbid_read("g", topic, True, 0)
    with pytest.raises(LimitReached, match="forbidden topic of a group: 2 is the limit"):
        groups.forbid_read("h", "a", True, 0)
    assert groups.may_read("h", "a")
    groups.forbid_read("g", "a", True, 0)
    groups.forbid_read("h", "a", False, 0)
    assert len(saved) == 2, "what is so already is not saved again"
    groups.forbid_read("g", "b", False, 0)
    groups.forbid_read("h", "a", True, 0)
    assert groups.forbidden == {"g": {"a": 4}, "h": {"a": 4}}
