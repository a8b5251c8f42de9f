"""Background services whose part of the disk fails for a while: each goes on when it is over.

A whole life of a broker without its sockets, with all of its services. What one service asks of
the disk, in the loop or in a thread, fails with one error for some seconds, while clients send
messages of every kind, leave transactions open and ask for keys. What is read lies on the disk, not
in memory. Then nothing may have ended: the broker takes sends, delivers what was delayed, stops
clean, and its directory is sound. Syncs are left out: the first that fails is final
(`nth_failures` has them).
"""

from __future__ import annotations

import errno
import inspect
import itertools
import os
import shutil
from collections import Counter
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import trio
from trio.testing import MockClock

from aerobee.broker.broker import Broker
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.pop import PopMessage
from aerobee.remoting.wire.headers.query import QueryMessage
from aerobee.store.config import FlushDiskType
from aerobee.store.format import properties
from aerobee.store.format.record import read
from aerobee.store.tools.verify import verify
from tests.broker.desk import Caller, Desk, broker_config, send_header
from tests.faults.nth_failures import SMALL, TOPIC, CrowdedDisk, Life
from tests.kit.campaign import Campaign
from tests.kit.running_store import TrioClock
from tests.kit.store_model import check_directory, log_records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.broker.core.feature import Service
    from tests.kit.campaign import Run

ERRORS: Final = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EACCES, errno.ESTALE, errno.ENOMEM)
SYNCS: Final = frozenset({"fsync", "fdatasync"})
USES_DISK: Final = (
    "MessageStore",
    "Saver",
    "HalfMessages",
    "Dedupe",
    "Timers",
    "Schedule",
    "Revive",
    "KeyQueries",
)
"""Services that ask the disk for something in such a life: a campaign fails each in turn."""
AT_THE_START: Final = "Dedupe"
"""It reads when it starts, and never again: it has its outage then, in a second life."""
OUTAGE_S: Final = 12.0
OVER_WITHIN_S: Final = 300.0
SENDS: Final = 6
PREPARED: Final = 4
"""The flag of a half message."""
FOR_EVER_MS: Final = 1 << 60

OUTAGES: Final = tuple(itertools.product(USES_DISK, ERRORS))

working: ContextVar[str] = ContextVar("working", default="")
"""The service on whose behalf the disk is asked; threads inherit it."""


def name_of(service: Service) -> str:
    """The name of a service in docs/services.md."""
    return type(service).__name__


def names_of_services(root: Path) -> list[str]:
    """Those of a broker with all features, in the order of their start."""
    return list(dict.fromkeys(map(name_of, whole_broker(root, CrowdedDisk(root)).services)))


def whole_broker(root: Path, disk: CrowdedDisk) -> Broker:
    """A broker with every feature that has a service, on small files."""
    config = broker_config(
        root,
        flush_disk_type=FlushDiskType.ASYNC_FLUSH,
        dedupe=f"{TOPIC}=KEYS@60s",
        recall_message_enable=True,
        transaction_time_out_ms=1_000,
        transaction_check_interval_ms=1_000,
        access_message_in_memory_max_ratio_percent=0,
        **SMALL,
    )
    return Broker(config, disk=disk, clock=TrioClock())


class OutageDisk(CrowdedDisk):
    """While `broken` names a service, what it asks for fails with `error`."""

    broken = ""
    error = 0
    refused: Counter[str]

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.broken and working.get() == self.broken and function.__name__ not in SYNCS:
            self.refused[function.__name__] += 1
            if function is os.close:
                # As Linux does: it is closed all the same.
                super()._call(function, *args, **kwargs)
            raise OSError(self.error, os.strerror(self.error), str(args[0]))
        return super()._call(function, *args, **kwargs)


class ServicesLife(Life):
    """One broker with all its services, one of which has an outage of its disk."""

    disk: OutageDisk

    def __init__(self, root: Path, service: str, error: int) -> None:
        super().__init__(root, OutageDisk(root), FlushDiskType.ASYNC_FLUSH)
        self.disk.refused = Counter()
        self.disk.error = error
        self.service = service

    def live(self) -> None:
        """All of it; nothing may end it."""
        trio.run(self._run, clock=MockClock(autojump_threshold=0.0))

    async def _run(self, *, work: bool = True) -> None:
        desk = Desk(whole_broker(self.root, self.disk), prepares=True)
        desk.load()
        if self.service == AT_THE_START and self.acked:
            self.disk.broken = self.service
        try:
            async with trio.open_nursery() as nursery:
                for service in desk.broker.services:
                    working.set(name_of(service))
                    await nursery.start(service.run)
                working.set("")
                await self._work(desk)
                await desk.broker.close()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                self.clean = await desk.store.close()

    async def _work(self, desk: Desk) -> None:
        desk.topic(TOPIC, read_queue_nums=2, write_queue_nums=2)
        await desk.saver.save_all()
        first = len(self.acked)
        await self._traffic(desk, first)
        self.disk.broken = self.service
        await self._traffic(desk, first + SENDS)
        await trio.sleep(OUTAGE_S)
        self.disk.broken = ""
        before = len(self.acked)
        with trio.fail_after(OVER_WITHIN_S):
            while len(self.acked) == before:
                await trio.sleep(1)
                await self._send(desk, 10_000 + int(trio.current_time()))
            await self._all_delivered(desk)
            while not await desk.store.flush_queues():  # noqa: ASYNC110 - nobody tells
                await trio.sleep(1)
            while desk.store.index.behind_bytes:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(1)
        assert not desk.store.flags.refusing, desk.store.flags

    async def _traffic(self, desk: Desk, first: int) -> None:
        """Messages at once, after a delay, at a time; a transaction that nobody ends, a query of
        keys, and pops that nobody acknowledges.
        """
        for number in range(first, first + SENDS):
            await self._send(desk, number)
            await self._delayed(desk, number)
            await trio.sleep(0.2)
        half = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": f"H{first}"}
        await desk.ask(
            send_header("later", sys_flag=PREPARED, properties=properties.encode(half)), b"half"
        )
        await self._query(desk)
        with trio.move_on_after(2):
            await desk.ask(
                PopMessage(
                    consumer_group="g",
                    topic=TOPIC,
                    queue_id=-1,
                    max_msg_nums=4,
                    invisible_time=10_000,
                    poll_time=0,
                    born_time=desk.clock.now_ms(),
                    init_mode=0,
                )
            )

    async def _query(self, desk: Desk) -> None:
        """For a key, on a connection of its own: its answer may be the error."""
        peer = Caller("127.0.0.1:50001")
        header = QueryMessage(
            topic=TOPIC, key="k1", max_num=8, begin_timestamp=0, end_timestamp=FOR_EVER_MS
        )
        outcome = desk.handlers[header.code](header, Command(code=header.code), peer)
        if inspect.isawaitable(outcome):
            await outcome
        with trio.fail_after(OVER_WITHIN_S):
            while not peer.answers:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.1)

    async def _delayed(self, desk: Desk, number: int) -> None:
        """One by its level, one by its time; they come back in a topic of their own."""
        for named in ({"DELAY": "1"}, {"TIMER_DELAY_SEC": "3"}):
            answer = await desk.ask(
                send_header("later", properties=properties.encode(named)), b"%d" % number
            )
            self.later += answer.code == 0

    later = 0

    async def _all_delivered(self, desk: Desk) -> None:
        while True:
            queues = range(8)
            if sum(desk.store.max_offset("later", queue) for queue in queues) >= self.later:
                return
            await trio.sleep(1)


def outage(root: Path, service: str, error: int) -> ServicesLife:
    """A life with that outage; its directory is sound and holds what was acknowledged."""
    life = ServicesLife(root, service, error)
    life.live()
    if service == AT_THE_START:
        assert life.clean
        life.live()
    assert life.clean
    assert life.disk.refused or service not in USES_DISK, "it asked the disk for nothing"
    check_directory(root)
    report = verify(root)
    assert report.sound, report.damage
    there = {
        (record.queue_id, record.queue_offset): bytes(record.body)
        for record in (read(data) for _, data in log_records(root))
        if record.topic == TOPIC
    }
    for place, body in life.acked.items():
        assert there[place] == body, place
    return life


def outages(run: Run) -> None:
    """Every service that uses the disk, every error; a short run begins anywhere among them."""
    begin = run.rng.randrange(len(OUTAGES))
    for cycle in run.cycles():
        service, error = OUTAGES[(begin + cycle.number) % len(OUTAGES)]
        folder = run.directory / f"{cycle.number}"
        try:
            life = outage(folder, service, error)
        except BaseException as failure:
            failure.add_note(f"{service}, {errno.errorcode[error]}")
            raise
        shutil.rmtree(folder, ignore_errors=True)
        run.counts["acknowledged"] += len(life.acked)
        run.counts["delivered later"] += life.later
        run.counts["calls that failed"] += life.disk.refused.total()


def run_names(root: Path) -> list[str]:
    """The names of the services; a broker has to be built for them, in a loop."""

    async def ask() -> list[str]:
        return names_of_services(root)

    names: list[str] = trio.run(ask)
    shutil.rmtree(root, ignore_errors=True)
    return names


V1 = Campaign(
    key="V1",
    title="the disk of one background service fails for a while: every service, every error",
    unit="outages",
    t1=2,
    t2=len(OUTAGES),
    run=outages,
)
