"""The parts as they are wired, and the start: tables, log and offsets that agree."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.broker.config.load import FlushDiskType
from aerobee.broker.errors import TableDamaged
from aerobee.broker.parts import Parts
from aerobee.remoting.server.connection import packed_host
from aerobee.store.errors import StoreForeign, StoreLocked
from aerobee.store.files.disk import Disk
from tests.broker.desk import body_of, broker_config, open_desk, pull_header, send_header
from tests.broker.peers import HandClock

if TYPE_CHECKING:
    from pathlib import Path

HOLD = 2 | 4


def make(root: Path, **changes: Any) -> Parts:
    return Parts(broker_config(root, **changes), disk=Disk(), clock=HandClock())


def config_file(root: Path, name: str, document: object) -> Path:
    path = root / "config" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def topics(**attributes: Any) -> dict[str, Any]:
    table = {"topicName": "t", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, **attributes}
    return {"topicConfigTable": {"t": table}, "dataVersion": {"timestamp": 0, "counter": 0}}


def close(parts: Parts) -> None:
    assert trio.run(parts.store.close)


# ── wires ──


@pytest.mark.trio
async def test_a_message_wakes_its_pull_in_the_same_round(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        desk.begin(pull_header(sys_flag=HOLD))
        desk.begin(send_header(), b"hello")
        assert desk.peer.answers == []
        desk.parts.after_round()
        assert b"hello" in body_of(desk.peer.answers[0])


@pytest.mark.trio
async def test_under_sync_flush_the_sync_wakes_it(tmp_path: Path) -> None:
    async with open_desk(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH) as desk:
        desk.topic()
        desk.begin(pull_header(sys_flag=HOLD))
        desk.begin(send_header(), b"hello")
        desk.parts.after_round()
        assert desk.peer.answers == [], "no consumer sees what a power cut could take back"
        answers = [await desk.peer.next_answer(), await desk.peer.next_answer()]
        assert sum(b"hello" in body_of(answer) for answer in answers) == 1


@pytest.mark.trio
async def test_a_change_of_a_table_is_saved_by_itself(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await desk.send("made-by-sending")
        desk.parts.groups.find("made-by-pulling", 0)
        with trio.fail_after(10):
            await desk.parts.state.group_file.catch_up()
        config = tmp_path / "config"
        assert "made-by-sending" in (config / "topics.json").read_text()
        assert "made-by-pulling" in (config / "subscriptionGroup.json").read_text()


def test_records_carry_the_published_address(tmp_path: Path) -> None:
    parts = make(tmp_path, broker_ip1="10.1.2.3")
    port = parts.config.remoting.listen_port
    assert parts.store_host == packed_host(("10.1.2.3", port))
    assert parts.own_address() == f"10.1.2.3:{port}"


def test_a_published_name_that_nobody_knows_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"brokerIP1 is no-such-host\.invalid"):
        make(tmp_path, broker_ip1="no-such-host.invalid")


# ── the start ──


def test_nothing_on_disk_changes_before_load(tmp_path: Path) -> None:
    make(tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_tables_are_read_at_the_start(tmp_path: Path) -> None:
    config_file(tmp_path, "topics.json", topics(writeQueueNums=7))
    config_file(tmp_path, "consumerOffset.json", {"offsetTable": {"t@g": {"0": 0}}})
    parts = make(tmp_path)
    assert parts.load().clean
    assert parts.topics.configs["t"].write_queue_nums == 7
    assert parts.offsets.query("g", "t", 0) == 0
    close(parts)


@pytest.mark.parametrize(
    "name", ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "kvConfig.json"]
)
def test_a_damaged_table_refuses_the_start_and_frees_the_directory(
    tmp_path: Path, name: str
) -> None:
    damaged = config_file(tmp_path, name, "{not json")
    backup = config_file(tmp_path, f"{name}.bak", "{nor this")
    with pytest.raises(TableDamaged, match=name):
        make(tmp_path).load()
    assert backup.read_text() == "{nor this"
    assert damaged.read_text() == "{not json", "a refused start renames nothing"
    assert not (tmp_path / "abort").exists()
    damaged.unlink()
    backup.unlink()
    parts = make(tmp_path)
    assert parts.load().clean
    close(parts)


def test_queues_of_inner_batches_refuse_the_start_and_free_the_directory(tmp_path: Path) -> None:
    path = config_file(tmp_path, "topics.json", topics(attributes={"queue.type": "BatchCQ"}))
    with pytest.raises(StoreForeign, match=r"topic t has queue\.type=BatchCQ"):
        make(tmp_path).load()
    path.unlink()
    parts = make(tmp_path)
    parts.load()
    close(parts)


def test_a_directory_in_use_is_refused_and_its_owner_goes_on(tmp_path: Path) -> None:
    parts = make(tmp_path)
    parts.load()
    with pytest.raises(StoreLocked):
        make(tmp_path).load()
    with pytest.raises(StoreLocked):
        make(tmp_path).load()
    close(parts)


async def fill(root: Path, count: int, topic: str = "t", queue_id: int = 0) -> None:
    async with open_desk(root) as desk:
        for _ in range(count):
            await desk.send(topic, queue_id=queue_id)
        await desk.parts.saver.save_all()


def crashed(root: Path) -> None:
    (root / "abort").write_bytes(b"")


def test_an_offset_beyond_its_queue_is_taken_back_to_the_end(tmp_path: Path) -> None:
    trio.run(fill, tmp_path, 3)
    offsets = {"t@g": {"0": 9, "1": 0}, "t@h": {"0": 2}}
    config_file(tmp_path, "consumerOffset.json", {"offsetTable": offsets})
    parts = make(tmp_path)
    parts.load()
    assert parts.offsets.query("g", "t", 0) == 3
    assert parts.offsets.query("h", "t", 0) == 2
    close(parts)


@pytest.mark.parametrize("crash", [True, False])
def test_a_topic_lost_in_a_crash_is_taken_up_again_from_the_log(
    tmp_path: Path, crash: bool
) -> None:
    trio.run(fill, tmp_path, 2, "lost", 3)
    for path in (tmp_path / "config").glob("topics.json*"):
        path.unlink()
    if crash:
        crashed(tmp_path)
    parts = make(tmp_path)
    assert parts.load().clean is not crash
    found = parts.topics.get("lost")
    assert (found is not None) is crash, "after a clean stop a missing topic was deleted"
    if found is not None:
        assert (found.write_queue_nums, found.read_queue_nums, found.perm) == (4, 4, 6)
    close(parts)


@pytest.mark.trio
async def test_a_closed_connection_is_told_to_those_who_kept_it(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        told: list[str] = []
        processors: Any = desk.parts.processors
        for processor in (processors.client, processors.route):
            name = type(processor).__name__
            processor.connection_closed = lambda connection, name=name: told.append(name)
        peer: Any = desk.peer
        peer.on_close = []
        desk.parts._connected(peer)
        (closed,) = peer.on_close
        closed(peer, "test")
        assert told == ["ClientProcessor", "RouteProcessor"]
