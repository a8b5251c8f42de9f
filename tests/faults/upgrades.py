"""U1, U2, U3: a directory, a pair and a group go from an earlier build to this one and back.

Everything that is under way goes over: what is delayed, timed, popped, half, committed. Hand-overs
are kills and clean stops. Of a pair first the slave is changed, then the master; what a producer
was told is stored is in both logs, and these are equal byte for byte. Of a group with etcd the
master comes last, and is killed now and then while members of both builds are there; all that
clients see is judged as in F1. Earlier builds: `kit.older`.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

from tests.faults import feature_kills, group_failover, replica_kills
from tests.kit import older
from tests.kit.campaign import Campaign
from tests.kit.client_history import KINDS
from tests.kit.machine_group import MACHINES, MachineGroup
from tests.kit.machine_network import machine_network
from tests.kit.replicas import Replicas, probe
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.broker_process import BrokerProcess
    from tests.kit.campaign import Cycle, Run
    from tests.kit.group_clients import GroupClients

LIVES = 10
"""So many builds take turns on a directory."""
ROLLS = 4
"""So often a pair is upgraded, or goes back."""
KILLED = 0.5
"""So likely the master of a group is killed after a member was changed."""
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


def group_rolls(run: Run) -> None:
    """U3: all members are of an earlier build; then of this one, and so on."""
    for kind in KINDS:
        run.counts[kind] = 0
    with machine_network(MACHINES) as network:
        while run.more:
            root = run.directory / f"from-{run.number}"
            deciding = [one for one in older.builds() if older.knows(one, "etcd_endpoints")]
            build = run.cycle().rng.choice(deciding)
            group = MachineGroup(root, network, group_failover.SYNC)
            for member in group.members.values():
                older.give(member, build)
            turns = itertools.cycle((None, build))
            with group:
                group_failover.judged(run, group, partial(roll_group, group, turns))


def roll_group(
    group: MachineGroup, turns: Iterator[str | None], clients: GroupClients, cycle: Cycle
) -> str:
    """One member after the other, the master last; now and then whoever leads is killed."""
    build = next(turns)
    master = group.master()
    for number in (*(one for one in group.ids if one != master), master):
        changed(group.members[number], build)
        clients.acks.wait_for(group_failover.BETWEEN, within_s=IN_SYNC_WITHIN_S)
        group.until_complete()
        if cycle.rng.random() < KILLED:
            leader = group.members[group.master()]
            leader.kill()
            clients.acks.wait_for(group_failover.BETWEEN, within_s=IN_SYNC_WITHIN_S)
            leader.start()
            group.until_complete()
    return "ways back" if build else "upgrades"


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
U3 = Campaign(
    key="U3",
    title="rolling upgrades of a group with etcd under load, masters killed on the way, and back",
    unit="rolls",
    t1=1,
    t2=12,
    run=group_rolls,
)
