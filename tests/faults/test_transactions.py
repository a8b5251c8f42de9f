"""Transactions through kills and power cuts between any two records: none lost, no ghosts.

A half, its message and the record of its end are three puts. The process ends before or behind any
one of them; the next start asks the producers, who say what they said before.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from aerobee.broker.broker import Broker
from aerobee.store.config import FlushDiskType
from aerobee.store.format.properties import decode
from tests.broker.desk import Desk, broker_config
from tests.broker.transactions.test_check_service import COMMIT, ROLLBACK, UNKNOWN, Bank
from tests.kit.faulty_disk import FaultyDisk, PowerCut
from tests.kit.history import Place, Stored, TransactionHistory
from tests.kit.running_store import TrioClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.remoting.wire.answer import Answer
    from tests.broker.desk import Caller

pytestmark = [pytest.mark.faults, pytest.mark.trio]
STEPS = 60
SETTLES_S = 150
"""Long enough for each to be asked for, and for what was left behind to come twice if it can."""
ASKED_FOR_S = 3_600
"""A fifth of the answers is "unknown": the unluckiest is asked again and again."""


class Market:
    """Producers that begin and end transactions, and remember what they did over all lives."""

    def __init__(self, random: Random, history: TransactionHistory) -> None:
        self.random = random
        self.history = history
        self.halves: dict[str, Answer] = {}

    async def begin(self, bank: Bank) -> None:
        uid = f"K{len(self.history.begun)}"
        commits = self.random.random() < 0.5
        transaction = self.history.began(uid, b"body of " + uid.encode(), commits=commits)
        self.halves[uid] = await bank.half(transaction.body, UNIQ_KEY=uid)
        transaction.acked = True

    async def end(self, bank: Bank) -> None:
        """Any of them, ended before or not: nobody changes their mind."""
        uid = self.random.choice([*self.halves])
        how = COMMIT if self.history.begun[uid].commits else ROLLBACK
        if self.random.random() < 0.7:
            await bank.end_oneway(self.halves[uid], how)
        else:
            await bank.end(self.halves[uid], how)

    async def answer(self, bank: Bank, producer: Caller) -> None:
        """What the checks asked for: a half that was never acknowledged is rolled back."""
        told, producer.told = producer.told, []
        for _, header in told:
            transaction = self.history.begun[header.msg_id]
            how = COMMIT if transaction.commits and transaction.acked else ROLLBACK
            await bank.end_oneway(header, UNKNOWN if self.random.random() < 0.2 else how)

    async def work(self, bank: Bank, producer: Caller) -> None:
        for _ in range(STEPS):
            choice = self.random.random()
            if choice < 0.5 or not self.halves:
                await self.begin(bank)
            elif choice < 0.85:
                await self.end(bank)
            else:
                await bank.pass_s(self.random.choice([1, 7, 31]))
                await self.answer(bank, producer)


@asynccontextmanager
async def life(
    root: Path, disk: FaultyDisk, cut_at: int | None = None, **changes: Any
) -> AsyncIterator[Bank]:
    """A broker from its start to a sudden end: nothing is closed and nothing saved."""
    began = TrioClock(1_700_000_000_000 + int(trio.current_time() * 1_000))
    desk = Desk(Broker(broker_config(root, **changes), disk=disk, clock=began))
    desk.load()
    put, left = desk.store.put, cut_at

    def cut(*arguments: Any, **how: Any) -> Any:
        nonlocal left
        left = None if left is None else left - 1
        if left == 0 and cut_at and cut_at % 2:
            raise PowerCut
        result = put(*arguments, **how)
        if left == 0:
            raise PowerCut
        return result

    desk.store.put = cut  # where the process ends
    with suppress(PowerCut):
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(desk.store.run)
                await nursery.start(desk.saver.run)
                await nursery.start(desk.half_messages.run)
                bank = Bank(desk)
                bank.desk.topic()
                yield bank
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if group.split(PowerCut)[1] is not None:
                raise


async def visible(bank: Bank) -> list[Stored]:
    records = await bank.desk.store.complete(bank.desk.records)
    return [
        Stored(
            Place("t", 0, record.queue_offset),
            decode(record.properties)["UNIQ_KEY"],
            bytes(record.body),
        )
        for record in records
    ]


async def asked(bank: Bank, market: Market) -> list[Stored]:
    """What is visible once every producer has answered."""
    producer, asked_s = bank.producer(), 0
    while asked_s < SETTLES_S or bank.desk.transactions.open.get("t", 0):
        assert asked_s < ASKED_FOR_S, "something was never asked for"
        await bank.pass_s(10)
        await market.answer(bank, producer)
        asked_s += 10
    # What the last answer committed can be read once it is on disk.
    await bank.desk.puts.durable()
    return await visible(bank)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("end", ["kill", "power cut"])
async def test_what_commits_is_delivered_and_nothing_else_wherever_the_broker_ended(
    tmp_path: Path, mock_clock: MockClock, end: str, seed: int
) -> None:
    random = Random(f"{end} {seed}")
    history = TransactionHistory()
    market = Market(random, history)
    root = tmp_path / "first"
    changes: dict[str, Any] = {}
    if end == "power cut":
        changes["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
    for number in range(3):
        disk = FaultyDisk(root)
        cut_at = random.randint(1, 70)
        async with life(root, disk, cut_at, **changes) as bank:
            await market.work(bank, bank.producer())
        if end == "kill":
            disk.kill()
        else:
            root = disk.power_cut(tmp_path / f"{number}", random)
    disk = FaultyDisk(root)
    async with life(root, disk, **changes) as bank:
        found = await asked(bank, market)
        assert history.verdict(found) == []
        assert sum(transaction.acked for transaction in history.begun.values()) > 10
    disk.kill()


async def test_without_an_accident_each_is_delivered_once(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    history = TransactionHistory()
    market = Market(Random(1), history)
    disk = FaultyDisk(tmp_path / "d")
    async with life(tmp_path / "d", disk) as bank:
        await market.work(bank, bank.producer())
        assert history.verdict(await asked(bank, market), once=True) == []
    disk.kill()
