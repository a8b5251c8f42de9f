"""F1: a group whose master changes by itself, and everything that can go wrong around it.

Members, etcd and clients are on machines of their own. Every client writes down what it does and
sees, over faults of the network, of processes, of a disk without power, of clocks and of etcd; in
the end all members have the same log, byte for byte, and nothing that anybody saw is wrong.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from aerobee.store.tools.verify import verify
from tests.faults.replica_kills import expect_no_errors
from tests.kit.campaign import Campaign
from tests.kit.client_history import KINDS, Recorder, anomalies, verdict
from tests.kit.group_clients import GroupClients, group_names, make_topic, read_everything
from tests.kit.machine_group import CLIENTS, ETCD, MACHINES, MachineGroup
from tests.kit.machine_network import machine_network
from tests.kit.odd_broker import clock_ahead
from tests.kit.power_cut import powered
from tests.kit.replicas import expect_prefix, log_begin

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tests.kit.campaign import Cycle, Run
    from tests.kit.power_cut import Power

CYCLES_PER_GROUP: Final = 19
SYNC: Final = {"flushDiskType": "SYNC_FLUSH"}
BETWEEN: Final = 30
"""So many acknowledgements lie between two faults."""
LASTS_S: Final = (1.0, 6.0)
"""Shorter and longer than a lease of 3 s, and than a slave may be late."""
WITHIN_S: Final = 180.0
SLOW_KBIT: Final = 400
JUMPS_S: Final = (-432_000, -3_600, 3_600, 432_000)
FORGETS_S: Final = 60.0
"""Slaves copy the offsets of groups each 10 s; a machine with much to do takes longer."""


@dataclass
class Scene:
    """A group under load, and what a fault is drawn from."""

    run: Run
    group: MachineGroup
    clients: GroupClients
    power: Power | None
    """None: no power can be cut here."""
    rng: random.Random

    @property
    def ids(self) -> list[int]:
        """Those of the members."""
        return self.group.ids

    def machine(self, number: int) -> str:
        """That of a member."""
        return self.group.machine(number)

    def lasts(self) -> None:
        """The fault goes on for a while."""
        threading.Event().wait(self.rng.uniform(*LASTS_S))

    def others(self, master: int) -> list[int]:
        """The slaves, in some order."""
        slaves = [number for number in self.ids if number != master]
        return self.rng.sample(slaves, len(slaves))

    def until_acknowledged(self, what: str) -> None:
        """Wait for the next acknowledgement, and keep how long that was."""
        began = time.monotonic()
        self.clients.acks.wait_for(1, within_s=WITHIN_S)
        waited_ms = round((time.monotonic() - began) * 1_000)
        self.run.worst(f"ms without acknowledgement, {what}", waited_ms)


# ── The network ──


def halves(scene: Scene) -> None:
    """The master and perhaps a slave are parted from the rest; clients are on both sides."""
    network, master = scene.group.network, scene.group.master()
    one, other = scene.others(master)
    side = [scene.machine(master), CLIENTS[0]]
    rest = [scene.machine(other), ETCD, CLIENTS[1]]
    (side if scene.rng.random() < 0.5 else rest).append(scene.machine(one))
    network.part(side, rest)
    scene.lasts()


def single(scene: Scene) -> None:
    """One member reaches nobody."""
    alone = scene.rng.choice(scene.ids)
    scene.group.network.part([scene.machine(alone)], set(MACHINES) - {scene.machine(alone)})
    scene.lasts()


def bridge(scene: Scene) -> None:
    """Two members do not reach each other, or the master does not reach etcd; all else does."""
    master = scene.group.master()
    one, other = scene.others(master)
    first, second, third = map(scene.machine, (master, one, other))
    ends = scene.rng.choice([(first, second), (second, third), (first, ETCD)])
    scene.group.network.part([ends[0]], [ends[1]])
    scene.lasts()


def one_way(scene: Scene) -> None:
    """What some machine sends to another one is lost, and the way back is not."""
    master = scene.group.master()
    one, other = scene.others(master)
    near = [scene.machine(one), scene.machine(other), ETCD]
    network = scene.group.network
    outward = scene.rng.random() < 0.5
    for name in scene.rng.sample(near, scene.rng.randint(1, len(near))):
        network.lose(*((scene.machine(master), name) if outward else (name, scene.machine(master))))
    scene.lasts()


def flapping(scene: Scene) -> None:
    """The master is parted from the others again and again."""
    network, rng = scene.group.network, scene.rng
    master = scene.machine(scene.group.master())
    for _ in range(rng.randint(3, 8)):
        network.part([master], set(MACHINES) - {master, *CLIENTS})
        threading.Event().wait(rng.uniform(0.1, 1.5))
        network.heal()
        threading.Event().wait(rng.uniform(0.1, 1.5))


def slow_links(scene: Scene) -> None:
    """What some member sends goes slowly."""
    scene.group.network.slow(scene.machine(scene.rng.choice(scene.ids)), SLOW_KBIT)
    scene.lasts()


# ── Processes ──


def kill_the_master(scene: Scene) -> None:
    """kill -9; it comes back after a while."""
    member = scene.group.members[scene.group.master()]
    member.kill()
    scene.until_acknowledged("after a kill of the master")
    scene.lasts()


def kill_a_slave(scene: Scene) -> None:
    """kill -9 of one that is not the master."""
    scene.group.members[scene.others(scene.group.master())[0]].kill()
    scene.until_acknowledged("after a kill of a slave")
    scene.lasts()


def kill_all(scene: Scene) -> None:
    """kill -9 of every member at once."""
    for member in scene.group.members.values():
        member.kill()


def stop_the_master(scene: Scene) -> None:
    """SIGTERM: it hands over."""
    member = scene.group.members[scene.group.master()]
    assert member.stop() == 0, member.child.errors()[-2_000:]
    scene.until_acknowledged("after a stop of the master")


def pause_the_master(scene: Scene) -> None:
    """SIGSTOP, for less or more than its lease."""
    pause(scene, scene.group.master())


def pause_a_slave(scene: Scene) -> None:
    """SIGSTOP of one that is not the master."""
    pause(scene, scene.others(scene.group.master())[0])


def pause(scene: Scene, number: int) -> None:
    child = scene.group.members[number].child
    child.signal(signal.SIGSTOP)
    try:
        scene.lasts()
    finally:
        child.signal(signal.SIGCONT)


def cut_the_power(scene: Scene) -> None:
    """Of one member, often the master: it goes on with what its disk has."""
    cut(scene, [scene.rng.choice([scene.group.master(), *scene.ids])])


def cut_all_power(scene: Scene) -> None:
    """Of all members at once."""
    cut(scene, scene.ids)


def cut(scene: Scene, numbers: Sequence[int]) -> None:
    members = [scene.group.members[number] for number in numbers]
    power = scene.power
    if power is None:
        scene.run.counts["kills, as no power can be cut here"] += len(members)
        for member in members:
            member.kill()
        return
    # Nothing is acknowledged between the moment of the cut and the end of the processes.
    for member in members:
        member.child.signal(signal.SIGSTOP)
    image = power.cut(f"cut-{scene.run.number}")
    for member in members:
        member.kill()
    with power.again(image) as at:
        for member in members:
            shutil.rmtree(member.data)
            shutil.copytree(at / member.data.relative_to(power.root), member.data)
    # What the disk had before the cut it has behind it, whenever the next one comes.
    os.sync()
    image.unlink()


def set_a_clock(scene: Scene) -> None:
    """A member comes back with another wall clock."""
    member = scene.group.members[scene.rng.choice(scene.ids)]
    member.kill()
    member.module = clock_ahead(scene.rng.choice(JUMPS_S))
    member.start()


def change_members(scene: Scene) -> None:
    """A slave is gone for good and a new member comes; the others hear of it by a restart each."""
    group, master = scene.group, scene.group.master()
    gone, stays = scene.others(master)
    group.members[gone].kill()
    group.until_out(gone)
    added = group.replace(gone)
    for number in (stays, master):
        member = group.members[number]
        assert member.stop() == 0, member.child.errors()[-2_000:]
        member.start()
        group.until_in_set([stays, master], "both of the old members in the sync set")
    group.members[added].start()


# ── The decider ──


def end_etcd(scene: Scene) -> None:
    """etcd is killed, or stands still; then it comes back with what it had."""
    etcd = scene.group.etcd
    if scene.rng.random() < 0.5:
        etcd.kill()
    else:
        etcd.stand_still()
    scene.lasts()


def end_etcd_and_the_master(scene: Scene) -> None:
    """Both are killed together, and etcd comes back first."""
    master = scene.group.members[scene.group.master()]
    scene.group.etcd.kill()
    master.kill()
    scene.lasts()


FAULTS: Final[tuple[Callable[[Scene], None], ...]] = (
    kill_the_master,
    halves,
    pause_the_master,
    single,
    bridge,
    one_way,
    flapping,
    slow_links,
    kill_a_slave,
    kill_all,
    stop_the_master,
    pause_a_slave,
    cut_the_power,
    cut_all_power,
    change_members,
    set_a_clock,
    end_etcd,
    end_etcd_and_the_master,
)


def faults(run: Run) -> None:
    """A fault in each cycle, in turn, with a new group every now and then."""
    for kind in KINDS:
        run.counts[kind] = 0
    with ExitStack() as stack:
        power = None
        with suppress(pytest.skip.Exception):
            power = stack.enter_context(powered(run.directory / "power"))
        network = stack.enter_context(machine_network(MACHINES))
        while run.more:
            root = (power.root if power else run.directory) / f"from-{run.number}"
            with MachineGroup(root, network, SYNC) as group:
                judged(run, group, partial(fault_in, run, group, power))
            shutil.rmtree(root)


def fault_in(
    run: Run, group: MachineGroup, power: Power | None, clients: GroupClients, cycle: Cycle
) -> str:
    """The fault whose turn it is."""
    fault = FAULTS[cycle.number % len(FAULTS)]
    fault(Scene(run, group, clients, power, cycle.rng))
    return fault.__name__.replace("_", " ")


def judged(run: Run, group: MachineGroup, happens: Callable[[GroupClients, Cycle], str]) -> None:
    """Some cycles with one group, and the verdict on all that its clients saw.

    `happens` is what comes to the group in a cycle, and gives its name.
    """
    make_topic(group.members[group.master()].address, group_names(CLIENTS))
    path = run.directory / f"history-{run.number}.jsonl"
    with Recorder(path) as recorder:
        inside = group.network.inside
        with GroupClients(recorder, group.addresses, CLIENTS, inside) as clients:
            for _ in range(CYCLES_PER_GROUP):
                clients.acks.wait_for(BETWEEN, within_s=WITHIN_S)
                try:
                    name = happens(clients, run.cycle())
                finally:
                    mended(group)
                clients.acks.wait_for(BETWEEN, within_s=WITHIN_S)
                group.until_complete()
                run.counts[name] += 1
                run.done()
                if not run.more:
                    break
        expect_equal(group)
        read_everything(recorder, group.addresses)
        events = recorder.events()
    found = anomalies(events, forgets_s=FORGETS_S)
    for one in found:
        run.counts[one.kind] += 1
    assert not found, f"{verdict(found)}\nthe history is in {path}"
    for what in ("stored", "read", "committed"):
        run.counts[what] += sum(event.what == what for event in events)
    ended(group)


def mended(group: MachineGroup) -> None:
    """Everything runs and reaches everything again."""
    group.network.heal()
    group.etcd.come_back()
    for member in group.members.values():
        if not member.child.running:
            member.start()


def expect_equal(group: MachineGroup) -> None:
    """All logs are the same bytes."""
    end = group.until_equal()
    first, *others = sorted(group.members.values(), key=lambda member: log_begin(member.data))
    for other in others:
        expect_prefix(other.data, first.data, end)


def ended(group: MachineGroup) -> None:
    """All stop, and their files are sound by themselves."""
    for member in group.members.values():
        assert member.stop() == 0, member.child.errors()[-2_000:]
        expect_no_errors(member)
        checked = verify(member.data)
        assert checked.sound, checked.damage[:5]


F1 = Campaign(
    key="F1",
    title="a group with etcd: parted networks, kills, pauses, power cuts, clocks, members, no etcd",
    unit="faults",
    t1=2,
    t2=10 * len(FAULTS),
    run=faults,
)
