"""U1, U2: a directory, and a pair, go from an earlier build to this one and back, under load.

Everything that is under way goes over: what is delayed, timed, popped, half, committed. Hand-overs
are kills and clean stops. Of a pair first the slave is changed, then the master; what a producer
was told is stored is in both logs, and these are equal byte for byte. Earlier builds: `kit.older`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults import feature_kills, replica_kills
from tests.kit import older
from tests.kit.campaign import Campaign
from tests.kit.replicas import Replicas, probe
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from tests.kit.broker_process import BrokerProcess
    from tests.kit.campaign import Cycle, Run

LIVES = 10
"""So many builds take turns on a directory."""
ROLLS = 4
"""So often a pair is upgraded, or goes back."""
ACKS_BESIDE = 20
IN_SYNC_WITHIN_S = 60.0


def turns(run: Run) -> None:
    """U1: an earlier build begins; then this one and that one, in turn."""
    while run.more:
        rng = run.cycle().rng
        build = rng.choice(older.builds())
        life = feature_kills.Life(run, rng)
        older.give(life.broker, build)
        with life.broker:
            life.make_topics()
            for number in range(LIVES):
                cycle = run.cycle()
                clean = cycle.number % 3 == 0
                upgrade = number % 2 == 0
                older.give(life.broker, None if upgrade else build)
                (life.clean_cycle if clean else life.cycle)(cycle)
                run.counts["clean stops" if clean else "kills"] += 1
                run.counts["upgrades" if upgrade else "ways back"] += 1
                run.done()
                if not run.more:
                    break
            life.end()


def rolls(run: Run) -> None:
    """U2: both are of an earlier build; then both of this one, and so on."""
    while run.more:
        root = run.directory / f"from-{run.number}"
        replicating = [one for one in older.builds() if older.knows(one, "ha_peers")]
        build = run.cycle().rng.choice(replicating)
        pair = Replicas(root)
        for broker in (pair.master, pair.slave):
            older.give(broker, build)
        with pair:
            life = replica_kills.Life(run, pair)
            for number in range(ROLLS):
                upgrade = number % 2 == 0
                roll(life, run.cycle(), None if upgrade else build)
                life.check_equal()
                run.counts["upgrades" if upgrade else "ways back"] += 1
                run.done()
                if not run.more:
                    break
            life.end()


def roll(life: replica_kills.Life, cycle: Cycle, build: str | None) -> None:
    """First the slave, then the master, each stopped in the midst of sends."""
    pair = life.pair
    with life.loaded(cycle) as load:
        changed(pair.slave, build)
        eventually(
            lambda: probe(pair.master.address) == 0,
            within_s=IN_SYNC_WITHIN_S,
            what="a send is answered 0 again",
        )
        load.wait_for_acks(load.acks + ACKS_BESIDE, within_s=IN_SYNC_WITHIN_S)
    with life.loaded(cycle, also=replica_kills.GO_AWAY):
        changed(pair.master, build)
    pair.until_in_sync()


def changed(broker: BrokerProcess, build: str | None) -> None:
    """Stop it cleanly and start another build in its place.

    A slave of an earlier build may leave part of a segment's end, which the start takes away.
    """
    older.give(broker, build)
    recovered = broker.restart().recovered
    assert recovered.split(",")[0] == "clean", recovered
    assert recovered == "clean" or build is None, recovered


U1 = Campaign(
    key="U1",
    title="upgrades and ways back of a directory, under everything that R1f does",
    unit="lives",
    t1=3,
    t2=100,
    run=turns,
)
U2 = Campaign(
    key="U2",
    title="rolling upgrades of a pair under load, and back again",
    unit="rolls",
    t1=2,
    t2=20,
    run=rolls,
)
