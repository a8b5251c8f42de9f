"""Topics that an administrator deletes, made anew under load and across kills."""

from __future__ import annotations

import errno
import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio

from aerobee.blocking import AdminClient, Message, Producer
from aerobee.broker.errors import Refusal
from aerobee.broker.saved.save import RETRY_S
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.client import Heartbeat
from aerobee.remoting.wire.headers.pop import PopMessage
from aerobee.remoting.wire.headers.topic import DeleteTopicInBroker
from aerobee.store.format.names import segment_name
from tests.broker.desk import open_desk, said
from tests.kit.broker_process import BrokerProcess
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.store_model import draft
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.remoting.wire.answer import Answer
    from tests.broker.desk import Desk


async def delete(desk: Desk, topic: str) -> Answer:
    return await desk.ask(DeleteTopicInBroker(topic=topic))


@pytest.mark.trio
async def test_config_queues_offsets_and_pop_retry_topics_go(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        for name in ("t", "other", "%RETRY%g_t", "%RETRY%g+t", "%RETRY%g"):
            desk.topic(name)
            assert desk.store.put(draft(name)).physical_offset >= 0
        desk.store.dispatch()
        desk.offsets.commit("g", "t", 0, 1, 0)
        desk.offsets.commit("g", "other", 0, 1, 0)
        assert (await delete(desk, "t")).code == Code.SUCCESS
        assert {topic for topic, _ in desk.store.queues.table} == {"other", "%RETRY%g"}
        assert desk.offsets.topics_of("g") == ["other"]
        assert not (tmp_path / "consumequeue" / "t").exists()
        for gone in ("t", "%RETRY%g_t", "%RETRY%g+t"):
            assert desk.topics.get(gone) is None
        assert (await delete(desk, "t")).code == Code.SUCCESS, "it is gone, as was asked"
        assert (await desk.send("t")).code == Code.SUCCESS, "made anew by the next message"
        assert desk.store.max_offset("t", 0) == 1


@pytest.mark.trio
async def test_a_retry_topic_that_is_made_while_the_request_waits_goes_as_well(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        work = desk.begin(DeleteTopicInBroker(topic="t"))
        desk.topic("%RETRY%g+t")
        desk.offsets.commit("g", "t", 0, 1, 0)
        assert (await work).code == Code.SUCCESS
        assert desk.topics.get("%RETRY%g+t") is None


@pytest.mark.trio
async def test_who_is_the_master_no_more_keeps_the_queues(tmp_path: Path) -> None:
    """The next master may not have heard of the deletion: then the topic comes back from there."""
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        await desk.send("t")
        desk.offsets.commit("g", "t", 0, 1, 0)
        role = desk.broker.core.role

        async def hands_over() -> None:
            role.is_slave = True

        desk.topic_file.relies_on = hands_over
        with pytest.raises(Refusal, match="slave broker"):
            await delete(desk, "t")
        assert desk.store.max_offset("t", 0) == 1
        assert desk.offsets.query("g", "t", 0) == 1


@pytest.mark.trio
async def test_a_second_deletion_finishes_one_that_could_not_be_saved(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async def full() -> None:
        raise OSError(errno.ENOSPC, "no space left")

    async with open_desk(tmp_path) as desk:
        for name in ("t", "%RETRY%g+t"):
            desk.topic(name)
            assert desk.store.put(draft(name)).physical_offset >= 0
        desk.store.dispatch()
        desk.offsets.commit("g", "t", 0, 1, 0)
        desk.topic_file.relies_on = full
        with pytest.raises(Refusal, match="no space left"):
            await delete(desk, "t")
        desk.topic_file.relies_on = None
        await desk.pass_s(RETRY_S)
        assert (await delete(desk, "t")).code == Code.SUCCESS
        assert not desk.store.queues.table


@pytest.mark.parametrize(
    ("group", "topic"),
    [("order_pay", None), ("order", "pay_eu"), ("order_pay", "eu")],
    ids=["its retry topic", "pops of a longer topic", "pops by a longer group"],
)
@pytest.mark.trio
async def test_a_retry_topic_that_may_be_of_another_group_as_well_stays(
    tmp_path: Path, group: str, topic: str | None
) -> None:
    retry = f"%RETRY%{group}" if topic is None else f"%RETRY%{group}_{topic}"
    # Another reading of the same name: it has to go with neither of the two.
    reader, read = {
        ("order_pay", None): ("order", "pay"),
        ("order", "pay_eu"): ("order_pay", "eu"),
        ("order_pay", "eu"): ("order", "pay_eu"),
    }[group, topic]
    async with open_desk(tmp_path) as desk:
        for name in {read, retry, topic or read}:
            desk.topic(name)
        for name in (group, reader):
            desk.groups.create(name, 0)
        assert desk.store.put(draft(retry)).physical_offset >= 0
        desk.store.dispatch()
        desk.offsets.commit(reader, read, 0, 1, 0)
        assert (await delete(desk, read)).code == Code.SUCCESS
        assert desk.topics.get(retry) is not None
        assert desk.store.max_offset(retry, 0) == 1


@pytest.mark.trio
async def test_who_runs_gets_the_first_message_of_the_topic_made_anew(tmp_path: Path) -> None:
    async with open_desk(tmp_path / "data") as desk:
        desk.topic("t")
        for _ in range(5):
            await desk.send("t")
        data = {"topic": "t", "subString": "*", "subVersion": 1}
        group = {"groupName": "g", "subscriptionDataSet": [data]}
        body = {"clientID": "c", "producerDataSet": [], "consumerDataSet": [group]}
        assert (await desk.ask(Heartbeat(), json.dumps(body).encode())).code == Code.SUCCESS
        for name in ("g", "away"):
            desk.offsets.commit(name, "t", 0, 5, 0)
        assert (await delete(desk, "t")).code == Code.SUCCESS
        for _ in range(8):
            await desk.send("t")
        await desk.puts.durable()
        shutil.copytree(tmp_path / "data", tmp_path / "killed", copy_function=copy_if_there)
        await assert_begins_again(desk)
    async with open_desk(tmp_path / "killed") as desk:
        await assert_begins_again(desk)


async def assert_begins_again(desk: Desk) -> None:
    assert not desk.offsets.commit("g", "t", 0, 5, 0), "where it was does not count any more"
    moved = await desk.pull("t", 5)
    assert (moved.code, said(moved)["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, "0")
    assert desk.offsets.commit("g", "t", 0, 1, 0), "it has heard of it"
    assert desk.offsets.take_reset("away", "t", 0) is None


def copy_if_there(source: str, target: str) -> None:
    """A kill: what is on the disk at that moment."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


@pytest.mark.trio
async def test_a_kill_gives_no_group_back_what_a_deletion_took(tmp_path: Path) -> None:
    """Or it would pass over the first messages of the topic made anew."""
    async with open_desk(tmp_path / "data") as desk:
        desk.topic("t")
        for _ in range(5):
            await desk.send("t")
        desk.offsets.commit("g", "t", 0, 5, 0)
        popped = PopMessage(
            consumer_group="pops",
            topic="t",
            queue_id=0,
            max_msg_nums=32,
            invisible_time=60_000,
            poll_time=0,
            born_time=0,
            init_mode=0,
            order=True,
        )
        assert (await desk.ask(popped)).code == Code.SUCCESS
        assert await desk.saver.save_all()
        assert (await delete(desk, "t")).code == Code.SUCCESS
        for _ in range(8):
            assert (await desk.send("t")).code == Code.SUCCESS
        await desk.puts.durable()
        shutil.copytree(tmp_path / "data", tmp_path / "killed", copy_function=copy_if_there)
    async with open_desk(tmp_path / "killed") as desk:
        assert desk.store.max_offset("t", 0) == 8
        assert desk.offsets.query("g", "t", 0) == -1
        assert (await desk.ask(popped)).code == Code.SUCCESS, "nothing of it is out in order"


@pytest.mark.trio
@pytest.mark.parametrize("name", ["", " ", "TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
async def test_topics_of_the_broker_itself_stay(tmp_path: Path, name: str) -> None:
    async with open_desk(tmp_path) as desk:
        before = sorted(desk.topics.configs)
        assert (await delete(desk, name)).code == Code.INVALID_PARAMETER
        assert sorted(desk.topics.configs) == before


@pytest.mark.trio
@pytest.mark.parametrize("name", ["../../etc", "/etc/passwd", "a/../b", "x" * 300, "\0"])
async def test_a_name_that_is_a_path_reaches_no_file(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "etc"
    outside.mkdir()
    (tmp_path / "data").mkdir()
    async with open_desk(tmp_path / "data") as desk:
        assert (await delete(desk, name)).code == Code.SUCCESS, "there is no such topic"
    assert outside.is_dir()


@pytest.mark.trio
async def test_nothing_is_stored_in_queues_that_are_being_removed(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with open_desk(tmp_path, disk=disk) as desk:
        desk.topic("t")
        await desk.send("t")
        deleted: list[Answer] = []

        async def run() -> None:
            deleted.append(await delete(desk, "t"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            while desk.topics.get("t") is not None:
                await trio.lowlevel.checkpoint()
            while not deleted:
                answer = await desk.send("t")
                assert answer.code in (Code.SYSTEM_BUSY, Code.SUCCESS)
                if answer.code == Code.SUCCESS:
                    assert deleted, "acknowledged while its queue goes"
                else:
                    assert "being deleted" in str(answer.remark)
                await trio.lowlevel.checkpoint()
        assert (await desk.send("t")).code == Code.SUCCESS
        assert desk.store.max_offset("t", 0) == 1


@pytest.mark.service
def test_what_waited_for_a_deleted_topic_does_not_bring_it_back(tmp_path: Path) -> None:
    """Neither in the run of the deletion nor behind kills; a topic made anew gets it."""
    with BrokerProcess(data=tmp_path / "data") as broker:
        namesrv = broker.namesrv_address
        with AdminClient(namesrv) as admin, Producer(namesrv) as producer:
            for topic in ("gone", "anew"):
                admin.create_topic(topic, queues=1)
                producer.send(Message(topic, b"level", delay_level=1))
                producer.send(Message(topic, b"timer", delay=1))
                producer.send(Message(topic, b"later", delay=4))
                admin.delete_topic(topic)
            admin.create_topic("anew", queues=1)
            eventually(lambda: len(set_aside(broker)) == 2, within_s=20, what="two set aside")
        broker.kill()
        broker.start()
        eventually(lambda: len(set_aside(broker)) >= 3, within_s=20, what="the third as well")
        with AdminClient(namesrv) as admin:
            assert "gone" not in admin.topics()

            def arrived() -> bool:
                (queue,) = admin.describe_topic("anew").queues
                bodies = {admin.message_at(queue.queue, at).body for at in range(queue.end)}
                return bodies == {b"level", b"timer", b"later"}

            eventually(arrived, within_s=20, what="all in the topic made anew")
        broker.kill()
        broker.start()
        with AdminClient(namesrv) as admin:
            assert "gone" not in admin.topics()


@pytest.mark.trio
@pytest.mark.parametrize("made_anew", [True, False])
async def test_messages_of_a_deleted_topic_stay_gone_after_a_clean_stop(
    tmp_path: Path, made_anew: bool
) -> None:
    """Its records are the last in the log, behind the last unit of every queue that is left."""
    async with open_desk(tmp_path) as desk:
        for topic in ("other", "t", "t"):
            await desk.send(topic)
        assert (await delete(desk, "t")).code == Code.SUCCESS
        if made_anew:
            desk.topic("t")
    async with open_desk(tmp_path) as desk:
        assert {topic for topic, _ in desk.store.queues.table} == {"other"}
        assert not (tmp_path / "consumequeue" / "t").exists()
        assert (await desk.pull("t")).code != Code.SUCCESS
        assert said(await desk.send("t"))["queueOffset"] == "0"


def set_aside(broker: BrokerProcess) -> list[str]:
    return [line for line in broker.log.read_text().splitlines() if "gone was deleted" in line]


@pytest.mark.service
@pytest.mark.parametrize("lost", [(), ("consumequeue",), ("recoverypoint.json",)])
@pytest.mark.parametrize("midst", [True, False])
def test_a_topic_made_anew_has_its_own_messages_after_a_kill(
    tmp_path: Path, lost: tuple[str, ...], midst: bool
) -> None:
    """Its records of before are in the log still, and the recovery passes over them.

    `midst`: the kill left the queue of a topic that was being deleted.
    """
    queue_of_gone = tmp_path / "data" / "consumequeue" / "gone"
    with BrokerProcess(data=tmp_path / "data", settings={"flushDiskType": "SYNC_FLUSH"}) as broker:
        namesrv = f"127.0.0.1:{broker.namesrv_port}"
        with AdminClient(namesrv) as admin, Producer(namesrv) as producer:
            for topic in ("t", "silent", "gone"):
                admin.create_topic(topic, queues=1)
                for number in range(10):
                    producer.send(Message(topic, b"old %d" % number))
                if topic == "gone":
                    file = queue_of_gone / "0" / segment_name(0)
                    eventually(file.exists, within_s=20, what="a file of its queue")
                    shutil.copytree(queue_of_gone, tmp_path / "gone")
                admin.delete_topic(topic)
                assert topic not in admin.topics()
            admin.create_topic("silent", queues=1)
            admin.create_topic("t", queues=1)
            for number in range(3):
                producer.send(Message("t", b"new %d" % number))
        broker.kill()
        if midst:
            shutil.copytree(tmp_path / "gone", queue_of_gone)
        for name in lost:
            path = tmp_path / "data" / name
            path.rename(tmp_path / name)
        broker.start()
        with AdminClient(namesrv) as admin:
            assert "gone" not in admin.topics(), "no crash has lost it: it was deleted"
            assert not [path for path in queue_of_gone.rglob("*") if path.is_file()]
            admin.create_topic("gone", queues=1)
            for topic in ("silent", "gone"):
                (queue,) = admin.describe_topic(topic).queues
                assert (queue.first, queue.end) == (0, 0), topic
            (queue,) = admin.describe_topic("t").queues
            assert (queue.first, queue.end) == (0, 3)
            bodies = [admin.message_at(queue.queue, offset).body for offset in range(3)]
            assert bodies == [b"new 0", b"new 1", b"new 2"]
