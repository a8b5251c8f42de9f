"""A pair of a Java broker and one of ours, under load, and one of the two is killed.

H11: ours is the slave. H12: Java's is. The promises are those of a pair of ours: what the master
has acknowledged is on the slave, and log and queues are the same bytes on both sides, over the ends
of segments. Every few kills there is a new pair, with the next version of RocketMQ.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aerobee.store.tools.verify import verify
from tests.faults.kills import judge
from tests.faults.replica_kills import AWAY, Ledger, expect_no_errors
from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign
from tests.kit.java import toolkit
from tests.kit.java_server import JavaBroker
from tests.kit.ports import HOST
from tests.kit.replicas import MASTER, SLAVE, Pair, log_end, probe, stored_by
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.kit.campaign import Cycle, Run

IN_TURN = ("5.4.0", "4.9.7", "5.5.0")
CYCLES_PER_PAIR = 2
"""One of the master, one of the slave: six kills are about every version."""
TOGETHER_WITHIN_S = 120.0
"""A Java slave learns where its master is when it registers, every ten seconds."""
AS_JAVA: dict[str, object] = {
    # A JVM that starts, on a machine that others use as well, is silent for longer than ours.
    "haSendHeartbeatInterval": 5_000,
    "haHousekeepingInterval": 20_000,
    "fileReservedTime": 72,
}
JAVA: dict[str, object] = {
    **AS_JAVA,
    "slaveReadEnable": "true",
    "registerNameServerPeriod": 10_000,
}


class JavaPair(Pair):
    """One of the two is Java's."""

    java: JavaBroker
    ours: BrokerProcess

    def until_in_sync(self) -> None:
        eventually(
            lambda: probe(self.master.address) == 0,
            within_s=TOGETHER_WITHIN_S,
            what="a send that the slave has",
        )


class OfJavaMaster(JavaPair):
    """Ours follows a Java master."""

    def __init__(self, root: Path, version: str, of_ours: Mapping[str, object]) -> None:
        self.master = self.java = java_broker(root, version, "master", MASTER)
        to_master = {"haMasterAddress": f"{HOST}:{self.java.ports.ha}", "brokerIP1": HOST}
        settings = SLAVE | AS_JAVA | to_master | dict(of_ours)
        self.slave = self.ours = BrokerProcess(data=root / "slave", settings=settings)


class OfJavaSlave(JavaPair):
    """A Java slave follows ours, which it finds at our name server."""

    def __init__(self, root: Path, version: str, of_ours: Mapping[str, object]) -> None:
        settings = {**MASTER, **AS_JAVA, "haPeers": HOST, "brokerIP1": HOST, **of_ours}
        self.master = self.ours = BrokerProcess(data=root / "master", settings=settings)
        self.slave = self.java = java_broker(root, version, "slave", SLAVE)
        self.java.namesrv_address = self.ours.namesrv_address


def java_broker(root: Path, version: str, name: str, settings: Mapping[str, object]) -> JavaBroker:
    """Java's side of a pair, not started."""
    root.mkdir(parents=True, exist_ok=True)
    home = root / "java"
    java = toolkit(version)
    return JavaBroker(toolkit=java, data=root / name, home=home, settings={**settings, **JAVA})


def kills(run: Run, pair_of: Callable[[Path, str, Mapping[str, object]], JavaPair]) -> None:
    """A kill of one side in each cycle, in turn."""
    while run.more:
        rng, root = run.cycle().rng, run.directory / f"from-{run.number}"
        version = IN_TURN[run.number // CYCLES_PER_PAIR % len(IN_TURN)]
        with pair_of(
            root, version, {"flushDiskType": rng.choice(("ASYNC", "SYNC")) + "_FLUSH"}
        ) as pair:
            ledger = Ledger(run, pair, pipelined=pair.master is pair.ours)
            for _ in range(CYCLES_PER_PAIR):
                cycle = run.cycle()
                of_master = cycle.number % 2 == 0
                (kill_the_master if of_master else kill_the_slave)(ledger, cycle)
                ledger.check_equal()
                run.counts[f"kills of {'masters' if of_master else 'slaves'}, {version}"] += 1
                run.done()
                if not run.more:
                    break
            end(pair)


def kill_the_master(ledger: Ledger, cycle: Cycle) -> None:
    """What it has acknowledged is on the slave."""
    pair = ledger.pair
    with ledger.loaded(cycle):
        pair.master.kill()
    ledger.check_slave(log_end(pair.slave.address))
    pair.master.start()


def kill_the_slave(ledger: Ledger, cycle: Cycle) -> None:
    """Its master goes on without it, and acknowledges nothing that only itself has."""
    pair = ledger.pair
    with ledger.loaded(cycle):
        pair.slave.kill()
        known = ledger.history.as_of(ledger.history.tick)
        judge(ledger.run, known, stored_by(pair.slave.data, pair.master.data))
        eventually(
            lambda: probe(pair.master.address) in AWAY, within_s=30, what="a send that has no slave"
        )
        pair.slave.start()
        pair.until_in_sync()


def end(pair: JavaPair) -> None:
    """Ours stops with sound files; Java's, which takes its time for that, is killed."""
    assert pair.ours.stop() == 0, pair.ours.child.errors()[-2_000:]
    expect_no_errors(pair.ours)
    checked = verify(pair.ours.data)
    assert checked.sound, checked.damage[:5]


H11 = Campaign(
    key="H11",
    title="kill -9 of a Java master, and of its slave of ours",
    unit="kills",
    t1=2,
    t2=96,
    run=partial(kills, pair_of=OfJavaMaster),
    java=True,
)
H12 = Campaign(
    key="H12",
    title="kill -9 of a Java slave, and of its master of ours",
    unit="kills",
    t1=2,
    t2=96,
    run=partial(kills, pair_of=OfJavaSlave),
    java=True,
)
