"""A slave becomes the master by a command, and refuses what would lose messages."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest
import trio

from aerobee.broker.core.role import WhileSlave
from aerobee.broker.errors import Refusal
from aerobee.broker.replication.following import State
from aerobee.broker.replication.promotion import Promotion
from aerobee.broker.replication.saved_role import read_role
from aerobee.remoting.wire.headers.admin import Promote
from aerobee.store.files.disk import Disk
from tests.broker.desk import said
from tests.broker.replication.pairs import open_pair, until_true

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.remoting.server.peer import Peer
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from tests.broker.replication.pairs import Pair

pytestmark = pytest.mark.trio


class Orders:
    """The promotion of a slave, and what the name servers were told."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.told: list[bool] = []
        self.promotion = Promotion(
            pair.slave.broker.core,
            pair.following,
            pair.link.connect,
            lambda: self.told.append(pair.slave.broker.core.role.is_slave),
        )

    async def promote(self, accepted: str | None = None) -> Answer:
        header = Promote(accepted=accepted)
        return await self.promotion.promote(header, cast("Command", None), cast("Peer", None))


@asynccontextmanager
async def copied(root: Path) -> AsyncIterator[Orders]:
    """A slave that has three messages of its master, which is gone."""
    async with open_pair(root) as pair, trio.open_nursery() as nursery:
        pair.master.topic()
        for _ in range(3):
            await pair.master.send()
        role = pair.slave.broker.core.role
        await nursery.start(WhileSlave(role, [pair.following]).run)
        await until_true(lambda: pair.equal)
        yield Orders(pair)
        nursery.cancel_scope.cancel()


async def test_it_is_refused_while_the_master_answers(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        slave = orders.pair.slave
        with pytest.raises(Refusal, match=r"master-alive: .* stop it first"):
            await orders.promote()
        # Also when only its other port answers.
        orders.pair.following.state = State.UNREACHABLE
        with pytest.raises(Refusal, match="master-alive"):
            await orders.promote("behind;diverged")
        assert slave.broker.core.role.is_slave
        assert read_role(Disk(), slave.store.root) is None
        assert not orders.told
        await orders.pair.master.send()
        await until_true(lambda: orders.pair.equal)


async def test_the_new_master_goes_on_where_the_log_ends(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        slave, end = orders.pair.slave, orders.pair.master.store.commit_log.max_offset
        answer = said(await orders.promote("master-alive"))
        assert answer == {"maxOffset": str(end), "epoch": "1"}
        assert orders.told == [False]
        saved = read_role(Disk(), slave.store.root)
        assert saved is not None
        assert (saved.broker_role, saved.epoch, saved.offset) == ("ASYNC_MASTER", 1, end)
        slave.topic()
        sent = await slave.send()
        assert (sent.code, said(sent)["queueOffset"]) == (0, "3")
        # What the old master puts does not come any more.
        await orders.pair.master.send()
        assert slave.store.commit_log.max_offset > end
        with pytest.raises(Refusal, match="a master already"):
            await orders.promote("master-alive")


async def test_what_the_master_had_announced_and_is_not_here_is_a_reason(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        orders.pair.link.down = True
        following, store = orders.pair.following, orders.pair.slave.store
        following.state = State.UNREACHABLE
        store.log_in.master_offset += 10
        with pytest.raises(Refusal, match="behind: 10 bytes"):
            await orders.promote()
        following.state, following.problem = State.DIVERGED, "at offset 7"
        with pytest.raises(Refusal, match="diverged: the logs differ: at offset 7"):
            await orders.promote("behind")
        assert (await orders.promote("behind;diverged")).code == 0


async def test_without_a_master_there_is_no_reason_against_it(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        orders.pair.link.down = True
        orders.pair.following.state = State.UNREACHABLE
        assert (await orders.promote()).code == 0


async def test_a_master_is_not_promoted(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        with pytest.raises(Refusal, match="this broker is a master already"):
            await pair.master.ask(Promote())
