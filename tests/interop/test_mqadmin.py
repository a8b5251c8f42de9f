"""The real `mqadmin`: its commands against our broker, and what each of them prints."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from aerobee import ConsumeFrom
from aerobee.blocking import AdminClient, Message, Producer, PushConsumer
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.conftest import GetClient

pytestmark = pytest.mark.interop

BROKER = "b1"
CLUSTER = "DefaultCluster"

COMMANDS = """
clusterList | b1 .* 0 .* [\\d.]+:[\\d]+
clusterList -m | b1 +0 +0 +10
updateTopic -b $B -t made -r 4 -w 4 | create topic to $B success
updateTopic -c $C -t ordered -o true | set cluster orderConf. isOrder=true, orderConf=.b1:8.
updateTopicList -b $B -f $topics | submit batch of topic config to $B success
topicList | (?s)made.*|(?s)listed.*
topicList -c | $C +T +G
topicRoute -t T | "readQueueNums":2
topicStatus -t T | b1 +0 +0 +5
topicClusterList -t T | $C
updateTopicPerm -b $B -t ordered -p 4 | update topic perm from 6 to 4
updateSubGroup -b $B -g new-group -r 3 | create subscription group to $B success
updateSubGroup -c $C -g other-group | create subscription group to $B success
updateSubGroupList -b $B -f $groups | submit batch of group config to $B success
getConsumerConfig -g listed-group | retryMaxTimes += +4
consumerProgress -g G | T +b1 +0 +5 +5
consumerProgress | G +1 +V5_3_3 +PUSH +CLUSTERING
consumerConnection -g G | PYTHON +V5_3_3|ConsumeType: CONSUME_PASSIVELY
consumerStatus -g G -i $client | PROP_CONSUMER_START_TIMESTAMP
consumerStatus -g G | #ClientId
producerConnection -g P -t T | PYTHON +V5_3_3
producer -b $B | producer group .P. instance .* language=PYTHON, .*, lastUpdateTimestamp=1\\d{12}
queryMsgById -t T -i $id | Keys: +\\[key0\\]|CONSUMED
queryMsgById -t T -i $id -g G -d $client | consumeResult=CR_SUCCESS
queryMsgByKey -t T -k key3 | T@K@key3
queryMsgByUniqueKey -t T -i $uniq | Keys: +\\[key0\\]
queryMsgByOffset -t T -b b1 -i 0 -o 0 | Queue Offset: +0
queryCq -t T -q 0 -i 0 -b $B -g G | max: 5, min: 0
printMsg -t T | minOffset=0, maxOffset=5
printMsgByQueue -t T -a b1 -i 0 -p true -d true | body0
consumeMessage -t T -b b1 -i 0 -o 0 -c 1 | Consume ok
sendMessage -t made -p hello -k k1 | b1 +\\d +SEND_OK
sendMsgStatus -b b1 -s 128 -c 1 | sendStatus=SEND_OK
checkMsgSendRT -t made -a 2 -s 10 | Avg RT
brokerStatus -b $B | putTps +: [\\d.]+ [\\d.]+ [\\d.]+
brokerStatus -c $C | $B +msgPutTotalTodayNow +: \\d+
brokerConsumeStats -b $B | T +G +b1 +0 +5 +5|Diff Total: 0
statsAll | T +G +0
statsAll -a -t T | #Topic +#Consumer Group
getBrokerConfig -b $B | brokerName += +b1
getBrokerConfig -c $C | Master: $B
skipAccumulatedMessage -g G -t T | b1 +0 +5
resetOffsetByTime -g G -t T -s now | b1 +1 +5
resetOffsetByTime -g G -t T -s 0 -b $B -q 0 -o 2 | reset consumer offset to 2
cloneGroupOffset -s G -d TOOLS_CONSUMER -t T | clone group offset success
setConsumeMode -b $B -t T -g G -m PULL -q 0 | consume mode.PULL.
allocateMQ -t T -i a,b | "queueId":0
updateOrderConf -t T -m put -v b1:2 | update orderConf success
updateOrderConf -t T -m get | orderConf=.b1:2.
updateOrderConf -t T -m delete | delete orderConf success
updateKvConfig -s ns1 -k k -v v | create or update kv config to namespace success
deleteKvConfig -s ns1 -k k | delete kv config from namespace success
wipeWritePerm -b b1 | wipe write perm of broker.b1. .* OK, \\d+
addWritePerm -b b1 | add write perm of broker.b1. .* OK, \\d+
cleanExpiredCQ -b $B | success
cleanUnusedTopic -c $C | success
deleteExpiredCommitLog -b $B | success
exportMetadata -c $C -f $out | metadata.json success
exportConfigs -c $C -f $out | configs.json success
exportMetrics -c $C -f $out | metrics.json success
haStatus -b $B | #SlaveNum\\s+0
deleteSubGroup -b $B -g new-group | delete subscription group .new-group. from broker .$B. success
deleteSubGroup -c $C -g other-group -r true | delete subscription group .other-group. .* success
deleteTopic -c $C -t made | delete topic .made. from cluster .$C. success
"""
"""Words, and what is found in the print; several patterns are parted by a bar."""

NOT_SERVED = {
    "getBrokerEpoch -b b1": 1007,
    "listUser -b $B": 3005,
}


@dataclass(slots=True)
class Cluster:
    """One broker with ten messages of T, consumed by G, whose member is connected."""

    namesrv: str
    names: dict[str, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("mqadmin")
    topics = [{"topicName": "listed", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}]
    (root / "topics.json").write_text(json.dumps(topics))
    groups = [{"groupName": "listed-group", "retryMaxTimes": 4}]
    (root / "groups.json").write_text(json.dumps(groups))
    settings = {"brokerName": BROKER}
    with BrokerProcess(data=root / "data", settings=settings) as broker:
        namesrv = broker.namesrv_address
        with (
            AdminClient(namesrv) as admin,
            Producer(namesrv, group="P") as producer,
            PushConsumer(
                "G",
                namesrv,
                start_from=ConsumeFrom.FIRST,
            ) as consumer,
        ):
            admin.create_topic("T", queues=2)
            queues = sorted(producer.queues("T"))
            sent = [
                producer.send(
                    Message("T", b"body%d" % number, keys=[f"key{number}"]),
                    queue=queues[number % 2],
                )
                for number in range(10)
            ]
            consumer.subscribe("T", handler=lambda messages: None)
            eventually(lambda: consumed(admin), within_s=20, what="no lag")
            [member] = admin.consumers("G").members
            yield Cluster(
                namesrv,
                {
                    "client": member.client_id,
                    "uniq": sent[0].message_id,
                    "id": sent[0].offset_message_id,
                    "topics": str(root / "topics.json"),
                    "groups": str(root / "groups.json"),
                    "out": str(root / "out"),
                    "B": broker.address,
                    "C": CLUSTER,
                },
            )


def consumed(admin: AdminClient) -> bool:
    lag = admin.consumer_lag("G")
    return len(lag.queues) >= 2 and lag.total == 0


def test_every_command_prints_what_it_should(cluster: Cluster, java_client: GetClient) -> None:
    tools = java_client("5.4.0", "JSON")
    wrong = []
    commands = [line.split(" | ", 1) for line in COMMANDS.strip().splitlines()]
    assert len(commands) >= 60
    for words, patterns in commands:
        printed = tools.mqadmin(cluster.namesrv, *filled(words, cluster).split())
        missing = [
            pattern
            for pattern in filled(patterns, cluster).split("|")
            if re.search(pattern, printed) is None
        ]
        if missing or "Exception" in printed:
            wrong.append(f"{words}: {missing}\n{printed}")
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("words", NOT_SERVED)
def test_what_is_not_served_says_so(cluster: Cluster, java_client: GetClient, words: str) -> None:
    tools = java_client("5.4.0", "JSON")
    printed = tools.mqadmin(cluster.namesrv, *filled(words, cluster).split())
    assert f"request type {NOT_SERVED[words]} not supported" in printed


def filled(text: str, cluster: Cluster) -> str:
    """With the names of this cluster in place."""
    for name, value in cluster.names.items():
        text = text.replace(f"${name}", value)
    return text
