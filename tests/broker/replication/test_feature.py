"""Sends of a SYNC_MASTER: what its answers say of its slaves."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.config.settings.replication import ReplicationConfig
from aerobee.remoting.server.routes import HELD
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.admin import GetBrokerRuntimeInfo
from aerobee.remoting.wire.headers.send import ConsumerSendMsgBack
from aerobee.store.format.ha import encode_report
from tests.broker.desk import body_of, open_desk, send_header

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.broker.desk import Desk

pytestmark = pytest.mark.trio

SYNC_MASTER: dict[str, Any] = {
    "broker_role": BrokerRole.SYNC_MASTER,
    "replication": ReplicationConfig(ha_peers="10.0.0.2", in_sync_replicas=2),
}


@asynccontextmanager
async def slave_of(desk: Desk) -> AsyncIterator[trio.abc.Stream]:
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.store.log_out.serve, ours, "10.0.0.2", "10.0.0.2:1")
        await theirs.send_all(encode_report(0))
        await wait_all_tasks_blocked()
        yield theirs
        nursery.cancel_scope.cancel()


async def test_a_send_is_answered_when_a_slave_has_it(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path, **SYNC_MASTER) as desk, slave_of(desk) as slave:
        desk.topic()
        assert desk.begin(send_header(), b"hello") is HELD
        desk.after_round()
        await wait_all_tasks_blocked()
        assert desk.peer.answers == []
        await slave.send_all(encode_report(desk.store.commit_log.max_offset))
        answer = await desk.peer.next_answer()
        assert answer.code == Code.SUCCESS


async def test_a_slave_that_is_late_is_told_with_the_whole_header(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path, **SYNC_MASTER) as desk, slave_of(desk):
        desk.topic()
        assert desk.begin(send_header(), b"hello") is HELD
        desk.after_round()
        await wait_all_tasks_blocked()
        mock_clock.jump(3.1)
        answer = await desk.peer.next_answer()
        assert answer.code == Code.FLUSH_SLAVE_TIMEOUT
        assert answer.header is not None
        assert desk.store.max_offset("t", 0) == 1


async def test_without_a_slave_that_is_the_answer_at_once(tmp_path: Path) -> None:
    async with open_desk(tmp_path, **SYNC_MASTER) as desk:
        desk.topic()
        answer = await desk.send()
        assert answer.code == Code.SLAVE_NOT_AVAILABLE
        assert desk.store.max_offset("t", 0) == 1


async def test_who_does_not_wait_is_answered_at_once(tmp_path: Path) -> None:
    async with open_desk(tmp_path, **SYNC_MASTER) as desk:
        desk.topic()
        answer = await desk.send(properties="WAIT\x01false\x02")
        assert answer.code == Code.SUCCESS


async def test_an_asynchronous_master_waits_for_nobody(tmp_path: Path) -> None:
    replication = ReplicationConfig(ha_peers="10.0.0.2", in_sync_replicas=2)
    async with open_desk(tmp_path, replication=replication) as desk:
        desk.topic()
        assert (await desk.send()).code == Code.SUCCESS
        assert not desk.store.replicas.is_on


async def test_what_a_consumer_sends_back_waits_for_no_slave(tmp_path: Path) -> None:
    """A client that is told of a late slave sends the message again, and both are retried."""
    async with open_desk(tmp_path, **SYNC_MASTER) as desk:
        desk.topic()
        await desk.send()
        record = desk.records("t")[-1]
        header = ConsumerSendMsgBack(offset=record.physical_offset, group="g", delay_level=3)
        assert (await desk.ask(header)).code == Code.SUCCESS


async def test_a_master_says_in_a_few_words_how_its_slaves_stand(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path / "sync", **SYNC_MASTER) as desk:
        told = desk.broker.replication.told
        assert told() == "0 of 1 slaves in sync"
        lacking = desk.broker.replication.lacking
        assert "0 of 1 slaves are in sync" in str(lacking())
        async with slave_of(desk):
            assert lacking() is None
            assert told() == "1 of 1 slaves in sync"
    replication = ReplicationConfig(ha_peers="10.0.0.2")
    async with open_desk(tmp_path / "async", replication=replication) as desk:
        told = desk.broker.replication.told
        assert told() == "no slave"
        async with slave_of(desk):
            assert told() == "1 of 1 slaves in sync"
    async with open_desk(tmp_path / "alone") as desk:
        assert desk.broker.replication.told() == ""


async def test_a_slave_says_its_state(tmp_path: Path) -> None:
    role: dict[str, Any] = {"broker_role": BrokerRole.SLAVE, "broker_id": 1}
    async with open_desk(tmp_path, **role) as desk:
        info = json.loads(body_of(await desk.ask(GetBrokerRuntimeInfo())))["table"]
        assert info["aerobeeReplication"] == "searching"
