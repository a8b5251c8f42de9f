"""What exporters and consoles ask of a broker, with the classes they ask it with.

rocketmq-exporter and rocketmq-dashboard are in no package registry; their requests are made here by
MQAdminExt of the versions that they are built on, and the runtime table is read as the exporter
reads it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from aerobee.blocking import AdminClient
from aerobee.remoting.wire.relaxed_json import decode
from tests.kit.broker_process import BrokerProcess
from tests.kit.java_driver import JavaError
from tests.kit.raw_client import RawConnection
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.conftest import GetClient
    from tests.kit.java_driver import JavaClient, Sent

pytestmark = pytest.mark.interop

SET_MESSAGE_REQUEST_MODE = 401
SENT: Final = {"T": 20, "L": 12, "D": 3, "P": 8}
GROUP_OF: Final = {"T": "G", "L": "LAG", "D": "DEAD", "P": "POP"}
DEAD_LETTERS: Final = "%DLQ%DEAD"
NOT_SAMPLED_YET, TOPIC_NOT_EXIST, GROUP_NOT_EXIST = 1, 17, 26

WHOLE: Final = """
bootTimestamp brokerVersion commitLogMaxOffset commitLogMinOffset dispatchBehindBytes
dispatchMaxBuffer earliestMessageTimeStamp getMessageEntireTimeMax msgGetTotalTodayMorning
msgGetTotalTodayNow msgGetTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
msgPutTotalYesterdayMorning pageCacheLockTimeMills pullThreadPoolQueueCapacity
pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize putMessageEntireTimeMax
putMessageSizeTotal putMessageTimesTotal queryThreadPoolQueueCapacity
queryThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize remainTransientStoreBufferNumbs
sendThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize
startAcceptSendRequestTimeStamp
"""
"""Keys of the runtime table that an exporter takes for whole numbers; it has none without each."""
FRACTIONS: Final = "commitLogDiskRatio consumeQueueDiskRatio putMessageAverageSize putLatency99"
RATES: Final = "putTps getFoundTps getMissTps getTotalTps getTransferredTps getTransferedTps"
PUT_CLASSES: Final = 13
EXPORTED: Final = """
autoCreateSubscriptionGroup autoCreateTopicEnable brokerClusterName brokerId brokerName brokerRole
fileReservedTime filterServerNums flushDiskType maxMessageSize messageDelayLevel msgTraceTopicName
slaveReadEnable traceOn traceTopicEnable useTLS
"""
"""Settings that exportConfigs of 4.9.7 takes for given."""


@dataclass(slots=True)
class Scene:
    """A broker with a group that is done, one that lags, one that gives up, and one that pops."""

    broker: str
    namesrv: str
    sent: dict[str, list[Sent]]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, java_client: GetClient) -> Iterator[Scene]:
    settings = {
        "brokerName": "broker-a",
        "messageDelayLevel": "1s 1s 1s 1s 1s",
    }
    clients = java_client("5.5.0", "JSON")
    with BrokerProcess(data=tmp_path_factory.mktemp("seen") / "data", settings=settings) as broker:
        names = broker.namesrv_address
        with AdminClient(names) as admin:
            # It comes with the first heartbeat, and who asked just before asks again in 20 s.
            admin.create_topic("%RETRY%DEAD", queues=1)
        clients.producer("p", names)
        sent = {
            topic: clients.send("p", topic, [f"body {n}" for n in range(count)], keys="k")
            for topic, count in SENT.items()
        }
        mode = {"consumerGroup": "POP", "mode": "POP", "popShareQueueNum": 0, "topic": "P"}
        clients.consumer("T", names, "T", group="G")
        clients.consumer("L", names, "L", group="LAG", orderly=1, failing=99_999)
        clients.consumer("D", names, "D", group="DEAD", tries=1, failing=99)
        clients.consumer("P", names, "P", group="POP", pop=1)
        with RawConnection(broker.address) as connection:
            assert (
                connection.call(SET_MESSAGE_REQUEST_MODE, {}, json.dumps(mode).encode()).code == 0
            )
        clients.received("T", SENT["T"])
        clients.received("D", 2 * SENT["D"])
        yield Scene(broker.address, names, sent)
        clients.call("clear")


@dataclass(slots=True)
class Asking:
    """One who asks through MQAdminExt."""

    client: JavaClient
    scene: Scene

    def __call__(self, method: str, *given: object) -> Any:
        text = self.client.ask(self.scene.namesrv, method, *given)
        return decode(text.encode()) if text else None

    def lag(self, group: str, topic: str) -> int:
        """As an exporter adds it up."""
        queues = self("examineConsumeStats", group, topic)["offsetTable"].values()
        return sum(queue["brokerOffset"] - queue["consumerOffset"] for queue in queues)

    def ends(self, topic: str) -> int:
        """How many messages a topic has got."""
        queues = self("examineTopicStats", topic)["offsetTable"].values()
        return sum(queue["maxOffset"] for queue in queues)

    def member(self, group: str) -> str:
        """The client id of a group's only member."""
        [member] = self("examineConsumerConnectionInfo", group)["connectionSet"]
        return str(member["clientId"])


@pytest.fixture
def exporter(scene: Scene, java_client: GetClient) -> Asking:
    """rocketmq-exporter asks with the classes of 4.9."""
    return Asking(java_client("4.9.7", "JSON"), scene)


@pytest.fixture
def console(scene: Scene, java_client: GetClient) -> Asking:
    """rocketmq-dashboard asks with those of 5.x."""
    return Asking(java_client("5.5.0", "JSON"), scene)


def test_an_exporter_counts_messages_lags_members_and_dead_letters(
    scene: Scene, exporter: Asking, java_client: GetClient
) -> None:
    clients = java_client("5.5.0", "JSON")
    expected = {"G": 0, "LAG": SENT["L"], "DEAD": 0, "POP": 0}

    def lags() -> dict[str, int]:
        for name in ("T", "D"):
            clients.commit(name)
        return {group: exporter.lag(group, topic) for topic, group in GROUP_OF.items()}

    eventually(lambda: lags() == expected, within_s=20, what=f"lags of {expected}")
    eventually(lambda: exporter.ends(DEAD_LETTERS) == SENT["D"], within_s=20, what="dead letters")
    # What an exporter does to tell how old a message is must not make it a consumer.
    look = ("queryMsgByOffset", "-t", "T", "-b", "broker-a", "-i", "0", "-o", "0")
    clients.mqadmin(scene.namesrv, *look)
    topics = exporter("fetchAllTopicList")["topicList"]
    assert {*SENT, DEAD_LETTERS, *(f"%RETRY%{group}" for group in expected)} <= set(topics)
    for topic, group in GROUP_OF.items():
        assert exporter.ends(topic) == SENT[topic]
        assert exporter("queryTopicConsumeByWho", topic)["groupList"] == [group]
        running = exporter("getConsumerRunningInfo", group, exporter.member(group), "false")
        assert topic in running["statusTable"]
    producers = exporter("getAllProducerInfo", scene.broker)["data"]
    assert [producer["language"] for producer in producers["p-group"]] == ["JAVA"]


def test_an_exporter_has_rates_of_each_kind(scene: Scene, exporter: Asking) -> None:
    wanted = {
        ("TOPIC_PUT_NUMS", "T"): SENT["T"],
        ("GROUP_GET_NUMS", "T@G"): SENT["T"],
        ("GROUP_GET_NUMS", "P@POP"): SENT["P"],
        # Once for a retry and once for the dead letter.
        ("SNDBCK_PUT_NUMS", "D@DEAD"): 2 * SENT["D"],
        ("TOPIC_PUT_SIZE", "T"): None,
        ("GROUP_GET_SIZE", "T@G"): None,
        ("BROKER_PUT_NUMS", "DefaultCluster"): None,
        ("BROKER_GET_NUMS", "DefaultCluster"): None,
    }

    def wrong() -> dict[tuple[str, str], object]:
        found: dict[tuple[str, str], object] = {}
        for (name, key), count in wanted.items():
            try:
                seen = exporter("viewBrokerStatsData", scene.broker, name, key)["statsMinute"]
            except JavaError as error:
                # An exporter knows this code and goes on.
                if error.code != NOT_SAMPLED_YET:
                    raise
                seen = {"sum": 0}
            if seen["sum"] != count if count else seen["sum"] <= 0:
                found[name, key] = seen
        return found

    # Rates are sampled every ten seconds.
    try:
        eventually(lambda: not wrong(), within_s=15, what="the sums of a minute", every_s=0.5)
    except AssertionError as error:
        error.add_note(f"wrong: {wrong()}")
        raise


def test_an_exporter_can_read_the_whole_runtime_table(scene: Scene, exporter: Asking) -> None:
    table: dict[str, str] = exporter("fetchBrokerRuntimeStats", scene.broker)["table"]
    whole = {key: int(table[key]) for key in WHOLE.split()}
    assert whole["msgPutTotalTodayNow"] >= sum(SENT.values())
    assert whole["putMessageTimesTotal"] >= sum(SENT.values())
    assert 0 < whole["bootTimestamp"] <= time.time() * 1000
    assert all(float(table[key]) >= 0 for key in FRACTIONS.split())
    for key in RATES.split():
        assert len([float(rate) for rate in table[key].split(" ")]) == 3
    total, free = table["commitLogDirCapacity"].split(" ")[2:4], table["commitLogDirCapacity"]
    assert float(total[0]) > 0
    assert total[1].removesuffix(",") in {"MiB", "GiB", "TiB"}
    assert float(free.split(" ")[6]) > 0
    assert float(table["remainHowManyDataToFlush"].split(" ")[0]) >= 0
    classes = table["putMessageDistributeTime"].strip().split(" ")
    counted = Counter(int(part.split(":")[1]) >= 0 for part in classes)
    assert counted == {True: PUT_CLASSES}
    delivered, end = table["scheduleMessageOffset_3"].split(",")
    assert 0 <= int(delivered) <= int(end)


def test_tools_of_4_9_find_the_settings_that_they_export(scene: Scene, exporter: Asking) -> None:
    told = exporter("getBrokerConfig", scene.broker)
    assert set(EXPORTED.split()) <= set(told)


def test_a_console_makes_shows_and_removes_topics_and_groups(scene: Scene, console: Asking) -> None:
    brokers = console("examineBrokerClusterInfo")["brokerAddrTable"]
    assert brokers["broker-a"]["brokerAddrs"] == {"0": scene.broker}
    for kind in ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY"):
        topic = f"made-{kind}"
        config = {"topicName": topic, "attributes": {"+message.type": kind}, "perm": 6}
        console("createAndUpdateTopicConfig", scene.broker, json.dumps(config))
        seen = console("examineTopicConfig", scene.broker, topic)
        assert seen["attributes"] == {"message.type": kind}
        assert topic in console("getAllTopicConfig", scene.broker, 5_000)["topicConfigTable"]
        console("deleteTopicInBroker", scene.broker, topic)
        console("deleteTopicInNameServer", scene.namesrv, topic)
        assert topic not in console("fetchAllTopicList")["topicList"]
    group = {"groupName": "made", "retryMaxTimes": 3}
    console("createAndUpdateSubscriptionGroupConfig", scene.broker, json.dumps(group))
    groups = console("getAllSubscriptionGroup", scene.broker, 5_000)["subscriptionGroupTable"]
    # A console without any group shows an error; the built-in ones are always there.
    assert {"made", "TOOLS_CONSUMER", "CID_ONSAPI_PULL"} <= set(groups)
    offline = console("resetOffsetByTimestamp", "T", "made", 0, "true")
    assert set(offline.values()) == {0}
    console("deleteSubscriptionGroup", scene.broker, "made", "true")
    for method, *given, code in (
        ("examineTopicStats", "nowhere", TOPIC_NOT_EXIST),
        ("resetOffsetByTimestamp", "T", "made", 0, "true", GROUP_NOT_EXIST),
    ):
        with pytest.raises(JavaError) as error:
            console(str(method), *given)
        assert error.value.code == code


def test_a_console_finds_messages_and_dead_letters(scene: Scene, console: Asking) -> None:
    now_ms = int(time.time() * 1000)
    sent = scene.sent["T"][0]
    found = console("queryMessage", "T", "k", 64, 0, now_ms)["messageList"]
    assert len(found) == SENT["T"]
    assert console("viewMessage", "T", sent.msg_id)["queueOffset"] == sent.queue_offset
    queue = json.dumps({"topic": "T", "brokerName": "broker-a", "queueId": sent.queue_id})
    assert console("searchOffset", queue, 0) == 0
    # Not a quarter of them: a client goes on to the next queue where a busy broker refuses it.
    assert console("searchOffset", queue, now_ms) == console("maxOffset", queue) > sent.queue_offset
    direct = console("consumeMessageDirectly", "G", console.member("G"), "T", sent.msg_id)
    assert direct["consumeResult"] == "CR_SUCCESS"
    dead = console("queryMessage", DEAD_LETTERS, "k", 64, 0, now_ms + 60_000)["messageList"]
    bodies = {bytes(message["body"]).decode() for message in dead}
    assert bodies == {f"body {n}" for n in range(SENT["D"])}
    again = (DEAD_LETTERS, dead[0]["msgId"])
    assert console("viewMessage", *again)["topic"] == DEAD_LETTERS
    refused = console("consumeMessageDirectly", "DEAD", console.member("DEAD"), *again)
    assert refused["consumeResult"] == "CR_LATER"


def test_a_console_takes_a_running_group_back(scene: Scene, console: Asking) -> None:
    moved = console("resetOffsetByTimestamp", "T", "G", 0, "true")
    assert sorted(moved.values()) == [0] * 4
    skipped = console("resetOffsetByTimestamp", "L", "LAG", -1, "true")
    assert sum(skipped.values()) == SENT["L"]
