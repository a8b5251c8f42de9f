"""A slave whose disk loses its power, or is full, under the load of its master.

The slave syncs before it reports, so what its master has acknowledged is on its disk at any time.
Each cut is looked into on the file system as it comes up, and the slave goes on from there.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.faults.kills import judge
from tests.faults.replica_kills import AWAY, Life
from tests.faults.test_disk_full import fill_up
from tests.kit.broker_process import BrokerProcess, MiB
from tests.kit.campaign import Campaign, Cycle
from tests.kit.health import events
from tests.kit.mounts import small_file_system
from tests.kit.odd_broker import LIES
from tests.kit.power_cut import powered
from tests.kit.replicas import Replicas, expect_prefix, log_end, probe, stored_by
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.campaign import Run
    from tests.kit.power_cut import Power

CUTS_PER_PAIR = 10
CONTROL_CUTS = 5
SYNC: dict[str, object] = {"flushDiskType": "SYNC_FLUSH"}
DISK_BYTES = 24 * MiB


def power_cuts(run: Run) -> None:
    """H5: whatever was acknowledged before a cut is on the disk of the slave."""
    with powered(run.directory / "power") as power:
        control(run, power)
        while run.more:
            root = run.directory / f"from-{run.number}"
            data = power.root / f"slave-{run.number}"
            with Replicas(root, of_slave=SYNC, slave_data=data) as pair:
                life = Life(run, pair)
                for _ in range(CUTS_PER_PAIR):
                    cut_the_slave(life, power, run.cycle())
                    life.check_equal()
                    run.done()
                    if not run.more:
                        break
                life.end()
            shutil.rmtree(data)


def control(run: Run, power: Power) -> None:
    """A slave that only says that it syncs loses what was acknowledged, and we see it."""
    data = power.root / "control"
    with Replicas(run.directory / "control", of_slave=SYNC, slave_data=data) as pair:
        pair.slave.kill()
        pair.slave.module = LIES
        pair.slave.start()
        pair.until_in_sync()
        life = Life(run, pair)
        lost = 0
        for number in range(CONTROL_CUTS):
            with life.loaded(Cycle(number, run.rng)):
                acked = {one.uid for one in life.history.as_of(life.history.tick).acknowledged}
                image = power.cut(f"control-{number}")
            with power.again(image) as at:
                there = stored_by(at / "control", pair.master.data)
                lost += len(acked - {one.uid for one in there})
            if lost:
                break
    assert lost, "nothing was lost without syncs: the cuts cut nothing"
    run.counts["lost without syncs"] += lost


def cut_the_slave(life: Life, power: Power, cycle: Cycle) -> None:
    """Cut its power, and start it again on what its disk had."""
    pair = life.pair
    with life.loaded(cycle):
        tick = life.history.tick
        image = power.cut(f"{pair.slave.data.name}-{cycle.number}")
    with power.again(image) as at:
        data = at / pair.slave.data.name
        known = life.history.as_of(tick)
        judge(life.run, known, stored_by(data, pair.master.data))
        life.run.counts["on the disk at a cut"] += len(known.acknowledged)
        again = BrokerProcess(data=data, settings=pair.slave.settings, log_path=pair.slave.log)
        pair.slave.kill()
        with again:
            end = log_end(pair.master.address)
            eventually(
                lambda: log_end(again.address) == end,
                within_s=60,
                what="the slave that lost its power has everything again",
            )
            expect_prefix(data, pair.master.data, end)
            assert again.stop() == 0
    pair.slave.start()


def full_disks(run: Run) -> None:
    """H6: the master goes on alone, and has its slave again when there is room."""
    with small_file_system(run.directory / "small", size_bytes=DISK_BYTES) as small:
        while run.more:
            root = run.directory / f"from-{run.number}"
            data = small / f"slave-{run.number}"
            with Replicas(root, slave_data=data) as pair:
                life = Life(run, pair)
                fill_the_disk(life, small, run.cycle())
                life.check_equal()
                run.done()
                life.end()
            shutil.rmtree(data)


def fill_the_disk(life: Life, small: Path, cycle: Cycle) -> None:
    """Take all room of the slave until its master's sends are not held by it any more."""
    pair = life.pair
    filler = small / "filler"
    with life.loaded(cycle):
        fill_up(filler)
        eventually(
            lambda: probe(pair.master.address) in AWAY, within_s=60, what="a send is answered 12"
        )
        assert probe(pair.master.address, waits=False) == 0
        assert log_end(pair.slave.address) > 0, "the slave does not answer"
        filler.unlink()
        eventually(
            lambda: probe(pair.master.address) == 0, within_s=60, what="a send is answered 0 again"
        )
    told = {event["event"] for event in events(pair.slave.log.read_text())}
    assert told >= {"cleanup.disk_full", "commit_log.segment_refused"}, told


H5 = Campaign(
    key="H5",
    title="power cut of a slave under SYNC_FLUSH",
    unit="power cuts",
    t1=1,
    t2=100,
    run=power_cuts,
)
H6 = Campaign(
    key="H6",
    title="the disk of a slave is full for a while",
    unit="disks",
    t1=1,
    t2=20,
    run=full_disks,
)
