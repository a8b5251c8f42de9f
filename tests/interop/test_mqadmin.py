"""The real `mqadmin`: its commands against our broker, and what each of them prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.interop.mqadmin_sweep import (
    COMMANDS,
    SETTINGS,
    SHAPES,
    USER_COMMANDS,
    USERS,
    Scene,
    guarded,
    play,
    shape,
    signing_tools,
)
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import toolkit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.java_driver import JavaClient

pytestmark = pytest.mark.interop

DIFFERENT: Final = {
    "": r".*RMQ_SYS_ROCKSDB_TRANS_(OP_)?HALF_TOPIC.*",
    "brokerStatus": (
        r"(ADDRESS )?(aerobee\w+|brokerVersion|(get|put)\w*Tps|putMessageDistributeTime) : .*"
    ),
    "getUser": r"bob \S+ Normal disable",
    "listUser": r"\w+ \S+ (Normal|Super) enable|bob \S+ Normal disable",
    "queryCq": r"ConsumeQueueData.*|Filter data:|null",
    "statsAll -a -t T": r"T G .*",
}
"""Command → lines that only one of the brokers has. `docs/compatibility.md` says why of each."""

PAGE: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"
ROW: Final = re.compile(r"^\| ([a-z]\w+) \| ((?:served|refused|asks).*) \|$", re.MULTILINE)
HELP: Final = re.compile(r"^   (\w+) ", re.MULTILINE)
ENDLESS: Final = "served; runs until it is stopped"
ABOUT_USERS: Final = "served; without authenticationEnabled from the broker's own host only"
OF_GROUPS: Final = "served in a group with etcd or a controller; else refused"
REFUSED: Final = {
    "addBroker": "-c $B -b x",
    "exportPopRecord": "-b $B",
    "getColdDataFlowCtrInfo": "-b $B",
    "getControllerConfig": "-a $B",
    "getControllerMetaData": "-a $B",
    "getBrokerLiteInfo": "-b $B",
    "getSyncStateSet": "-a $B -b b1",
    "removeBroker": "-c $B -b c:b1:0",
    "removeColdDataFlowCtrGroupConfig": "-b $B -g G",
    "setCommitLogReadAheadMode": "-b $B -m 1",
    "switchTimerEngine": "-b $B -e F",
    "updateColdDataFlowCtrGroupConfig": "-b $B -g G -v 1",
    "updateControllerConfig": "-a $B -k a -v b",
}
"""Command → words that bring it as far as its request; others end the JVM or write into `/tmp`."""
LOST_ANSWER = "query message by key finished, but no message"
"""What mqadmin says of one or two in a thousand answers that have the message, as these have."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    root = tmp_path_factory.mktemp("mqadmin")
    with (
        BrokerProcess(data=root / "data", settings=SETTINGS) as broker,
        play(broker.namesrv_address, broker.address, root) as scene,
    ):
        yield scene


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    tools = signing_tools(toolkit("5.5.0"), tmp_path_factory.mktemp("tools"))
    yield tools
    tools.child.kill()


def test_every_command_prints_what_it_should(scene: Scene, tools: JavaClient) -> None:
    play_all(scene, tools, COMMANDS)


def test_every_command_about_users_prints_what_it_should(tools: JavaClient, tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data", settings=USERS) as broker:
        play_all(guarded(broker.namesrv_address, broker.address), tools, USER_COMMANDS)


def test_from_this_host_users_are_prepared_before_authentication_is_on(
    tools: JavaClient, tmp_path: Path
) -> None:
    root = "createUser -b $B -u root -p root-secret -t Super"
    with BrokerProcess(data=tmp_path / "data", settings=SETTINGS) as broker:
        scene = guarded(broker.namesrv_address, broker.address)
        assert "create user to" in scene.run(tools, root)
        play_all(scene, tools, USER_COMMANDS)


def test_each_shape_is_of_a_command() -> None:
    assert [*rows(COMMANDS), *rows(USER_COMMANDS)] == list(json.loads(SHAPES.read_bytes()))


def rows(commands: str) -> dict[str, str]:
    """Words → patterns."""
    return dict(line.split(" | ", 1) for line in commands.strip().splitlines())


def play_all(scene: Scene, tools: JavaClient, commands: str) -> None:
    """Run the commands; raises AssertionError with every print that is wrong."""
    shapes = json.loads(SHAPES.read_bytes())
    wrong = []
    for words, patterns in rows(commands).items():
        printed = scene.run(tools, words)
        if LOST_ANSWER in printed:
            printed = scene.run(tools, words)
        missing = [
            pattern
            for pattern in scene.fill(patterns).split("|")
            if re.search(pattern, printed) is None
        ]
        other = set(shape(printed)) ^ set(shapes[words])
        other = {line for line in other if not different(words, line)}
        if missing or other or "Exception" in printed:
            wrong.append(f"{words}: {missing}, not as Java's: {sorted(other)}\n{printed}")
    assert not wrong, "\n\n".join(wrong)


def test_the_page_tells_of_every_command_whether_it_is_served(
    scene: Scene, tools: JavaClient
) -> None:
    [row] = tools.call("mqadmin")
    told = dict(ROW.findall(PAGE.read_text(encoding="utf-8")))
    assert set(told) == set(HELP.findall(row["printed"]))
    served = {words.split()[0] for words in rows(COMMANDS)}
    assert {name for name, said in told.items() if said == "served"} == served
    with_users = {words.split()[0] for words in rows(USER_COMMANDS)}
    assert {name for name, said in told.items() if said == ABOUT_USERS} == with_users
    assert {name for name, said in told.items() if said == ENDLESS} == {
        "clusterRT",
        "startMonitoring",
    }
    assert told["getBrokerEpoch"].startswith(OF_GROUPS)
    assert "only for controllerMode" in scene.run(tools, "getBrokerEpoch -b b1")
    wrong = []
    for name, words in REFUSED.items():
        printed = scene.run(tools, f"{name} {words}")
        code = re.search(r"request type (\d+) not supported", printed)
        if code is None or not told[name].startswith(f"refused ({code[1]}): "):
            wrong.append(f"{name}: {told[name]}\n{printed}")
    assert not wrong, "\n\n".join(wrong)


FORBIDDEN: Final = {
    "updateBrokerConfig -b $B -k fileReservedTime -v 0": "CODE: 29 .*fileReservedTime: 0 is out",
    "updateBrokerConfig -b $B -k brokerName -v x": "CODE: 16 .*can not change while running",
    "updateBrokerConfig -b $B -k rocketmqHome -v /tmp": "CODE: 16 .*rocketmqHome: has no effect",
    "updateBrokerConfig -b $B -k maxMesageSize -v 9": "CODE: 16 .*did you mean maxMessageSize",
    "updateNamesrvConfig -k configStorePath -v /tmp/x": "CODE: 16 .*configStorePath",
}
"""Settings that may not be changed, or not so → what is said."""


def test_settings_that_may_not_change_are_refused_with_the_reason(
    scene: Scene, tools: JavaClient
) -> None:
    printed = {words: scene.run(tools, words) for words in FORBIDDEN}
    wrong = [words for words, text in printed.items() if not re.search(FORBIDDEN[words], text)]
    assert not wrong, "\n".join(printed[words] for words in wrong)


def different(words: str, line: str) -> bool:
    """Whether a line of a command may be there on one kind of broker only."""
    return any(
        words.startswith(command) and re.fullmatch(lines, line)
        for command, lines in DIFFERENT.items()
    )
