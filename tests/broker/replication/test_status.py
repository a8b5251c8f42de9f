"""Where the master is (906, 908), and how a slave stands to it (907).

How far slaves are, as a master tells it, is in `test_slaves`: it needs connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio

from aerobee.remoting.wire.headers.admin import (
    ExchangeBrokerHaInfo,
    GetBrokerHaStatus,
    ResetMasterFlushOffset,
)
from aerobee.remoting.wire.headers.controller import GetBrokerEpochCache, NotifyBrokerRoleChanged
from tests.broker.desk import body_of, open_desk, said
from tests.broker.replication.pairs import open_pair, until_true

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.desk import Desk

pytestmark = pytest.mark.trio


async def test_a_master_says_where_it_is_and_where_its_log_ended_at_the_start(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        assert said(await desk.ask(ExchangeBrokerHaInfo()))["masterFlushOffset"] == "0"
        await desk.send()
        end = desk.store.commit_log.max_offset
        assert said(await desk.ask(ExchangeBrokerHaInfo()))["masterFlushOffset"] == "0"
    async with open_desk(tmp_path) as desk:
        await desk.send()
        answer = said(await desk.ask(ExchangeBrokerHaInfo()))
        broker = desk.config.broker
        port = desk.config.remoting.listen_port
        assert answer == {
            "masterAddress": desk.broker.core.address,
            "masterFlushOffset": str(end),
            "masterHaAddress": f"{broker.broker_ip2}:{port + 1}",
        }


async def test_what_only_a_slave_takes_changes_nothing_on_a_master(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        before = said(await desk.ask(ExchangeBrokerHaInfo()))
        order = ExchangeBrokerHaInfo(
            master_ha_address="10.9.9.9:1", master_address="10.9.9.9:2", master_flush_offset=7
        )
        told = await desk.ask(order)
        assert (told.code, told.header) == (0, None)
        for header in (ResetMasterFlushOffset(master_flush_offset=3), ResetMasterFlushOffset()):
            assert (await desk.ask(header)).code == 0
        assert said(await desk.ask(ExchangeBrokerHaInfo())) == before


async def test_a_broker_without_a_group_answers_a_controller_as_java_s_does(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        refused = await desk.ask(GetBrokerEpochCache())
        assert (refused.code, refused.remark) == (1, "this request only for controllerMode ")
        told = await desk.ask(NotifyBrokerRoleChanged(master_epoch=2, master_broker_id=1))
        assert (told.code, desk.broker.core.role.is_slave) == (0, False)


async def told_by(desk: Desk) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(body_of(await desk.ask(GetBrokerHaStatus())))
    return found


async def test_a_slave_says_whom_it_follows_and_why_not(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair, trio.open_nursery() as nursery:
        status = pair.slave.broker.replication.status
        status.following = pair.following
        pair.link.down = True
        nursery.start_soon(pair.following.run)
        await until_true(lambda: bool(pair.link.refused))
        before = await told_by(pair.slave)
        client = before["haClientRuntimeInfo"]
        assert (before["master"], before["masterCommitLogMaxOffset"]) == (False, 0)
        assert (client["state"], client["activated"]) == ("unreachable", False)
        assert "refused" in client["problem"]
        assert client["lastReadTimestamp"] == 0
        nursery.cancel_scope.cancel()
    async with open_pair(tmp_path / "second") as pair, trio.open_nursery() as nursery:
        pair.slave.broker.replication.status.following = pair.following
        pair.master.topic()
        await pair.master.send()
        nursery.start_soon(pair.following.run)
        end = pair.master.store.commit_log.max_offset
        await until_true(lambda: pair.equal)
        after = await told_by(pair.slave)
        client = after["haClientRuntimeInfo"]
        assert after["haConnectionInfo"] == []
        assert (client["state"], client["activated"], client["problem"]) == ("following", True, "")
        assert (client["maxOffset"], client["masterFlushOffset"]) == (end, end)
        assert pair.following.address is not None
        assert client["masterAddr"] == pair.following.address.ha_address
        assert client["lastReadTimestamp"] > 0
        # A slave does not say where a master is.
        assert (await pair.slave.ask(ExchangeBrokerHaInfo())).header is None
        nursery.cancel_scope.cancel()
