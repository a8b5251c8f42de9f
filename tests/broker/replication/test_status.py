"""Where the master is: EXCHANGE_BROKER_HA_INFO and RESET_MASTER_FLUSH_OFFSET on a master.

How far slaves are, code 907, is in `test_slaves`: it needs connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.remoting.wire.headers.admin import ExchangeBrokerHaInfo, ResetMasterFlushOffset
from tests.broker.desk import open_desk, said

if TYPE_CHECKING:
    from pathlib import Path

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
