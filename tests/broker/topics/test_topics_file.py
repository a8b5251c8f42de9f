"""A start without the topics that were saved: a table of all states, and the lives that make them.

The states are those of a data directory of which `config/` or a part of it is gone.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from enum import Enum
from itertools import count, product
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import trio
from structlog.testing import capture_logs

from aerobee.blocking import AdminClient, ConsumeFrom, Message, Producer, PullConsumer
from aerobee.broker.broker import Broker
from aerobee.broker.config.settings.failover import FailoverConfig
from aerobee.broker.config.settings.replication import ReplicationConfig
from aerobee.broker.topics.topics_file import TopicsFile
from aerobee.store.errors import StoreDamaged
from aerobee.store.files.disk import Disk
from aerobee.store.format.names import OLD_TABLES, SAVED_TOPICS
from aerobee.store.recovery.start_check import lost_tables
from tests.broker.desk import Desk, broker_config, open_desk
from tests.broker.peers import HandClock
from tests.broker.replication.pairs import SLAVE
from tests.kit.broker_process import BrokerProcess
from tests.kit.faulty_disk import Fault, FaultyDisk, PowerCut
from tests.kit.health import events
from tests.kit.process import DidNotStart
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "Orders"
COMMAND = re.compile(r"rm .* && touch .*")
COUNT = 12
REFUSED = 3
WITHIN_S = 60


class File(Enum):
    """What is there of `config/topics.json`."""

    NO_FOLDER = "no config/"
    MISSING = "other tables alone"
    EMPTY = "file and backup without content"
    BACKUP = "the backup alone"
    THERE = "the file"


class Role(Enum):
    """What the broker is to be."""

    MASTER = "master"
    SLAVE = "slave"
    MEMBER = "member of a group"


class Outcome(Enum):
    """What becomes of the start."""

    LOADED = "with the topics"
    ANEW = "with new tables"
    REFUSED = "refused"
    UNFIT = "with new tables, and no candidate for the master before it has copied some"


def outcome(marked: bool, file: File, role: Role) -> Outcome:
    """The rule."""
    if file in (File.BACKUP, File.THERE):
        return Outcome.LOADED
    if not marked:
        return Outcome.ANEW
    return {
        Role.MASTER: Outcome.REFUSED,
        Role.SLAVE: Outcome.ANEW,
        Role.MEMBER: Outcome.UNFIT,
    }[role]


GROUP = {
    "failover": FailoverConfig(
        etcd_endpoints="http://127.0.0.1:1", failover_members="1;2", failover_lease_s=2
    ),
    "replication": ReplicationConfig(ha_peers="127.0.0.1", ha_listen_port=1),
}
SETTINGS: dict[Role, dict[str, Any]] = {
    Role.MASTER: {},
    Role.SLAVE: SLAVE,
    Role.MEMBER: GROUP | SLAVE,
}


def tree(root: Path) -> dict[str, bytes]:
    """Each file below a directory and its content."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files if path.name != "lock"}


def damage(root: Path, file: File) -> None:
    """Have no more than that of the topics."""
    topics = root / "config" / "topics.json"
    backup = topics.with_name("topics.json.bak")
    if file is File.NO_FOLDER:
        shutil.rmtree(topics.parent)
    elif file is File.BACKUP:
        topics.replace(backup)
    elif file is not File.THERE:
        for path in (topics, backup):
            path.unlink(missing_ok=True)
            if file is File.EMPTY:
                path.write_text(" \n")


async def live(root: Path, disk: Disk | None = None, **settings: Any) -> None:
    """A life in which a topic is made and saved, and that ends cleanly."""
    async with open_desk(root, disk, **settings) as desk:
        assert (await desk.send(TOPIC)).code == 0
        assert await desk.saver.save_all()


def made(root: Path, role: Role = Role.MASTER) -> Desk:
    config = broker_config(root, **SETTINGS[role])
    return Desk(Broker(config, disk=Disk(), clock=HandClock()))


def tried(root: Path, role: Role = Role.MASTER) -> tuple[Outcome, Desk | None]:
    """A start; the broker if there is one. A refused start changes nothing."""
    before, desk = tree(root), made(root, role)
    try:
        desk.load()
    except StoreDamaged:
        assert tree(root) == before
        return Outcome.REFUSED, None
    if TOPIC in desk.topics.configs:
        return Outcome.LOADED, desk
    failover = desk.broker.failover
    unfit = failover is not None and "its tables were gone" in failover.member.unfit
    return Outcome.UNFIT if unfit else Outcome.ANEW, desk


@pytest.mark.parametrize(("marked", "file", "role"), [*product((False, True), File, Role)])
def test_each_state_of_a_directory_starts_as_the_rule_says(
    tmp_path: Path, marked: bool, file: File, role: Role
) -> None:
    trio.run(live, tmp_path)
    if not marked:
        (tmp_path / SAVED_TOPICS).unlink()
    damage(tmp_path, file)
    wanted = outcome(marked, file, role)
    for _ in range(2):
        what, desk = tried(tmp_path, role)
        assert what is wanted
        if desk is not None:
            assert trio.run(desk.store.close)
    assert (tmp_path / OLD_TABLES).exists() is (wanted is Outcome.UNFIT)


# ── Where the mark comes from ──


@pytest.mark.trio
async def test_a_directory_without_topics_of_people_has_no_mark(tmp_path: Path) -> None:
    for _ in range(2):
        async with open_desk(tmp_path) as desk:
            assert await desk.saver.save_all()
    assert (tmp_path / "config" / "topics.json").exists()
    assert not (tmp_path / SAVED_TOPICS).exists()


@pytest.mark.trio
async def test_the_mark_is_there_when_the_first_message_is_answered(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        assert (await desk.send(TOPIC)).code == 0
        assert (tmp_path / SAVED_TOPICS).exists()


@pytest.mark.trio
async def test_a_mark_that_cannot_be_made_is_tried_again_as_the_save_is(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="replace", path=SAVED_TOPICS))
    async with open_desk(tmp_path, disk) as desk:
        await desk.send(TOPIC)
        assert desk.topic_file.failing
        assert not (tmp_path / SAVED_TOPICS).exists()
        assert await desk.saver.save_all()
        assert (tmp_path / SAVED_TOPICS).exists()


def topics_file(root: Path, disk: Disk) -> TopicsFile:
    return TopicsFile(root, disk, HandClock(), lambda name: name != TOPIC)


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_wherever_a_life_ends_the_mark_is_not_there_without_the_file(
    tmp_path: Path, keep: float
) -> None:
    """Two saves from the first one of a new directory on: power fails in each call that changes
    something, or the process is killed there.
    """
    ends = 0
    for number in count(1):
        root, after = tmp_path / f"{number}", tmp_path / f"{number}-after"
        root.mkdir()
        disk = FaultyDisk(root, Fault(number=number, cut=True))
        file = topics_file(root, disk)
        try:
            for _ in range(2):
                file.write_now({"topicConfigTable": {TOPIC: {}}})
        except PowerCut:
            ends += 1
        assert file.path not in lost_tables(Disk(), root)
        if not disk.dead:
            break
        disk.power_cut(after, Random(number), keep=keep)
        assert topics_file(after, Disk()).path not in lost_tables(Disk(), after)
    assert ends > COUNT
    assert file.mark.exists()


@pytest.mark.trio
async def test_the_directory_of_another_broker_or_an_earlier_build_gets_the_mark_by_itself(
    tmp_path: Path,
) -> None:
    await live(tmp_path)
    (tmp_path / SAVED_TOPICS).unlink()
    async with open_desk(tmp_path) as desk:
        with trio.fail_after(20):
            await desk.topic_file.catch_up()
        assert (tmp_path / SAVED_TOPICS).exists()


@pytest.mark.trio
async def test_a_topic_that_is_not_saved_yet_makes_no_mark(tmp_path: Path) -> None:
    """A kill comes in front of the first save; the start behind it finds the topic in the log."""
    disk = FaultyDisk(tmp_path)
    async with open_desk(tmp_path, disk) as desk:
        disk.faults.append(Fault(name="fsync", path="topics.json", times=1_000))
        await desk.send(TOPIC)
    (tmp_path / "abort").touch()
    assert not (tmp_path / SAVED_TOPICS).exists()
    async with open_desk(tmp_path) as desk:
        assert TOPIC in desk.topics.configs


@pytest.mark.trio
async def test_a_slave_that_lost_its_table_saves_none_before_it_has_topics(tmp_path: Path) -> None:
    """Who is to be the master behind that would find a table, and go on with it."""
    await live(tmp_path)
    damage(tmp_path, File.NO_FOLDER)
    async with open_desk(tmp_path, **SLAVE) as desk:
        assert await desk.saver.save_all()
    assert tried(tmp_path)[0] is Outcome.REFUSED
    async with open_desk(tmp_path, **SLAVE) as desk:
        desk.topics.copy({"topicConfigTable": {TOPIC: {"perm": 6}}}, 0)
        assert await desk.saver.save_all()
    assert tried(tmp_path)[0] is Outcome.LOADED


@pytest.mark.trio
async def test_a_slave_that_lost_its_table_has_that_of_a_master_without_topics(
    tmp_path: Path,
) -> None:
    """It can be promoted then: nothing is missing that the master had."""
    await live(tmp_path)
    damage(tmp_path, File.MISSING)
    async with open_desk(tmp_path, **SLAVE) as desk:
        assert desk.topic_file.file.path in lost_tables(Disk(), tmp_path)
        desk.topics.copy({"topicConfigTable": {}}, 0)
        with trio.fail_after(WITHIN_S):
            await desk.topic_file.catch_up()
        assert lost_tables(Disk(), tmp_path) == []


@pytest.mark.parametrize("name", ["consumerOffset.json", "subscriptionGroup.json"])
@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("killed", [False, True])
def test_another_table_that_is_gone_is_missed_as_the_topics_are(
    tmp_path: Path, name: str, role: Role, killed: bool
) -> None:
    trio.run(live, tmp_path)
    for file in (tmp_path / "config").glob(f"{name}*"):
        file.unlink()
    if killed:
        (tmp_path / "abort").touch()
    with capture_logs() as logs:
        what, desk = tried(tmp_path, role)
    assert what is (Outcome.REFUSED if role is Role.MASTER else Outcome.LOADED)
    if desk is None:
        return
    told = [line["path"] for line in logs if line["event"] == "table.gone"]
    assert told == [str(tmp_path / "config" / name)]
    assert (tmp_path / OLD_TABLES).exists() is (role is Role.MEMBER)
    assert trio.run(desk.store.close)


def test_tables_that_were_never_saved_are_not_missed(tmp_path: Path) -> None:
    """The mark of an earlier build says nothing of them, nor does a life without any group."""
    trio.run(live, tmp_path)
    (tmp_path / SAVED_TOPICS).write_bytes(b"")
    (tmp_path / "config" / "consumerOffset.json").unlink()
    what, desk = tried(tmp_path)
    assert what is Outcome.LOADED
    assert desk is not None
    assert trio.run(desk.store.close)


# ── The ways out ──


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """It runs, with messages of a topic; its directory has a blank in its name."""
    with BrokerProcess(data=tmp_path / "my data") as broker:
        with Producer(broker.namesrv_address, group="g") as producer:
            for number in range(COUNT):
                producer.send(Message(TOPIC, b"%d" % number))
        marked(broker)
        yield broker


def marked(broker: BrokerProcess) -> None:
    """Wait until the mark says that topics were saved."""
    mark = broker.data / SAVED_TOPICS
    eventually(mark.exists, within_s=WITHIN_S, what="the topics are saved")


def refusal(broker: BrokerProcess) -> str:
    with pytest.raises(DidNotStart) as refused:
        broker.start()
    assert refused.value.exit_code == REFUSED
    return str(list(events(broker.log.read_text()))[-1]["reason"])


def received(broker: BrokerProcess, group: str = "all") -> int:
    """How many messages a group finds that is new."""
    found = 0
    with PullConsumer(group, broker.namesrv_address, start_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(TOPIC)
        while found < COUNT and (more := consumer.poll(timeout=WITHIN_S)):
            found += len(more)
    return found


@pytest.mark.service
@pytest.mark.parametrize("killed", [False, True])
def test_tables_on_a_disk_that_is_mounted_again_are_served(
    broker: BrokerProcess, killed: bool
) -> None:
    broker.kill() if killed else broker.stop()
    config, aside = broker.data / "config", broker.data.parent / "aside"
    config.rename(aside)
    config.mkdir()
    reason = refusal(broker)
    assert f"mount the disk of {config}" in reason
    assert refusal(broker) == reason
    config.rmdir()
    aside.rename(config)
    broker.start()
    assert received(broker) == COUNT


@pytest.mark.service
def test_the_printed_command_goes_on_without_the_offsets(broker: BrokerProcess) -> None:
    assert received(broker) == COUNT
    broker.stop()
    for file in (broker.data / "config").glob("consumerOffset.json*"):
        file.unlink()
    reason = refusal(broker)
    assert "consumerOffset.json, backups too," in reason
    command = COMMAND.search(reason)
    assert command is not None
    subprocess.run(["sh", "-ec", command[0]], check=True)
    broker.start()
    assert received(broker) == COUNT
    broker.restart()


@pytest.mark.service
@pytest.mark.parametrize("killed", [False, True])
def test_the_printed_command_goes_on_with_the_topics_of_the_queues(
    broker: BrokerProcess, killed: bool
) -> None:
    with AdminClient(broker.namesrv_address) as admin:
        queues = admin.topic_configs(TOPIC)[0].write_queues
    broker.kill() if killed else broker.stop()
    shutil.rmtree(broker.data / "config")
    command = COMMAND.search(refusal(broker))
    assert command is not None
    subprocess.run(["sh", "-ec", command[0]], check=True)
    broker.start()
    with AdminClient(broker.namesrv_address) as admin:
        assert admin.topic_configs(TOPIC)[0].write_queues == queues
    assert received(broker) == COUNT
    marked(broker)
    broker.restart()
    assert received(broker, "later") == COUNT
