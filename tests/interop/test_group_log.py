"""The log of a group whose members are Java's brokers and ours, on the wire of controller mode.

Java's members are whole brokers with Java's controller. Ours are stores with the connections of the
replication, and what a broker says to a controller: so each end is the real one.
"""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.broker.failover.decider import DeciderSilent
from aerobee.remoting.wire.bodies.controller import EpochEntryCache
from aerobee.remoting.wire.bodies.data_version import DataVersion
from aerobee.remoting.wire.bodies.register_broker import RegisterBrokerBody
from aerobee.remoting.wire.headers.namesrv import RegisterBroker
from aerobee.store.files.disk import Disk
from aerobee.store.format.epoch_file import EPOCH_FILE_NAME
from aerobee.store.format.epochs import Epoch
from tests.interop.test_controller import CONNECT, broker
from tests.kit.java import Toolkit, toolkit
from tests.kit.java_controller import JavaControllers
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.ports import HOST, free_port
from tests.kit.raw_client import RawConnection, send_fields, topic_fields
from tests.kit.running_store import put_in_time, running_store
from tests.kit.store_model import draft
from tests.kit.waiting import eventually
from tests.store.replication.test_membership import MEMBERS, Node, port_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from aerobee.broker.failover.decider import Sight
    from tests.interop.test_controller import Broker

pytestmark = pytest.mark.interop

GROUP, TOPIC, SEGMENT = "broker-a", "mixed", 131_072
CREATE_TOPIC, SEND, REPLICA_INFO, EPOCHS = 17, 310, 1004, 1007
WITHIN_S = 90
"""For what takes seconds on a machine that has nothing else to do."""
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log_bytes": SEGMENT,
    "mapped_file_size_consume_queue_bytes": 20_000,
}


@pytest.fixture(params=["5.4.0", "5.5.0"])
def java(request: pytest.FixtureRequest) -> Toolkit:
    return toolkit(request.param)


@pytest.fixture
def controllers(java: Toolkit, tmp_path: Path) -> Iterator[JavaControllers]:
    started = JavaControllers(java, tmp_path / "controllers")
    yield started
    started.stop()


@asynccontextmanager
async def node(root: Path, member: int) -> AsyncIterator[Node]:
    """One of ours."""
    async with running_store(root, Disk(), in_group=True, **SIZES) as store:
        yield Node(store, store.join_group(member, MEMBERS))


def java_member(
    java: Toolkit, controllers: JavaControllers, data: Path, *, names: str = ""
) -> JavaBroker:
    settings = {
        "enableControllerMode": "true",
        "controllerAddr": controllers.text,
        "mappedFileSizeCommitLog": SEGMENT,
        "allAckInSyncStateSet": "true",
        # One that stands still for ten seconds, as on a busy machine, is elected again: it begins
        # another epoch, of which these tests would have to know.
        "controllerHeartBeatTimeoutMills": 600_000,
    }
    home = data.with_name(f"{data.name}-home")
    return JavaBroker(toolkit=java, data=data, home=home, settings=settings, namesrv_address=names)


def epochs_of(member: JavaBroker) -> EpochEntryCache:
    with RawConnection(member.address) as connection:
        return EpochEntryCache.from_bytes(connection.call(EPOCHS).body)


def master_of(controllers: JavaControllers) -> int:
    with RawConnection(controllers.addresses[0]) as connection:
        answer = connection.call(REPLICA_INFO, {"brokerName": GROUP})
        return int((answer.ext or {}).get("masterBrokerId") or 0)


def send(member: JavaBroker, count: int, text: str) -> int:
    """The end of the log, once so many messages are in it."""
    with RawConnection(member.address, timeout_s=20) as connection:
        assert connection.call(CREATE_TOPIC, topic_fields(TOPIC, 2)).code == 0
        for number in range(count):
            body = f"{text} {number} ".encode() * 100

            def sent(number: int = number, body: bytes = body) -> bool:
                return connection.call(SEND, send_fields(TOPIC, number % 2), body).code == 0

            eventually(sent, within_s=WITHIN_S, what="a message is stored")
    return epochs_of(member).max_offset


in_thread = trio.to_thread.run_sync


@asynccontextmanager
async def following(slave: Node, master: JavaBroker) -> AsyncIterator[None]:
    """Our slave follows Java's master for as long as the block, however often it is left."""

    async def follow() -> None:
        while True:
            with suppress(OSError):
                stream = await trio.open_tcp_stream(HOST, master.ports.ha)
                print(await slave.store.log_in.follow(stream, slave.store.dispatch))
            await trio.sleep(0.2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        yield
        nursery.cancel_scope.cancel()


async def until_it_ends_at(slave: Node, end: int) -> None:
    with trio.fail_after(WITHIN_S):
        while slave.end != end:  # noqa: ASYNC110  (sockets bring it)
            await trio.sleep(0.02)


def log_bytes(data: Path, end: int) -> bytes:
    """The log of a directory up to an offset."""
    return b"".join(path.read_bytes() for path in sorted((data / "commitlog").iterdir()))[:end]


@pytest.mark.trio
async def test_our_slave_has_the_log_and_the_epochs_of_java(
    java: Toolkit, controllers: JavaControllers, tmp_path: Path
) -> None:
    theirs, ours, again = tmp_path / "theirs", tmp_path / "ours", tmp_path / "again"
    master = java_member(java, controllers, theirs)
    with master:
        end = await in_thread(send, master, 140, "first")
        async with node(ours, 7) as slave:
            async with following(slave, master):
                await until_it_ends_at(slave, end)
                # Killed, it is elected again: its log goes on with another epoch.
                await in_thread(master.kill)
            await in_thread(master.start)
            async with following(slave, master):
                more = await in_thread(send, master, 140, "more")
                await until_it_ends_at(slave, more)
                told = await in_thread(epochs_of, master)
                expected = tuple(Epoch(row.epoch, row.start_offset) for row in told.epoch_list)
                assert [epoch.start for epoch in expected] == [0, end]
                assert slave.epochs == expected
                with trio.fail_after(WITHIN_S):
                    while slave.membership.group.confirmed != more:  # noqa: ASYNC110  (see above)
                        await trio.sleep(0.02)
        await in_thread(master.stop)
    assert more > 2 * SEGMENT
    assert log_bytes(ours, more) == log_bytes(theirs, more)
    assert (ours / EPOCH_FILE_NAME).read_bytes() == (theirs / EPOCH_FILE_NAME).read_bytes()
    # Java opens our directory as a member, and we open Java's.
    shutil.copytree(ours, again)
    async with node(theirs, 1) as opened:
        assert (opened.end, opened.epochs) == (more, expected)
    with java_member(java, controllers, again) as opened_by_java:
        found = await in_thread(epochs_of, opened_by_java)
        rows = tuple(Epoch(row.epoch, row.start_offset) for row in found.epoch_list)
        assert (found.max_offset, rows[:2]) == (more, expected)


class Registered:
    """Our master at a name server: from there a Java slave has the address of its log."""

    def __init__(self, address: str, ha_address: str) -> None:
        self._header = RegisterBroker(
            broker_name=GROUP,
            broker_addr=address,
            cluster_name="DefaultCluster",
            ha_server_addr=ha_address,
            broker_id=0,
        )

    async def stay(self, names: str, *, task_status: trio.TaskStatus[None]) -> None:
        """Be registered until cancelled."""
        body = RegisterBrokerBody.of({}, DataVersion()).to_bytes()
        async with CONNECT(names) as link:
            answer = await link.call(int(RegisterBroker.code), self._header, body, 10.0)
            assert answer.code == 0, answer.remark
            task_status.started()
            # A name server keeps what is registered for as long as its connection is open.
            await trio.sleep_forever()


@pytest.mark.trio
async def test_a_java_slave_has_the_log_and_the_epochs_of_ours(
    java: Toolkit, controllers: JavaControllers, tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    namesrv = JavaNamesrv(java, tmp_path / "names")
    own = free_port()
    async with (
        node(ours, 1) as master,
        port_of(master) as port,
        broker(controllers, tmp_path, GROUP, own, cluster="DefaultCluster") as member,
        trio.open_nursery() as nursery,
    ):
        # Java asks for tables as well; that nobody answers there costs it log lines.
        taken = await member.lead()
        assert taken.record is not None
        await master.lead(taken.record.epoch)
        end = await filled(master, 150)
        registered = Registered(f"{HOST}:{own}", f"{HOST}:{port}")
        await nursery.start(registered.stay, namesrv.address)
        slave = java_member(java, controllers, theirs, names=namesrv.address)
        nursery.start_soon(leading, member, taken)
        await in_thread(slave.launch)
        await until_it_has(slave, master, end)
        follower = master.store.log_out.followers[0]
        assert follower.name == "member 2"
        # The next epoch over the same connection, as after an election of the same master.
        master.store.log_out.close()
        master.store.leave_lead()
        await master.lead(taken.record.epoch + 4)
        more = await filled(master, 150)
        master.membership.group.confirm(more, more)
        await until_it_has(slave, master, more)
        told = await in_thread(epochs_of, slave)
        rows = tuple(Epoch(row.epoch, row.start_offset) for row in told.epoch_list)
        assert (told.max_offset, told.broker_id, rows) == (more, 2, master.epochs)
        await in_thread(slave.stop)
        nursery.cancel_scope.cancel()
    namesrv.stop()
    assert more > 2 * SEGMENT
    assert log_bytes(ours, more) == log_bytes(theirs, more)
    assert (ours / EPOCH_FILE_NAME).read_bytes() == (theirs / EPOCH_FILE_NAME).read_bytes()


async def filled(master: Node, count: int) -> int:
    """The end of our log, once so many messages more are in it."""
    for number in range(count):
        await put_in_time(master.store, draft(TOPIC, number % 2, b"ours %d " % number * 100))
        master.store.dispatch()
    return master.end


async def leading(member: Broker, taken: Sight) -> None:
    """Have the controllers know that our master lives."""
    assert taken.record is not None
    while True:
        with suppress(DeciderSilent):
            await member.decider.renew(taken.record.lease)
        await trio.sleep(0.5)


async def until_it_has(slave: JavaBroker, master: Node, end: int) -> None:
    """Until a Java slave has reported that offset."""
    with trio.fail_after(WITHIN_S):
        while master.store.log_out.held_by(1) != end:  # noqa: ASYNC110  (sockets bring it)
            await trio.sleep(0.05)
