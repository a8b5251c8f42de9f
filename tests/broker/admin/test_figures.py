"""What administrators ask of a broker about itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee import __version__
from aerobee.broker.admin import consumption
from aerobee.broker.errors import Refusal
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.admin import (
    GetBrokerConfig,
    GetBrokerConfigResponse,
    GetBrokerRuntimeInfo,
    GetConsumeStats,
    GetTopicStatsInfo,
    QueryTopicConsumeByWho,
    QueryTopicsByConsumer,
    ViewBrokerStatsData,
)
from aerobee.remoting.wire.headers.client import Heartbeat
from tests.broker.desk import Desk, body_of, document_of, open_desk, send_header
from tests.kit.quick_disk import WornDisk

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


pytestmark = pytest.mark.trio


def by_queue_id(table: Mapping[Any, Any]) -> dict[int, Any]:
    """The values of a map whose keys are queues."""
    return {json.loads(queue)["queueId"]: value for queue, value in table.items()}


async def sampled(desk: Desk, seconds: float) -> None:
    """Let the sampler look for a while of virtual time."""
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.sampling.run)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()


async def beat(desk: Desk, **fields: Any) -> None:
    body = {"clientID": "1.2.3.4@7", "consumerDataSet": [], "producerDataSet": [], **fields}
    assert (await desk.ask(Heartbeat(), json.dumps(body).encode())).code == 0


def consumer(group: str, *topics: str) -> dict[str, Any]:
    data = [{"topic": topic, "subString": "*", "subVersion": 1} for topic in topics]
    return {"groupName": group, "subscriptionDataSet": data}


async def test_topic_stats_name_every_queue(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", read_queue_nums=3, write_queue_nums=2)
        for _ in range(4):
            await desk.send("t", queue_id=1)
        stored_ms = desk.store.store_time("t", 1, 3)
        answer = await desk.ask(GetTopicStatsInfo(topic="t"))
        assert body_of(answer).startswith(
            b'{"offsetTable":{{"brokerName":"desk","queueId":0,"topic":"t"}:'
            b'{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0},'
        )
        stats = document_of(answer)
        queues = by_queue_id(stats["offsetTable"])
        assert sorted(queues) == [0, 1, 2]
        assert queues[1] == {"minOffset": 0, "maxOffset": 4, "lastUpdateTimestamp": stored_ms}
        assert stats["topicPutTps"] == 0.0
        assert (await desk.ask(GetTopicStatsInfo(topic="nowhere"))).code == Code.TOPIC_NOT_EXIST


async def test_consume_stats_say_how_far_a_group_is(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", read_queue_nums=2, write_queue_nums=2)
        desk.topic("u", read_queue_nums=1, write_queue_nums=1)
        for _ in range(3):
            await desk.send("t")
        stored_ms = desk.store.store_time("t", 0, 1)
        desk.offsets.commit("g", "t", 0, 2, 0)
        desk.offsets.commit("g", "u", 0, 0, 0)
        stats = document_of(await desk.ask(GetConsumeStats(consumer_group="g")))
        assert len(stats["offsetTable"]) == 3
        of_t = document_of(await desk.ask(GetConsumeStats(consumer_group="g", topic="t")))
        assert by_queue_id(of_t["offsetTable"]) == {
            0: {
                "brokerOffset": 3,
                "consumerOffset": 2,
                "pullOffset": 2,
                "lastTimestamp": stored_ms,
            },
            1: {"brokerOffset": 0, "consumerOffset": 0, "pullOffset": 0, "lastTimestamp": 0},
        }


async def test_a_time_that_the_disk_cannot_read_keeps_back_no_other_figure(tmp_path: Path) -> None:
    disk = WornDisk()
    async with open_desk(tmp_path, disk) as desk:
        desk.topic("t", read_queue_nums=1, write_queue_nums=1)
        await desk.send("t")
        stored_ms = desk.store.store_time("t", 0, 0)
        desk.offsets.commit("g", "t", 0, 1, 0)
        assert await desk.saver.save_all()
    async with open_desk(tmp_path, disk) as desk:
        disk.bad = stored_ms.to_bytes(8)
        stats = document_of(await desk.ask(GetConsumeStats(consumer_group="g")))
        assert by_queue_id(stats["offsetTable"]) == {
            0: {"brokerOffset": 1, "consumerOffset": 1, "pullOffset": 1, "lastTimestamp": 0}
        }
        table = document_of(await desk.ask(GetBrokerRuntimeInfo()))["table"]
        assert int(table["commitLogMaxOffset"]) > 0


async def test_consume_stats_have_the_lag_of_the_last_hour_if_that_is_asked_for(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", read_queue_nums=1, write_queue_nums=1)
        desk.groups.configs["g"] = SubscriptionGroupConfig(group_name="g")
        for _ in range(3):
            await desk.send("t")
        desk.offsets.commit("g", "t", 0, 2, 0)
        await desk.broker.metrics.lags.sample()
        at_ms = desk.clock.now_ms()
        asked = GetConsumeStats(consumer_group="g", history=True)
        assert document_of(await desk.ask(asked))["lagHistory"] == {"t": [[at_ms, 1]]}
        assert "lagHistory" not in document_of(await desk.ask(GetConsumeStats(consumer_group="g")))


async def test_a_topic_that_is_named_often_is_looked_at_once(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", read_queue_nums=2, write_queue_nums=2)
        stats = document_of(
            await desk.ask(GetConsumeStats(consumer_group="g", topic_list="t;" * 100_000))
        )
        assert len(stats["offsetTable"]) == 2


async def test_consume_stats_of_more_queues_than_one_answer_holds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "QUEUES_MAX", 5)
    async with open_desk(tmp_path) as desk:
        for name in ("t", "u"):
            desk.topic(name, read_queue_nums=3, write_queue_nums=3)
        with pytest.raises(Refusal, match="more than 5 queues are asked for: ask topic by topic"):
            await desk.ask(GetConsumeStats(consumer_group="g", topic_list="t;u"))


async def test_consume_stats_leave_out_what_the_group_reads_no_more_unless_it_is_named(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        for name in ("t", "u"):
            desk.topic(name, read_queue_nums=1, write_queue_nums=1)
            desk.offsets.commit("g", name, 0, 1, 0)
        await beat(desk, consumerDataSet=[consumer("g", "t")])

        async def topics(topic: str | None = None, topic_list: str | None = None) -> list[str]:
            asked = GetConsumeStats(consumer_group="g", topic=topic, topic_list=topic_list)
            stats = document_of(await desk.ask(asked))
            return [json.loads(queue)["topic"] for queue in stats["offsetTable"]]

        assert await topics() == ["t"]
        assert await topics(topic="u") == []
        assert await topics(topic_list="u;t;") == ["u", "t"]
        desk.compensation.note("g", "u", 0)
        assert await topics() == ["t", "u"], "its pulls say so"
        assert document_of(await desk.ask(GetConsumeStats(consumer_group="nobody"))) == {
            "consumeTps": 0.0,
            "offsetTable": {},
        }


async def test_who_consumes_a_topic_is_connected_or_has_an_offset(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await beat(desk, consumerDataSet=[consumer("connected", "t", "other")])
        desk.offsets.commit("was-here", "t", 0, 1, 0)
        desk.offsets.commit("elsewhere", "other", 0, 1, 0)
        desk.compensation.note("looks", "t", 0)
        asked = QueryTopicConsumeByWho(topic="t")
        assert body_of(await desk.ask(asked)) == b'{"groupList":["connected","was-here"]}'
        assert document_of(await desk.ask(QueryTopicConsumeByWho(topic="x"))) == {"groupList": []}


async def test_a_groups_topics_are_those_that_it_has_offsets_of(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        for topic in ("t", "%RETRY%g", "a"):
            desk.offsets.commit("g", topic, 0, 1, 0)
        answer = document_of(await desk.ask(QueryTopicsByConsumer(group="g")))
        assert answer["topicList"] == ["%RETRY%g", "a", "t"]
        assert answer["brokerAddr"] == desk.address
        assert document_of(await desk.ask(QueryTopicsByConsumer(group="x")))["topicList"] == []


async def test_figures_over_time_are_those_of_the_counters(
    tmp_path: Path, autojump_clock: Any
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        for _ in range(20):
            await desk.send("t", b"x" * 100)
        await desk.pull("t")
        await sampled(desk, 10.5)
        put = document_of(
            await desk.ask(ViewBrokerStatsData(stats_name="TOPIC_PUT_NUMS", stats_key="t"))
        )
        assert put["statsMinute"] == {"sum": 20, "tps": 2.0, "avgpt": 1.0}
        assert put["statsDay"] == {"sum": 0, "tps": 0.0, "avgpt": 0.0}
        size = document_of(
            await desk.ask(ViewBrokerStatsData(stats_name="TOPIC_PUT_SIZE", stats_key="t"))
        )
        assert size["statsMinute"]["sum"] == desk.stats.topic_in("t").bytes_in
        assert size["statsMinute"]["avgpt"] > 100
        got = document_of(
            await desk.ask(ViewBrokerStatsData(stats_name="GROUP_GET_NUMS", stats_key="t@g"))
        )
        assert got["statsMinute"]["sum"] == 20
        cluster = ViewBrokerStatsData(stats_name="BROKER_PUT_NUMS", stats_key="DefaultCluster")
        assert document_of(await desk.ask(cluster))["statsMinute"]["sum"] == 20
        for name, key in (("TOPIC_PUT_NUMS", "u"), ("NO_SUCH_ITEM", "t")):
            answer = await desk.ask(ViewBrokerStatsData(stats_name=name, stats_key=key))
            assert (answer.code, answer.remark) == (1, f"The stats <{name}> <{key}> not exist")


async def test_figures_over_time_are_there_from_the_first_message_on(
    tmp_path: Path, autojump_clock: Any
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        asked = {
            "TOPIC_PUT_NUMS": "t",
            "TOPIC_PUT_SIZE": "t",
            "GROUP_GET_NUMS": "t@g",
            "BROKER_PUT_NUMS": "DefaultCluster",
            "BROKER_GET_NUMS": "DefaultCluster",
        }
        headers = [
            ViewBrokerStatsData(stats_name=name, stats_key=key) for name, key in asked.items()
        ]
        for header in headers:
            assert (await desk.ask(header)).code == 1, header
        await desk.send("t", properties="DELAY\x010\x02")
        await desk.pull("t")
        for header in headers:
            found = document_of(await desk.ask(header))
            assert found["statsMinute"] == {"sum": 0, "tps": 0.0, "avgpt": 0.0}, header
        back = ViewBrokerStatsData(stats_name="SNDBCK_PUT_NUMS", stats_key="t@g")
        assert (await desk.ask(back)).code == 1


async def test_runtime_info_is_text_under_every_name(tmp_path: Path, autojump_clock: Any) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        for _ in range(30):
            assert (await desk.send("t")).code == Code.SUCCESS
        await desk.pull("t")
        await desk.pull("t", 30)
        await sampled(desk, 10.5)
        table = document_of(await desk.ask(GetBrokerRuntimeInfo()))["table"]
        assert all(isinstance(value, str) for value in table.values())
        assert set(KEYS.split()) <= set(table)
        assert table["putTps"] == "3.0 3.0 3.0"
        assert table["getTotalTps"] == "0.2 0.2 0.2"
        assert table["getTransferredTps"] == "3.0 3.0 3.0"
        assert table["msgPutTotalTodayNow"] == table["putMessageTimesTotal"] == "30"
        assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 10 seconds ]"
        assert (table["aerobeeVersion"], table["aerobeeUptimeSeconds"]) == (__version__, "10")
        assert table["sendThreadPoolQueueCapacity"] == "10000"
        assert int(table["earliestMessageTimeStamp"]) == desk.store.store_time("t", 0, 0)
        assert int(table["commitLogMaxOffset"]) == desk.store.commit_log.max_offset


async def test_puts_of_slow_rounds_and_timers_have_figures(
    tmp_path: Path, autojump_clock: Any
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        for _ in range(98):
            await desk.send("t")
        later = "TIMER_DELAY_SEC\x01600\x02"
        for _ in range(2):
            desk.begin(send_header("t", properties=later), b"x")
        desk.stats.slow_puts.add(0.030)
        desk.stats.slow_puts.add(12.0)
        await sampled(desk, 60.5)
        table = document_of(await desk.ask(GetBrokerRuntimeInfo()))["table"]
        assert table["putMessageDistributeTime"].startswith("[<=0ms]:98 [0~10ms]:0 [10~50ms]:1 ")
        assert table["putMessageDistributeTime"].endswith("[5~10s]:0 [10s~]:1 ")
        assert table["putMessageEntireTimeMax"] == "12000"
        assert table["timerOffsetBehind"] == "2"
        assert (table["putLatency99"], table["putLatency999"]) == ("50.0", "10000.0")


async def test_settings_are_told_as_properties_with_a_version_and_without_secrets(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        answer = await desk.ask(GetBrokerConfig())
        lines = body_of(answer).decode().splitlines()
        assert f"brokerName={desk.config.broker.broker_name}" in lines
        assert lines == sorted(lines)
        assert isinstance(answer.header, GetBrokerConfigResponse)
        assert json.loads(answer.header.version)["counter"] == 0


async def test_pops_and_connections_have_figures_over_time(
    tmp_path: Path, autojump_clock: Any
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        for group in ("g", "h"):
            desk.groups.require(group, 0)
        pop = desk.stats.pop
        for status in ("PUT_OK", "UNKNOWN_ERROR"):
            pop.add(pop.revive_in, ("t", "g", "ACK", status))
        pop.add(pop.revive_in, ("t", "h", "ACK", "PUT_OK"))
        pop.add(pop.revive_in, ("t", "g", "CK", "PUT_OK"))
        desk.reactor.stats.connections_opened = 5
        await sampled(desk, 10.5)
        expected = {
            ("GROUP_ACK_NUMS", "t@g"): 2,
            ("GROUP_CK_NUMS", "t@g"): 1,
            ("BROKER_ACK_NUMS", "DefaultCluster"): 3,
            ("BROKER_CK_NUMS", "DefaultCluster"): 1,
            ("CHANNEL_ACTIVITY", "CONNECT"): 5,
        }
        for (name, key), count in expected.items():
            got = document_of(await desk.ask(ViewBrokerStatsData(stats_name=name, stats_key=key)))
            assert got["statsMinute"]["sum"] == count, name


KEYS = """
EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity ackThreadPoolQueueCapacity
ackThreadPoolQueueHeadWaitTimeMills ackThreadPoolQueueSize bootTimestamp brokerActive brokerVersion
brokerVersionDesc commitLogDirCapacity commitLogDiskRatio commitLogMaxOffset commitLogMinOffset
consumeQueueDiskRatio dispatchBehindBytes dispatchMaxBuffer earliestMessageTimeStamp getFoundTps
getMessageEntireTimeMax getMissTps getTotalTps getTransferedTps getTransferredTps
litePullThreadPoolQueueCapacity litePullThreadPoolQueueHeadWaitTimeMills litePullThreadPoolQueueSize
msgGetTotalTodayMorning msgGetTotalTodayNow msgGetTotalYesterdayMorning msgPutTotalTodayMorning
msgPutTotalTodayNow msgPutTotalYesterdayMorning pageCacheLockTimeMills pullThreadPoolQueueCapacity
pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize putLatency99 putLatency999
putMessageAverageSize putMessageDistributeTime putMessageEntireTimeMax putMessageFailedTimes
putMessageSizeTotal putMessageTimesTotal putTps queryThreadPoolQueueCapacity
queryThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize remainHowManyDataToFlush
remainTransientStoreBufferNumbs runtime sendThreadPoolQueueCapacity
sendThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize startAcceptSendRequestTimeStamp
timerCongestNum timerDequeueTps timerEnqueueTps timerOffsetBehind timerReadBehind
"""
