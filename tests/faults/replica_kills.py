"""A master and its slave under load, and one of the two is killed, stopped or emptied.

The master waits for two copies. What was acknowledged is in the log of the slave at that moment.
The slave's log is the begin of its master's, byte for byte. Both are equal, their queues too, once
they have each other again. While the slave is away sends are answered with 11 or 12, and those that
do not wait for slaves are answered with 0.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aerobee.store.tools.verify import verify
from tests.faults.kills import judge
from tests.kit.campaign import Campaign
from tests.kit.history import History
from tests.kit.odd_broker import dies_at
from tests.kit.process import DidNotStart
from tests.kit.replicas import (
    FLUSH_SLAVE_TIMEOUT,
    SLAVE_NOT_AVAILABLE,
    Replicas,
    WatchedCodes,
    expect_prefix,
    log_end,
    probe,
    stored_by,
    stored_in,
)
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kit.broker_process import BrokerProcess
    from tests.kit.campaign import Cycle, Run
    from tests.kit.load import Load
    from tests.kit.replicas import Pair

CYCLES_PER_PAIR = 20
ACKS = (20, 600)
"""A fault comes after so many acknowledgements."""
ALONE_ANSWERS = 60
"""So many sends are answered with 11 while there is no slave."""
ACKS_WITHIN_S = 60.0
RECOVERY_CHANGES = 60
"""About as many changes of files as a start of a slave makes that recovers a kill."""
STALL_S = (0.1, 5.0)
"""Beyond the 2 s after which either side leaves a silent one, and beyond the 3 s of the sends."""
WAITS_S = 4.0
"""A stall of so long is one for which sends are not held up."""
GO_AWAY, SYSTEM_BUSY = 1500, 2
AWAY = {SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT}
DISKS = ("ASYNC_FLUSH", "SYNC_FLUSH")


class Ledger:
    """All that was sent to a pair, and where it is."""

    def __init__(self, run: Run, pair: Pair, *, pipelined: bool = True) -> None:
        """`pipelined`: the master stores what one connection sends in the order of the requests."""
        self.run = run
        self.pair = pair
        self.history = History(pipelined=pipelined)
        self.sent = self.acked = self.loads = 0

    @contextmanager
    def loaded(
        self, cycle: Cycle, *, alone: bool = False, also: int | None = None
    ) -> Iterator[Load]:
        """Producers send, and have been answered a number of times.

        `alone`: with no slave. `also`: an answer that the fault explains.
        """
        self.loads += 1
        load = self.pair.load(self.history, f"pair{cycle.number}.{self.loads}")
        answers = cycle.rng.randint(*ACKS)
        try:
            if alone:
                enough = ALONE_ANSWERS
                eventually(
                    lambda: len(load.refused) >= enough, within_s=ACKS_WITHIN_S, what="answers 11"
                )
            else:
                load.wait_for_acks(answers, within_s=ACKS_WITHIN_S)
            yield load
        finally:
            load.join()
        codes = {int(line.partition(":")[0]) for line in load.refused}
        assert codes <= AWAY | {also}, f"other answers than success, 11 and 12: {load.refused[:5]}"
        self.run.counts["answered 11 or 12"] += len(load.refused)

    def check_slave(self, end: int | None = None) -> None:
        """All that was acknowledged is in the files of the slave, as they are now."""
        judge(self.run, self.history, stored_by(self.pair.slave.data, self.pair.master.data))
        if end is not None:
            expect_prefix(self.pair.slave.data, self.pair.master.data, end)

    def check_equal(self) -> None:
        """The two come together again, and both have everything."""
        self.pair.until_in_sync()
        self.run.worst("KiB of log", self.pair.until_equal() >> 10)
        self.check_slave()
        judge(self.run, self.history, stored_in(self.pair.master.data))
        sent, acked = len(self.history.attempts), len(self.history.acknowledged)
        self.run.counts["sent"] += sent - self.sent
        self.run.counts["acknowledged"] += acked - self.acked
        self.sent, self.acked = sent, acked


class Life(Ledger):
    """A pair of ours, and all that was sent to it."""

    pair: Replicas

    def __init__(self, run: Run, pair: Replicas) -> None:
        super().__init__(run, pair)

    def end(self) -> None:
        """Both stop, and their files are sound by themselves."""
        for broker in (self.pair.slave, self.pair.master):
            assert broker.stop() == 0, broker.child.errors()[-2_000:]
            expect_no_errors(broker)
            checked = verify(broker.data)
            assert checked.sound, checked.damage[:5]


def expect_no_errors(broker: BrokerProcess) -> None:
    """Nothing of what happened surprised it."""
    lines = broker.child.errors().splitlines()
    odd = [line for line in lines if "Traceback" in line or '"level": "critical"' in line]
    assert not odd, odd[:3]


def pairs(run: Run, fault: Callable[[Life, Cycle], None]) -> None:
    """A fault for each cycle, with a new pair every now and then."""
    while run.more:
        rng = run.cycle().rng
        root = run.directory / f"from-{run.number}"
        disks = [{"flushDiskType": rng.choice(DISKS)} for _ in range(2)]
        with Replicas(root, of_master=disks[0], of_slave=disks[1]) as pair:
            life = Life(run, pair)
            for _ in range(CYCLES_PER_PAIR):
                fault(life, run.cycle())
                life.check_equal()
                run.done()
                if not run.more:
                    break
            life.end()


def kill_the_master(life: Life, cycle: Cycle) -> None:
    """What it has acknowledged is on the slave, which stays as it is and has nothing else."""
    pair = life.pair
    with life.loaded(cycle):
        pair.master.kill()
    life.check_slave(log_end(pair.slave.address))
    pair.master.start()


def kill_the_slave(life: Life, cycle: Cycle) -> None:
    """While it copies, and half of the times again while it recovers."""
    pair, rng = life.pair, cycle.rng
    with life.loaded(cycle), WatchedCodes(pair.master.address) as unheld:
        pair.slave.kill()
        # What is acknowledged from now on was reported before the kill.
        known = life.history.as_of(life.history.tick)
        judge(life.run, known, stored_by(pair.slave.data, pair.master.data))
        eventually(
            lambda: probe(pair.master.address) in AWAY, within_s=20, what="a send is answered 11"
        )
        if rng.random() < 0.5:
            kill_its_start(life, cycle)
        pair.slave.start()
        eventually(
            lambda: probe(pair.master.address) == 0, within_s=60, what="a send is answered 0 again"
        )
    assert set(unheld.codes) == {0}, unheld.codes


def kill_its_start(life: Life, cycle: Cycle) -> None:
    """At a change of a file, if it makes as many."""
    slave = life.pair.slave
    slave.module = dies_at(cycle.rng.randint(1, RECOVERY_CHANGES))
    try:
        slave.start()
    except DidNotStart:
        life.run.counts["kills of a start"] += 1
    slave.kill()
    slave.module = ("aerobee",)


def stall(life: Life, cycle: Cycle) -> None:
    """SIGSTOP of one side, for less or more than the other waits."""
    pair, rng = life.pair, cycle.rng
    stops_master = rng.random() < 0.5
    broker = pair.master if stops_master else pair.slave
    seconds = rng.uniform(*STALL_S)
    # What waited for a master that stood still may be refused as too old.
    with life.loaded(cycle, also=SYSTEM_BUSY if stops_master else None) as load:
        stopped(broker, seconds, None if stops_master else pair.master)
        load.wait_for_acks(load.acks + 20, within_s=ACKS_WITHIN_S)
    life.run.counts["stalls of the master" if stops_master else "stalls of the slave"] += 1


def stopped(broker: BrokerProcess, seconds: float, master: BrokerProcess | None) -> None:
    """Stop a broker for so long; the `master`, if it is another one, goes on meanwhile."""
    os.kill(broker.child.pid, signal.SIGSTOP)
    try:
        if master is not None:
            with WatchedCodes(master.address) as unheld:
                code = probe(master.address)
                assert code in AWAY, code
                threading.Event().wait(max(0.0, seconds - WAITS_S))
            assert set(unheld.codes) <= {0}, unheld.codes
        else:
            threading.Event().wait(seconds)
    finally:
        os.kill(broker.child.pid, signal.SIGCONT)


def empty_the_slave(life: Life, cycle: Cycle) -> None:
    """Its disk is lost while it copies; it begins again with the last segment of the master."""
    pair = life.pair
    with life.loaded(cycle):
        pair.empty_the_slave()
        pair.slave.start()
        eventually(
            lambda: probe(pair.master.address) == 0, within_s=60, what="a send is answered 0 again"
        )


H1 = Campaign(
    key="H1",
    title="kill -9 of a master under SYNC_MASTER: what it acknowledged is on the slave",
    unit="kills",
    t1=1,
    t2=200,
    run=lambda run: pairs(run, kill_the_master),
)
H2 = Campaign(
    key="H2",
    title="kill -9 of a slave, and of its starts",
    unit="kills",
    t1=1,
    t2=100,
    run=lambda run: pairs(run, kill_the_slave),
)
H3 = Campaign(
    key="H3",
    title="SIGSTOP of a master or its slave",
    unit="stalls",
    t1=1,
    t2=100,
    run=lambda run: pairs(run, stall),
)
H4 = Campaign(
    key="H4",
    title="a slave loses its disk while it copies",
    unit="disks",
    t1=1,
    t2=20,
    run=lambda run: pairs(run, empty_the_slave),
)


FAULTS = (kill_the_master, kill_the_slave, stall, empty_the_slave)
ONE_PAIR = Campaign(
    key="H1-4",
    title="the faults of H1 to H4 in turn, with one pair",
    unit="faults",
    t1=len(FAULTS),
    t2=len(FAULTS),
    run=lambda run: pairs(run, lambda life, cycle: FAULTS[cycle.number % len(FAULTS)](life, cycle)),
)
"""What every run of the tests does of them: the start of a pair takes longer than a fault."""
