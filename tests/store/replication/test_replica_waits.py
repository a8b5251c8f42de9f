from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from aerobee.store.config import FlushDiskType
from aerobee.store.files.disk import Disk
from aerobee.store.format.ha import encode_report
from aerobee.store.message_store import MessageStore
from aerobee.store.results import PutOutcome
from tests.kit.running_store import TrioClock, roll_at_once
from tests.kit.store_model import draft, small_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Slave:
    """A slave that receives everything and reports when the test says so."""

    def __init__(self) -> None:
        self.ours, self.theirs = memory_stream_pair()

    async def report(self, end: int) -> None:
        await self.theirs.send_all(encode_report(end))
        await wait_all_tasks_blocked()


@asynccontextmanager
async def waiting_store(root: Path, needed: int = 1, **changes: Any) -> AsyncIterator[MessageStore]:
    store = MessageStore(small_config(root, **changes), disk=Disk(), clock=TrioClock())
    store.wait_for_slaves(needed, 3.0)
    roll_at_once(store)
    store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield store
        nursery.cancel_scope.cancel()
    await store.close()


@asynccontextmanager
async def slaves_of(store: MessageStore, *hosts: str) -> AsyncIterator[list[Slave]]:
    async with trio.open_nursery() as nursery:
        slaves = []
        for host in hosts:
            slave = Slave()
            nursery.start_soon(store.log_out.serve, slave.ours, host, f"{host}:1")
            await slave.report(0)
            slaves.append(slave)
        yield slaves
        nursery.cancel_scope.cancel()


def put(store: MessageStore, answers: list[PutOutcome]) -> int:
    end = store.put(draft()).end_offset
    store.when_durable(end, answers.append)
    store.dispatch()
    return end


@pytest.mark.trio
async def test_one_report_answers_all_that_wait_for_it(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    answers: list[PutOutcome] = []
    async with waiting_store(tmp_path) as store, slaves_of(store, "10.0.0.2") as [slave]:
        ends = [put(store, answers) for _ in range(20)]
        await wait_all_tasks_blocked()
        assert answers == []
        await slave.report(ends[9])
        assert answers == [PutOutcome.DURABLE] * 10
        await slave.report(ends[10] - 1)
        assert len(answers) == 10
        await slave.report(ends[-1])
        assert answers == [PutOutcome.DURABLE] * 20


@pytest.mark.trio
async def test_without_a_slave_it_is_said_at_once(tmp_path: Path, mock_clock: MockClock) -> None:
    answers: list[PutOutcome] = []
    async with waiting_store(tmp_path, 2) as store, slaves_of(store, "10.0.0.2", "10.0.0.2"):
        put(store, answers)
        assert answers == [PutOutcome.NO_SLAVE]
        assert not answers[0]


@pytest.mark.trio
async def test_two_slaves_are_two_machines_that_have_it(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    answers: list[PutOutcome] = []
    async with (
        waiting_store(tmp_path, 2) as store,
        slaves_of(store, "10.0.0.2", "10.0.0.3") as [one, other],
    ):
        end = put(store, answers)
        await one.report(end)
        assert answers == []
        await other.report(end)
        assert answers == [PutOutcome.DURABLE]


@pytest.mark.trio
async def test_a_late_slave_is_waited_for_only_so_long_and_holds_up_nobody_else(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    answers: list[PutOutcome] = []
    async with waiting_store(tmp_path) as store, slaves_of(store, "10.0.0.2") as [slave]:
        first = put(store, answers)
        await wait_all_tasks_blocked()
        mock_clock.jump(2.9)
        second = put(store, answers)
        await wait_all_tasks_blocked()
        assert answers == []
        mock_clock.jump(0.2)
        await wait_all_tasks_blocked()
        assert answers == [PutOutcome.SLAVE_LATE]
        assert not answers[0]
        await slave.report(second)
        assert first < second
        assert answers == [PutOutcome.SLAVE_LATE, PutOutcome.DURABLE]


@pytest.mark.trio
async def test_a_report_that_cannot_be_true_answers_nobody(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    answers: list[PutOutcome] = []
    async with waiting_store(tmp_path) as store, slaves_of(store, "10.0.0.2") as [slave]:
        put(store, answers)
        await slave.report(1 << 40)
        assert answers == []


@pytest.mark.trio
async def test_under_sync_flush_disk_and_slave_must_have_it(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    answers: list[PutOutcome] = []
    sync: dict[str, Any] = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
    async with waiting_store(tmp_path, **sync) as store, slaves_of(store, "10.0.0.2") as [slave]:
        end = put(store, answers)
        flushed = trio.Event()
        store.when_on_disk(end, lambda _: flushed.set(), background=True)
        await flushed.wait()
        await wait_all_tasks_blocked()
        assert answers == []
        await slave.report(end)
        assert answers == [PutOutcome.DURABLE]


def test_only_what_is_everywhere_is_true() -> None:
    assert [kept for kept in PutOutcome if kept] == [PutOutcome.DURABLE]


@pytest.mark.trio
async def test_answered_senders_are_forgotten_before_their_deadline(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """Thousands of them would be looked at in one step when it comes."""
    answers: list[PutOutcome] = []
    async with waiting_store(tmp_path) as store, slaves_of(store, "10.0.0.2") as [slave]:
        ends = [put(store, answers) for _ in range(20)]
        await slave.report(ends[9])
        assert store.replicas.senders == 10
        await slave.report(ends[-1])
        assert store.replicas.senders == 0
