"""The features taken together, and the start: tables, log and offsets that agree."""

from __future__ import annotations

import inspect
import json
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.broker.broker import Broker
from aerobee.broker.errors import TableDamaged
from aerobee.broker.pools.pools import make_pools
from aerobee.remoting.config import RemotingConfig
from aerobee.remoting.server.addresses import packed_host
from aerobee.remoting.server.route_table import resolve
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import Header
from aerobee.store.config import FlushDiskType
from aerobee.store.errors import StoreForeign, StoreLocked, StoreRefused
from aerobee.store.files.disk import Disk
from tests.broker.desk import Desk, body_of, broker_config, open_desk, pull_header, send_header
from tests.broker.peers import HandClock
from tests.broker.timers.test_timers import open_bench
from tests.kit.faulty_disk import Call, Fault, FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.remoting.server.routes import Route

HOLD = 2 | 4
STRIDE = 7
"""Of the reads of a start, every so manieth fails."""


def make(root: Path, **changes: Any) -> Desk:
    return Desk(Broker(broker_config(root, **changes), disk=Disk(), clock=HandClock()))


def config_file(root: Path, name: str, document: object) -> Path:
    path = root / "config" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def topics(**attributes: Any) -> dict[str, Any]:
    table = {"topicName": "t", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, **attributes}
    return {"topicConfigTable": {"t": table}, "dataVersion": {"timestamp": 0, "counter": 0}}


def close(desk: Desk) -> None:
    assert trio.run(desk.store.close)


# ── wires ──


@pytest.mark.trio
async def test_a_message_wakes_its_pull_in_the_same_round(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        desk.begin(pull_header(sys_flag=HOLD))
        desk.begin(send_header(), b"hello")
        assert desk.peer.answers == []
        desk.after_round()
        assert b"hello" in body_of(desk.peer.answers[0])


@pytest.mark.trio
async def test_under_sync_flush_the_sync_wakes_it(tmp_path: Path) -> None:
    async with open_desk(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH) as desk:
        desk.topic()
        desk.begin(pull_header(sys_flag=HOLD))
        desk.begin(send_header(), b"hello")
        desk.after_round()
        assert desk.peer.answers == [], "no consumer sees what a power cut could take back"
        answers = [await desk.peer.next_answer(), await desk.peer.next_answer()]
        assert sum(b"hello" in body_of(answer) for answer in answers) == 1


@pytest.mark.trio
async def test_a_change_of_a_table_is_saved_by_itself(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await desk.send("made-by-sending")
        desk.groups.find("made-by-pulling", 0)
        with trio.fail_after(10):
            await desk.group_file.catch_up()
        config = tmp_path / "config"
        assert "made-by-sending" in (config / "topics.json").read_text()
        assert "made-by-pulling" in (config / "subscriptionGroup.json").read_text()


def test_records_carry_the_published_address(tmp_path: Path) -> None:
    desk = make(tmp_path, broker_ip1="10.1.2.3")
    port = desk.config.remoting.listen_port
    assert desk.store_host == packed_host(("10.1.2.3", port))
    assert desk.address == f"10.1.2.3:{port}"


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
    desk = make(tmp_path)
    assert desk.load().clean
    assert desk.topics.configs["t"].write_queue_nums == 7
    assert desk.offsets.query("g", "t", 0) == 0
    close(desk)


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
    desk = make(tmp_path)
    assert desk.load().clean
    close(desk)


@pytest.mark.parametrize(
    "name",
    [
        "topics.json",
        "subscriptionGroup.json",
        "savedtopics",
        "timercheck",
        "timerwheel",
        "timerlog",
    ],
)
@pytest.mark.trio
async def test_a_file_that_the_disk_cannot_read_refuses_the_start_with_a_remedy(
    tmp_path: Path, name: str, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.send(b"waits", TIMER_DELAY_SEC=30)
        await bench.desk.pass_s(2)
        assert await bench.desk.saver.save_all()
    # Also the file that was there before: a table that cannot be read is not taken from that.
    disk = FaultyDisk(tmp_path, Fault(name="pread", path=name, times=9))
    broker = Broker(broker_config(tmp_path), disk=disk, clock=HandClock())
    with pytest.raises(StoreRefused, match=rf"{name}.*restore it from a copy"):
        broker.load()
    disk.kill()
    desk = make(tmp_path)
    desk.load()
    assert await desk.store.close()


@pytest.mark.trio
async def test_whatever_read_of_a_start_fails_it_serves_or_names_file_and_remedy(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.send(b"waits", TIMER_DELAY_SEC=30)
        await bench.send(b"is there")
        await bench.desk.pass_s(2)
        assert await bench.desk.saver.save_all()
    crashed(tmp_path)
    refusals: list[str] = []
    for number in count(1, STRIDE):
        disk = FaultyDisk(tmp_path)
        disk.before = at_read(disk, number)
        broker = Broker(broker_config(tmp_path), disk=disk, clock=HandClock())
        try:
            broker.load()
        except StoreRefused as error:
            refusals.append(str(error))
        disk.kill()
        if not disk.faults:
            break
    assert len(refusals) > number / STRIDE / 2
    for text in refusals:
        assert str(tmp_path) in text
        assert "restore" in text


def at_read(disk: FaultyDisk, number: int) -> Callable[[Call], None]:
    """Have the disk fail with the `number`-th read."""
    reads = count(1)

    def before(call: Call) -> None:
        if call.name == "pread" and next(reads) == number:
            disk.faults.append(Fault(name="pread"))

    return before


def test_queues_of_inner_batches_refuse_the_start_and_free_the_directory(tmp_path: Path) -> None:
    path = config_file(tmp_path, "topics.json", topics(attributes={"queue.type": "BatchCQ"}))
    with pytest.raises(StoreForeign, match=r"topic t has queue\.type=BatchCQ"):
        make(tmp_path).load()
    path.unlink()
    desk = make(tmp_path)
    desk.load()
    close(desk)


def test_a_directory_in_use_is_refused_and_its_owner_goes_on(tmp_path: Path) -> None:
    desk = make(tmp_path)
    desk.load()
    with pytest.raises(StoreLocked):
        make(tmp_path).load()
    with pytest.raises(StoreLocked):
        make(tmp_path).load()
    close(desk)


async def fill(root: Path, count: int, topic: str = "t", queue_id: int = 0) -> None:
    async with open_desk(root) as desk:
        for _ in range(count):
            await desk.send(topic, queue_id=queue_id)
        await desk.saver.save_all()


def crashed(root: Path) -> None:
    (root / "abort").write_bytes(b"")


def test_an_offset_beyond_its_queue_is_taken_back_to_the_end(tmp_path: Path) -> None:
    trio.run(fill, tmp_path, 3)
    offsets = {"t@g": {"0": 9, "1": 0}, "t@h": {"0": 2}}
    config_file(tmp_path, "consumerOffset.json", {"offsetTable": offsets})
    desk = make(tmp_path)
    desk.load()
    assert desk.offsets.query("g", "t", 0) == 3
    assert desk.offsets.query("h", "t", 0) == 2
    close(desk)


@pytest.mark.parametrize("crash", [True, False])
def test_a_topic_lost_in_a_crash_is_taken_up_again_from_the_log(
    tmp_path: Path, crash: bool
) -> None:
    trio.run(fill, tmp_path, 2, "lost", 3)
    for path in (tmp_path / "config").glob("topics.json*"):
        path.write_text('{"topicConfigTable":{}}')
    if crash:
        crashed(tmp_path)
    desk = make(tmp_path)
    assert desk.load().clean is not crash
    found = desk.topics.get("lost")
    assert (found is not None) is crash, "after a clean stop a missing topic was deleted"
    if found is not None:
        assert (found.write_queue_nums, found.read_queue_nums, found.perm) == (4, 4, 6)
    close(desk)


@pytest.mark.trio
async def test_a_closed_connection_is_told_to_those_who_kept_it(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        told: list[str] = []
        requests: Any = (desk.broker.namesrv.role.requests, desk.broker.consumers.client_requests)
        for processor in requests:
            name = type(processor).__name__
            processor.connection_closed = lambda connection, name=name: told.append(name)
        peer: Any = desk.peer
        peer.on_close = []
        desk.connected(peer)
        (closed,) = peer.on_close
        closed(peer, "test")
        assert told == ["RouteProcessor", "ClientProcessor"]


# ── the table of requests ──


@pytest.fixture
def routes(tmp_path: Path) -> tuple[Route, ...]:
    """What a broker with an embedded name server answers."""
    return tuple(Broker(broker_config(tmp_path), disk=Disk(), clock=HandClock()).routes)


def test_every_line_has_a_code_a_handler_and_a_pool(routes: tuple[Route, ...]) -> None:
    table = resolve(routes, make_pools(RemotingConfig()))
    assert len(table) == len(routes), "no code twice, the name server's included"
    for route in routes:
        assert issubclass(route.header, Header)
        assert isinstance(code_of(route), RequestCode), route
        assert len(inspect.signature(route.handler).parameters) == 3, route


POOLS = {
    "send": {
        "SEND_MESSAGE",
        "SEND_MESSAGE_V2",
        "SEND_BATCH_MESSAGE",
        "RECALL_MESSAGE",
        "CONSUMER_SEND_MSG_BACK",
    },
    "pull": {"PULL_MESSAGE", "POP_MESSAGE", "PEEK_MESSAGE", "NOTIFICATION", "POLLING_INFO"},
    "ack": {"ACK_MESSAGE", "BATCH_ACK_MESSAGE", "CHANGE_MESSAGE_INVISIBLETIME"},
    "load_balance": {"QUERY_ASSIGNMENT", "SET_MESSAGE_REQUEST_MODE"},
    "lite_pull": {"LITE_PULL_MESSAGE"},
    "transaction": {"END_TRANSACTION"},
    "reply": {"SEND_REPLY_MESSAGE", "SEND_REPLY_MESSAGE_V2"},
    "query": {"QUERY_MESSAGE", "VIEW_MESSAGE_BY_ID"},
    "heartbeat": {"HEART_BEAT"},
    "client_manager": {
        "UNREGISTER_CLIENT",
        "CHECK_CLIENT_CONFIG",
        "GET_CONSUMER_RUNNING_INFO",
        "CONSUME_MESSAGE_DIRECTLY",
    },
    "consumer_manager": {
        "QUERY_CONSUMER_OFFSET",
        "UPDATE_CONSUMER_OFFSET",
        "GET_CONSUMER_LIST_BY_GROUP",
    },
}


def test_a_busy_family_does_not_starve_the_others(routes: tuple[Route, ...]) -> None:
    for pool, codes in POOLS.items():
        assert {code_of(route).name for route in routes if route.pool == pool} == codes
    others = {route.pool for route in routes} - set(POOLS)
    assert others == {"admin"}


def code_of(route: Route) -> Any:
    header: Any = route.header
    return header.code
