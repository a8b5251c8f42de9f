"""The commands of the real `mqadmin`, what they are run against, and the shape of what they print.

    python -m tests.interop.mqadmin_sweep

runs all of them against the Java broker 5.5.0 and writes `mqadmin_shapes.json`; to be run again
when a command is added, or for a new RocketMQ version. It takes about a minute.
"""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aerobee import ConsumeFrom
from aerobee.blocking import AdminClient, Message, Producer, PushConsumer
from tests.kit.java import toolkit
from tests.kit.java_driver import JavaClient
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.kit.java import Toolkit

BROKER: Final = "b1"
CLUSTER: Final = "DefaultCluster"
SETTINGS: Final[dict[str, object]] = {"brokerName": BROKER, "traceTopicEnable": "true"}
SHAPES: Final = Path(__file__).with_name("mqadmin_shapes.json")
"""Command → the lines that the Java broker makes of it, without their values."""

COMMANDS: Final = """
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
queryMsgTraceById -i $uniq | Pub +P +[\\d:. -]+ +\\d+ms +success
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
updateBrokerConfig -b $B -k fileReservedTime -v 47 | update broker config success, $B
getBrokerConfig  -b $B | fileReservedTime += +47
updateBrokerConfig -c $C -k brokerPermission -v 4 | update broker config success, $B
topicRoute  -t T | "perm":4
updateBrokerConfig -b $B -k brokerPermission -v 6 | update broker config success, $B
topicRoute   -t T | "perm":6
getNamesrvConfig | enableTopicList += +true|listenPort += +\\d+
updateNamesrvConfig -k enableTopicList -v false | success!
getNamesrvConfig  | enableTopicList += +false
updateNamesrvConfig -k enableTopicList -v true | success!
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
resetMasterFlushOffset -b $B -o 0 | reset master flush offset to 0 success
deleteSubGroup -b $B -g new-group | delete subscription group .new-group. from broker .$B. success
deleteSubGroup -c $C -g other-group -r true | delete subscription group .other-group. .* success
deleteTopic -c $C -t made | delete topic .made. from cluster .$C. success
"""
"""Words, and what is found in the print; several patterns are parted by a bar."""

USERS: Final[dict[str, object]] = {
    "brokerName": BROKER,
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"root","secretKey":"root-secret"}',
}
"""The settings of a broker with users; its tools are `root`."""
JAVA_PROVIDERS: Final = {
    f"auth{kind}Provider": f"org.apache.rocketmq.auth.auth{kind}.provider.DefaultAuth{kind}Provider"
    for kind in ("entication", "orization")
} | {
    f"auth{kind}MetadataProvider": "org.apache.rocketmq.auth.auth"
    f"{kind}.provider.LocalAuth{kind}MetadataProvider"
    for kind in ("entication", "orization")
}
"""What the Java broker needs besides."""

USER_COMMANDS: Final = """
createUser -b $B -u alice -p alice-secret | create user to $B success
createUser -c $C -u bob -p bob-secret -t Super | create user to $B success
updateUser -b $B -u bob -t Normal | update user to $B success
updateUser -c $C -u bob -s disable | update user to $B success
getUser -b $B -u bob | bob +\\S+ +Normal +disable
getUser -c $C -u bob | bob +\\S+ +Normal +disable
listUser -b $B | (?s)alice.*bob.*root +\\S+ +Super +enable
listUser -c $C -f ali | alice +\\S+ +Normal +enable
createAcl -b $B -s User:alice -r Topic:orders*,Group:g -a Pub,Sub -d Allow -i 10.0.0.0/8 | success
createAcl -c $C -s User:bob -r Topic:x -a All -d Deny | create acl to $B success
updateAcl -b $B -s User:alice -r Topic:orders* -a Sub -d Deny | update acl to $B success
getAcl -b $B -s User:alice | Topic:orders. +.Sub. +null +Deny|Group:g +.Pub, Sub. +.10[.]0
listAcl -b $B | (?s)User:alice.*User:bob
listAcl -c $C -s bob | Custom +Topic:x +.All. +null +Deny
copyUser -f $B -t $B | copy user of root from $B to $B success
copyUser -f $B -t $B -u alice | copy user of alice from $B to $B success
copyAcl -f $B -t $B | copy acl of User:bob from $B to $B success
copyAcl -f $B -t $B -s User:alice | copy acl of User:alice from $B to $B success
deleteAcl -b $B -s User:alice -r Group:g | delete acl to $B success
deleteAcl -c $C -s User:bob | delete acl to $B success
getAcl -c $C -s User:bob | ^\\s*$
getAcl  -b $B -s User:alice | Topic:orders. +.Sub.
deleteUser -b $B -u alice | delete user to $B success
deleteUser -c $C -u bob | delete user to $B success
listUser  -b $B | root +\\S+ +Super +enable
"""
"""The same for a broker with users."""

SETTING: Final = re.compile(r"[\w.]+ += .*")
"""A line of `getBrokerConfig`: each kind of broker has keys of its own."""
VALUES: Final = (
    (re.compile(r"/\w+/\S+"), "PATH"),
    (re.compile(r"\d+\.\d+\.\d+\.\d+(@[\w#-]+)?(:\d+)?"), "ADDRESS"),
    (re.compile(r"\bV\d_\d+_\d+\b"), "VERSION"),
    (re.compile(r"\b(?=\d*[A-F])[0-9A-F]{16,}\b"), "ID"),
    (re.compile(r"-?\d+(\.\d+)?(E-?\d+)?"), "0"),
    (re.compile(r"\b0 [KM]iB\b"), "0 B"),
)
"""What differs from run to run, and what stands for it in a shape."""


@dataclass(slots=True)
class Scene:
    """A broker with ten messages of T, consumed by G, whose member is connected."""

    namesrv: str
    names: Mapping[str, str]

    def fill(self, text: str) -> str:
        """With the names of this scene in place."""
        for name, value in self.names.items():
            text = text.replace(f"${name}", value)
        return text

    def run(self, tools: JavaClient, words: str) -> str:
        """What a command prints."""
        return tools.mqadmin(self.namesrv, *self.fill(words).split())


@contextmanager
def play(namesrv: str, broker: str, root: Path) -> Iterator[Scene]:
    """The scene on a broker; files of the commands lie in `root`."""
    topics = [{"topicName": "listed", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}]
    (root / "topics.json").write_text(json.dumps(topics))
    groups = [{"groupName": "listed-group", "retryMaxTimes": 4}]
    (root / "groups.json").write_text(json.dumps(groups))
    with (
        AdminClient(namesrv) as admin,
        Producer(namesrv, group="P", trace=True) as producer,
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
        eventually(lambda: _consumed(admin), within_s=20, what="no lag")
        eventually(lambda: _traced(admin, sent[0].message_id), within_s=20, what="a trace")
        # The index is written behind the answers, and a trace may lie before the last messages.
        eventually(lambda: admin.query_messages("T", "key9"), within_s=20, what="the last key")
        [member] = admin.consumers("G").members
        yield Scene(
            namesrv,
            {
                "client": member.client_id,
                "uniq": sent[0].message_id,
                "id": sent[0].offset_message_id,
                "topics": str(root / "topics.json"),
                "groups": str(root / "groups.json"),
                "out": str(root / "out"),
                "B": broker,
                "C": CLUSTER,
            },
        )


def guarded(namesrv: str, broker: str) -> Scene:
    """The scene of a broker with users: its super user, and nobody else."""
    return Scene(namesrv, {"B": broker, "C": CLUSTER})


def signing_tools(kit: Toolkit, home: Path) -> JavaClient:
    """Tools that sign as `root`; to a broker without users that is the same as no signature."""
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text("accessKey: root\nsecretKey: root-secret\n")
    return JavaClient(kit, home, options=[f"-Drocketmq.home.dir={home}"])


def _consumed(admin: AdminClient) -> bool:
    lag = admin.consumer_lag("G")
    return len(lag.queues) >= 2 and lag.total == 0


def _traced(admin: AdminClient, message_id: str) -> bool:
    return bool(admin.query_messages("RMQ_SYS_TRACE_TOPIC", message_id))


def shape(printed: str) -> list[str]:
    """The different lines of a print, in order, with its values taken out."""
    lines = set()
    for line in printed.splitlines():
        if not line.strip() or SETTING.fullmatch(line):
            continue
        for value, word in VALUES:
            line = value.sub(word, line)
        lines.add(" ".join(line.split()))
    return sorted(lines)


def main() -> None:
    """Write down what the Java broker makes of each command."""
    kit = toolkit("5.5.0")
    shapes: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as home:
        root = Path(home)
        tools = signing_tools(kit, root / "tools")
        # Without the wheel it cannot delete a topic.
        settings = SETTINGS | {"timerWheelEnable": "true"}
        with (
            java(kit, root / "open", settings) as (names, broker),
            play(names, broker, root) as scene,
        ):
            shapes |= shapes_of(scene, tools, COMMANDS)
        with java(kit, root / "guarded", USERS | JAVA_PROVIDERS) as (names, broker):
            shapes |= shapes_of(guarded(names, broker), tools, USER_COMMANDS)
        tools.child.kill()
    SHAPES.write_text(json.dumps(shapes, indent=1) + "\n")


@contextmanager
def java(kit: Toolkit, root: Path, settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """The addresses of a Java name server and of its broker."""
    names = JavaNamesrv(kit, root / "names")
    broker = JavaBroker(
        toolkit=kit,
        data=root / "data",
        home=root / "broker",
        namesrv_address=names.address,
        settings={"authConfigPath": root / "auth", **settings},
    )
    with broker:
        yield names.address, broker.address
    names.stop()


def shapes_of(scene: Scene, tools: JavaClient, commands: str) -> dict[str, list[str]]:
    """The shapes of the prints of these commands."""
    words = [line.split(" | ", 1)[0] for line in commands.strip().splitlines()]
    return {one: shape(scene.run(tools, one)) for one in words}


if __name__ == "__main__":
    main()
