"""A broker as a slave: what it serves, what it refuses, and what it serves as the master later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.config.settings.replication import ReplicationConfig
from aerobee.broker.core.role import Role
from aerobee.broker.replication.slave_guard import SlaveGuard
from aerobee.remoting.server.routes import Route, finished
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.group import DeleteGroup
from aerobee.remoting.wire.headers.offset import QueryConsumerOffset, UpdateConsumerOffset
from aerobee.remoting.wire.headers.topic import DeleteTopicInBroker
from aerobee.store.results import PutStatus
from tests.broker.desk import open_desk, said, send_header

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.remoting.server.routes import Steps

pytestmark = pytest.mark.trio

SLAVE: dict[str, Any] = {"broker_role": BrokerRole.SLAVE, "broker_id": 1}


async def test_a_slave_stores_nothing_and_says_why(tmp_path: Path) -> None:
    async with open_desk(tmp_path, **SLAVE) as desk:
        desk.topic()
        answer = await desk.send()
        assert answer.code == Code.SYSTEM_BUSY
        assert str(answer.remark).startswith("[REJECTREQUEST]")
        answer = await desk.ask(DeleteTopicInBroker(topic="t"))
        assert (answer.code, desk.topics.is_known("t")) == (Code.SYSTEM_ERROR, True)
        assert "from slave broker" in str(answer.remark)
        assert (await desk.ask(DeleteGroup(group_name="g"))).code == Code.SYSTEM_ERROR
        assert desk.store.commit_log.max_offset == 0


async def test_nothing_inside_of_a_slave_can_put(tmp_path: Path) -> None:
    async with open_desk(tmp_path, **SLAVE) as desk:
        desk.topic()
        result = desk.store.writer.put_copies("t", 0, [])
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "this broker is a slave" in desk.store.flags.cause
        assert desk.store.flags.fault == ""


async def test_consumers_keep_offsets_at_a_slave(tmp_path: Path) -> None:
    async with open_desk(tmp_path, **SLAVE) as desk:
        desk.topic(read_queue_nums=1, write_queue_nums=1)
        desk.groups.update(SubscriptionGroupConfig(group_name="g"), 0)
        commit = UpdateConsumerOffset(consumer_group="g", topic="t", queue_id=0, commit_offset=7)
        assert (await desk.ask(commit)).code == Code.SUCCESS
        asked = QueryConsumerOffset(consumer_group="g", topic="t", queue_id=0)
        assert (await desk.ask(asked)).code == Code.SUCCESS


async def test_of_a_group_only_the_master_keeps_offsets(tmp_path: Path) -> None:
    async with open_desk(tmp_path, **SLAVE) as desk:
        role = desk.broker.core.role
        guard = SlaveGuard(role, reads=lambda: True, in_group=True)
        kept = Answer()
        route = Route(UpdateConsumerOffset, lambda *_: kept, "client")
        (guarded,) = guard.routes([route])
        commit = UpdateConsumerOffset(consumer_group="g", topic="t", queue_id=0, commit_offset=7)
        answer = guarded.handler(commit, cast("Any", None), cast("Any", None))
        assert isinstance(answer, Answer)
        assert "not the master of its group" in str(answer.remark)
        role.is_slave = False
        assert guarded.handler(commit, cast("Any", None), cast("Any", None)) is kept
        # Its lease is over, and nobody has noticed yet.
        role.fenced = lambda: True
        assert guarded.handler(commit, cast("Any", None), cast("Any", None)) == answer


@pytest.mark.parametrize("waits", ["in steps", "in its pool"])
async def test_what_waited_while_the_master_became_a_slave_is_refused(waits: str) -> None:
    role, done = Role(slave=False), []

    def serve(*_: Any) -> Any:
        def steps() -> Steps:
            yield
            yield
            done.append("steps")
            return Answer()

        async def work() -> Answer:
            done.append("work")
            return Answer()

        return steps() if waits == "in steps" else work()

    guard = SlaveGuard(role, reads=lambda: True, in_group=False)
    (route,) = guard.routes([Route(DeleteGroup, serve, "admin")])
    for slave in (False, True):
        role.is_slave = False
        outcome: Any = route.handler(DeleteGroup(group_name="g"), None, None)
        if waits == "in steps":
            next(outcome)
        role.is_slave = slave
        answer: Any = finished(outcome) if waits == "in steps" else await outcome
        assert ("from slave broker" in (answer.remark or "")) is slave
    assert len(done) == 1


async def test_a_consumer_ahead_of_a_slave_keeps_its_offset(tmp_path: Path) -> None:
    async with open_desk(tmp_path, **SLAVE) as desk:
        desk.topic()
        answer = await desk.pull(queue_offset=900)
        assert answer.code == Code.PULL_RETRY_IMMEDIATELY
        assert said(answer)["nextBeginOffset"] == "900"
    check = ReplicationConfig(offset_check_in_slave=True)
    async with open_desk(tmp_path, **SLAVE, replication=check) as desk:
        desk.topic()
        answer = await desk.pull(queue_offset=900)
        assert answer.code == Code.PULL_OFFSET_MOVED


async def test_a_slave_may_be_told_not_to_serve_reads(tmp_path: Path) -> None:
    no_reads = ReplicationConfig(slave_read_enable=False)
    async with open_desk(tmp_path, **SLAVE, replication=no_reads) as desk:
        desk.topic()
        assert (await desk.pull()).code == Code.SYSTEM_BUSY


async def test_a_slave_that_became_the_master_takes_sends(tmp_path: Path) -> None:
    async with open_desk(tmp_path, **SLAVE) as desk:
        desk.topic()
        assert (await desk.send()).code == Code.SYSTEM_BUSY
        desk.broker.core.role.become_master(1)
        desk.store.be_master()
        assert (await desk.send()).code == Code.SUCCESS
        runs = [route.run for route in desk.broker.routes if route.header is type(send_header())]
        assert runs != [None]


async def test_a_stop_of_a_slave_puts_nothing(tmp_path: Path) -> None:
    async with open_desk(tmp_path, **SLAVE) as desk:
        assert await desk.broker.close()
        assert desk.offsets.entries == {}
    assert not (tmp_path / "abort").exists()
