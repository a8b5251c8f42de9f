"""What tools read and change as a whole: lists of topics, groups, offsets, modes, units."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.errors import GroupNotExist, NameIllegal, TopicNotExist
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers import admin, group, offset, topic
from aerobee.remoting.wire.headers.client import Heartbeat
from aerobee.remoting.wire.headers.pop import GetAllMessageRequestMode, SetMessageRequestMode
from tests.broker.desk import Desk, document_of, open_desk

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.trio


def encoded(name: str, *entries: dict[str, Any]) -> bytes:
    return json.dumps({name: entries}).encode()


async def beat(desk: Desk, sub_string: str = "*") -> None:
    data = {"topic": "t", "subString": sub_string, "subVersion": 1}
    body = {
        "clientID": "1.2.3.4@7",
        "producerDataSet": [{"groupName": "p"}],
        "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [data]}],
    }
    assert (await desk.ask(Heartbeat(), json.dumps(body).encode())).code == Code.SUCCESS


async def test_topics_are_changed_together_or_not_at_all(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("same", read_queue_nums=16, write_queue_nums=16)
        new = {"topicName": "a", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
        typed = {"topicName": "b", "attributes": {"+message.type": "FIFO"}}
        body = encoded("topicConfigList", {"topicName": "same"}, new, typed)
        assert (await desk.ask(topic.CreateTopics(), body)).code == Code.SUCCESS
        assert desk.topics.configs["a"].read_queue_nums == 3, "one that is as it was ends nothing"
        assert desk.topics.configs["b"].attributes == {"message.type": "FIFO"}
        bad: list[dict[str, Any]] = [
            {"topicName": "../c"},
            {"topicName": "TBW102"},
            {"topicName": "c", "readQueueNums": -1},
            {"topicName": "c", "attributes": {"message.type": "FIFO"}},
            {"topicName": "c", "attributes": {"+nonsense": "x"}},
            {"topicName": "same", "attributes": {"-message.type": ""}},
        ]
        for wrong in bad:
            body = encoded("topicConfigList", {"topicName": "new"}, wrong)
            assert (await desk.ask(topic.CreateTopics(), body)).code != Code.SUCCESS, wrong
            assert desk.topics.get("new") is None
        desk.topics.max_topics = len(desk.topics.configs) + 1
        body = encoded("topicConfigList", {"topicName": "new"}, {"topicName": "newer"})
        answer = await desk.ask(topic.CreateTopics(), body)
        assert "maxTopics is" in str(answer.remark)
        assert desk.topics.get("new") is None


async def test_the_brokers_own_topics_are_listed(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        listed = document_of(await desk.ask(topic.GetSystemTopicsOfBroker()))["topicList"]
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT", "desk"} <= set(listed)


async def test_groups_are_changed_together_or_not_at_all(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        body = encoded(
            "groupConfigList", {"groupName": "a"}, {"groupName": "b", "retryMaxTimes": 3}
        )
        assert (await desk.ask(group.CreateGroups(), body)).code == Code.SUCCESS
        assert desk.groups.configs["b"].retry_max_times == 3
        body = encoded("groupConfigList", {"groupName": "c"}, {"groupName": "../d"})
        assert (await desk.ask(group.CreateGroups(), body)).code == Code.INVALID_PARAMETER
        assert desk.groups.get("c") is None


async def test_a_group_may_be_forbidden_a_topic(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        asked = group.UpdateGroupForbidden(group="TOOLS_CONSUMER", topic="t")
        allowed = {"group": "TOOLS_CONSUMER", "readable": True, "topic": "t"}
        assert document_of(await desk.ask(asked)) == allowed
        changed = group.UpdateGroupForbidden(group="TOOLS_CONSUMER", topic="t", readable=False)
        assert document_of(await desk.ask(changed)) == {**allowed, "readable": False}
        assert not desk.groups.may_read("TOOLS_CONSUMER", "t")
        assert document_of(await desk.ask(asked)) == {**allowed, "readable": False}
        early = group.UpdateGroupForbidden(group="early", topic="t", readable=False)
        assert document_of(await desk.ask(early))["readable"] is False
        assert desk.groups.get("early") is None, "it is forbidden, and not created"
        illegal = group.UpdateGroupForbidden(group="no/way", topic="t", readable=False)
        with pytest.raises(NameIllegal):
            await desk.ask(illegal)


async def test_all_offsets_are_those_of_the_file(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.offsets.commit("g", "t", 1, 7, 0)
        table = document_of(await desk.ask(offset.GetAllConsumerOffset()))
        assert table["offsetTable"] == {"t@g": {"1": 7}}


async def test_offsets_are_cloned_together_or_not_at_all(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        for number in range(300):
            desk.offsets.commit("from", f"t{number % 3}", number, 1, 0)
        desk.offsets.commit("TOOLS_CONSUMER", "t0", 0, 5, 0)
        every = offset.CloneGroupOffset(src_group="from", dest_group="TOOLS_CONSUMER")
        for of_group, of_all in ((299, 1_000_000), (1_000, 599), (1_000, 2_000)):
            desk.offsets.max_of_group, desk.offsets.max_entries = of_group, of_all
            answer = await desk.ask(every)
            assert "no room for another consumer offset" in str(answer.remark)
            assert desk.offsets.by_group["TOOLS_CONSUMER"] == 1
            assert desk.offsets.query("TOOLS_CONSUMER", "t0", 0) == 5
        desk.offsets.max_of_group, desk.offsets.max_entries = 300, 1_000_000
        assert (await desk.ask(every)).code == Code.SUCCESS
        assert desk.offsets.by_group["TOOLS_CONSUMER"] == 300
        assert (await desk.ask(every)).code == Code.SUCCESS, "nothing new needs no room"


@pytest.mark.parametrize("gone", ["group", "topic"])
async def test_what_is_deleted_while_offsets_are_cloned_gets_none(
    tmp_path: Path, gone: str
) -> None:
    async with open_desk(tmp_path) as desk:
        for name in ("from", "to"):
            desk.groups.create(name, 0)
        for topic in ("t", "u"):
            desk.offsets.commit("from", topic, 0, 9, 0)
        steps = desk.begin(offset.CloneGroupOffset(src_group="from", dest_group="to"))
        for _ in range(3):
            next(steps)
        assert desk.offsets.query("to", "t", 0) == 9
        if gone == "group":
            desk.groups.delete("to", 0)
            with pytest.raises(GroupNotExist):
                next(steps)
        else:
            desk.offsets.delete_topic("u")
            next(steps)
        assert desk.offsets.query("to", "u", 0) == -1


async def test_of_a_topic_made_anew_a_clone_has_what_is_there_now(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        for name in ("from", "to"):
            desk.groups.create(name, 0)
        for topic_name in ("t", "u"):
            desk.offsets.commit("from", topic_name, 0, 9, 0)
        steps = desk.begin(offset.CloneGroupOffset(src_group="from", dest_group="to"))
        next(steps)
        desk.offsets.delete_topic("u")
        desk.offsets.commit("from", "u", 0, 1, 0)
        answer: Any = finished(steps)
        await answer.work
        assert desk.offsets.query("to", "t", 0) == 9
        assert desk.offsets.query("to", "u", 0) == 1


async def test_a_group_goes_on_where_another_one_is(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        for name in ("t", "u"):
            desk.topic(name)
            desk.offsets.commit("from", name, 2, 9, 0)
        one = offset.CloneGroupOffset(src_group="from", dest_group="TOOLS_CONSUMER", topic="t")
        assert (await desk.ask(one)).code == Code.SUCCESS
        assert desk.offsets.topics_of("TOOLS_CONSUMER") == ["t"]
        saved = json.loads((tmp_path / "config" / "consumerOffset.json").read_bytes())
        assert saved["offsetTable"]["t@TOOLS_CONSUMER"] == {"2": 9}
        every = offset.CloneGroupOffset(src_group="from", dest_group="TOOLS_CONSUMER")
        assert (await desk.ask(every)).code == Code.SUCCESS
        assert desk.offsets.query("TOOLS_CONSUMER", "u", 2) == 9
        nothing = offset.CloneGroupOffset(src_group="none", dest_group="TOOLS_CONSUMER", topic="t")
        assert (await desk.ask(nothing)).remark == "the group [none] has no offset of topic [t]"
        own = offset.CloneGroupOffset(src_group="from", dest_group="CID_RMQ_SYS_TRANS")
        assert (await desk.ask(own)).code == Code.NO_PERMISSION
        unknown = offset.CloneGroupOffset(src_group="from", dest_group="none", topic="t")
        assert (await desk.ask(unknown)).code == Code.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_clone_takes_the_place_of_a_reset_that_nobody_has_heard_of(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        for queue_id, at in ((0, 9), (1, -1)):
            desk.offsets.commit("from", "t", queue_id, at, 0)
            desk.offsets.reset("TOOLS_CONSUMER", "t", queue_id, 2, 0)
        one = offset.CloneGroupOffset(src_group="from", dest_group="TOOLS_CONSUMER", topic="t")
        assert (await desk.ask(one)).code == Code.SUCCESS
        assert [desk.offsets.query("TOOLS_CONSUMER", "t", n) for n in (0, 1)] == [9, 2]
        assert [desk.offsets.take_reset("TOOLS_CONSUMER", "t", n) for n in (0, 1)] == [9, 2]


async def test_modes_are_listed_by_topic(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        mode = {"topic": "t", "consumerGroup": "TOOLS_CONSUMER", "mode": "POP"}
        await desk.ask(SetMessageRequestMode(), json.dumps(mode).encode())
        listed = document_of(await desk.ask(GetAllMessageRequestMode()))["messageRequestModeMap"]
        assert listed["t"]["TOOLS_CONSUMER"]["mode"] == "POP"


async def test_all_groups_are_told_with_what_they_are_behind(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", write_queue_nums=2)
        desk.topic("ordered", order=True, write_queue_nums=4)
        for name in ("t", "ordered"):
            for _ in range(3):
                await desk.send(name)
            desk.offsets.commit("TOOLS_CONSUMER", name, 0, 1, 0)
        groups = set(desk.groups.configs)
        desk.groups.update(SubscriptionGroupConfig(group_name="SPARK_SINK_s"), 0)
        desk.offsets.commit("SPARK_SINK_s", "t", 0, 7 << 32, 0)
        told = document_of(await desk.ask(admin.GetBrokerConsumeStats(is_order=False)))
        assert told["totalDiff"] == 4, "a sink's mark is no offset"
        assert told["brokerAddr"] == desk.address
        by_group = {name: stats for one in told["consumeStatsList"] for name, stats in one.items()}
        assert set(by_group) == groups
        assert sorted(len(one["offsetTable"]) for one in by_group["TOOLS_CONSUMER"]) == [2, 4]
        ordered = document_of(await desk.ask(admin.GetBrokerConsumeStats(is_order=True)))
        assert [len(one) for each in ordered["consumeStatsList"] for one in each.values() if one]
        assert ordered["totalDiff"] == 2


async def test_times_of_a_queue_are_those_of_its_messages(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", read_queue_nums=2)
        for _ in range(3):
            await desk.send("t")
        times = [desk.store.store_time("t", 0, number) for number in range(3)]
        desk.offsets.commit("g", "t", 0, 2, 0)
        asked = admin.QueryConsumeTimeSpan(topic="t", group="g")
        full, empty = document_of(await desk.ask(asked))["consumeTimeSpanSet"]
        assert (full["minTimeStamp"], full["maxTimeStamp"]) == (times[0], times[2])
        assert full["consumeTimeStamp"] == times[1]
        assert full["delayTime"] == pytest.approx(desk.clock.now_ms() - times[2], abs=50)
        stamps = [empty[name] for name in ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp")]
        assert (stamps, empty["delayTime"]) == ([-1, -1, -1], 0)
        unknown = admin.QueryConsumeTimeSpan(topic="none", group="g")
        with pytest.raises(TopicNotExist):
            await desk.ask(unknown)


async def test_subscriptions_and_producers_are_those_of_the_heartbeats(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        asked = admin.QuerySubscriptionByConsumer(group="g", topic="t")
        assert document_of(await desk.ask(asked)) == {"group": "g", "topic": "t"}
        await beat(desk, "A || B")
        found = document_of(await desk.ask(asked))
        assert found["subscriptionData"]["subString"] == "A || B"
        (producer,) = document_of(await desk.ask(admin.GetAllProducerInfo()))["data"]["p"]
        assert producer["remoteIP"] == f"/{desk.peer.address}"
        assert producer["clientId"] == "1.2.3.4@7"
        assert producer["lastUpdateTimestamp"] == pytest.approx(desk.clock.now_ms(), abs=100)


async def test_units_are_as_they_are_stored(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        await beat(desk, "A")
        for tag in ("A", "B", "A"):
            await desk.send("t", properties=f"TAGS\x01{tag}\x02")
        asked = admin.QueryConsumeQueue(topic="t", queue_id=0, index=1, count=9, consumer_group="g")
        found = document_of(await desk.ask(asked))
        assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
        assert [unit["eval"] for unit in found["queueData"]] == [False, True]
        assert [unit["tagsCode"] for unit in found["queueData"]] == [66, 65]
        assert found["subscriptionData"]["subString"] == "A"
        document_of(await desk.ask(admin.QueryConsumeQueue(topic="t", queue_id=0, index=0)))
        for index, count in ((3, 1), (-1, 1), (0, 0), (1 << 62, 1)):
            wrong = admin.QueryConsumeQueue(topic="t", queue_id=0, index=index, count=count)
            assert (await desk.ask(wrong)).code == Code.INVALID_PARAMETER, (index, count)
        unknown = admin.QueryConsumeQueue(topic="t", queue_id=7, index=0)
        assert (await desk.ask(unknown)).remark == "7@t is not exist!"


async def test_a_master_without_slaves_says_so(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        await desk.send("t")
        status = document_of(await desk.ask(admin.GetBrokerHaStatus()))
        assert status["master"] is True
        assert status["haConnectionInfo"] == []
        assert status["masterCommitLogMaxOffset"] == desk.store.commit_log.max_offset
