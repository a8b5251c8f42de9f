"""F1J: faults of F1 on RocketMQ's own brokers and its controller, and what they lose.

Machines, clients and verdict are those of F1, the settings the strictest that RocketMQ has. Nothing
is promised here, so nothing fails: what is found is counted, for the row beside that of F1.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, Self, cast

from aerobee.store.format.epoch_file import EPOCH_FILE_NAME
from tests.faults import group_failover
from tests.faults.group_failover import BETWEEN, WITHIN_S, Scene
from tests.kit.campaign import Campaign
from tests.kit.client_history import KINDS, Recorder, anomalies
from tests.kit.failover_group import NAME
from tests.kit.group_clients import GroupClients, group_names, make_topic, read_member
from tests.kit.java import toolkit
from tests.kit.java_controller import JavaControllers
from tests.kit.java_server import JavaBroker
from tests.kit.machine_group import CLIENTS, ETCD, IDS, MACHINES, MachineGroup
from tests.kit.machine_network import machine_network
from tests.kit.namesrv_process import NamesrvProcess
from tests.kit.process import DidNotStart
from tests.kit.raw_client import Closed, RawConnection
from tests.kit.replicas import SEGMENT_BYTES
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit.broker_process import BrokerProcess
    from tests.kit.campaign import Run
    from tests.kit.machine_network import MachineNetwork

VERSION: Final = "5.5.0"
REPLICA_INFO: Final = 1004
STRICT: Final[dict[str, object]] = {
    "allAckInSyncStateSet": "true",
    "minInSyncReplicas": 2,
    "inSyncReplicas": 2,
    "flushDiskType": "SYNC_FLUSH",
}


def stop_the_master(scene: Scene) -> None:
    """SIGTERM; its exit code is Java's for that."""
    scene.group.members[scene.group.master()].stop()
    scene.until_acknowledged("after a stop of the master")


FAULTS: Final[tuple[Callable[[Scene], None], ...]] = (
    group_failover.kill_the_master,
    group_failover.halves,
    group_failover.pause_the_master,
    group_failover.single,
    group_failover.kill_a_slave,
    group_failover.one_way,
    group_failover.kill_all,
    group_failover.pause_a_slave,
    stop_the_master,
)
CYCLES_PER_GROUP: Final = len(FAULTS)


class JavaGroup(MachineGroup):
    """Three of Java's brokers; the controller is on the machine that has etcd in F1."""

    def __init__(self, root: Path, network: MachineNetwork) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.network = network
        self._root = root
        self._machines = {number: f"m{number}" for number in IDS}
        java, where = toolkit(VERSION), network.addresses
        self._controllers = JavaControllers(
            java, root / "controllers", host=where[ETCD], network=network.spaces[ETCD]
        )
        open_to_all: dict[str, object] = {"bindAddress": "0.0.0.0", "insecure": True}
        self._names = NamesrvProcess(data=root / "names", settings=open_to_all)
        common = STRICT | {
            "brokerName": NAME,
            "enableControllerMode": "true",
            "controllerAddr": self._controllers.text,
            "mappedFileSizeCommitLog": SEGMENT_BYTES,
        }
        members = {
            number: JavaBroker(
                toolkit=java,
                data=root / machine,
                home=root / f"{machine}-home",
                settings=common | {"brokerIP2": where[machine]},
                namesrv_address=f"{network.here}:{self._names.port}",
                host=where[machine],
                network=network.spaces[machine],
            )
            for number, machine in self._machines.items()
        }
        # They have the same shape, as far as the faults of this campaign go.
        self.members = cast("dict[int, BrokerProcess]", members)

    def __enter__(self) -> Self:
        try:
            self._names.start()
            for number, member in self.members.items():
                member.start()
                # The controller gives them their numbers, one after the other.
                self.until_in_set(range(1, number + 1), f"member {number} in the set")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members.values():
            with suppress(AssertionError):
                member.kill()
        self._controllers.stop()
        self._names.kill()

    def record(self) -> dict[str, Any]:
        """What the controller has, in the words of our record."""
        try:
            with RawConnection(self._controllers.addresses[0]) as connection:
                answer = connection.call(REPLICA_INFO, {"brokerName": NAME})
        except (OSError, Closed):
            return {}
        master = int((answer.ext or {}).get("masterBrokerId") or 0)
        if not answer.body:
            return {}
        return {
            "master": master,
            "syncSet": json.loads(answer.body)["syncStateSet"],
            "lease": str(master or ""),
        }


def faults(run: Run) -> None:
    """A fault in each cycle, in turn, with a new group every now and then."""
    for kind in KINDS:
        run.counts[kind] = 0
    with ExitStack() as stack:
        network = stack.enter_context(machine_network(MACHINES))
        while run.more:
            with JavaGroup(run.directory / f"from-{run.number}", network) as group:
                counted(run, group)


def counted(run: Run, group: JavaGroup) -> None:
    """Some cycles with one group, and what its clients saw of them."""
    make_topic(group.members[group.master()].address, group_names(CLIENTS))
    path = run.directory / f"history-{run.number}.jsonl"
    with Recorder(path) as recorder:
        inside = group.network.inside
        with GroupClients(recorder, group.addresses, CLIENTS, inside) as clients:
            for _ in range(CYCLES_PER_GROUP):
                clients.acks.wait_for(BETWEEN, within_s=WITHIN_S)
                cycle = run.cycle()
                fault = FAULTS[cycle.number % len(FAULTS)]
                try:
                    fault(Scene(run, group, clients, None, cycle.rng))
                finally:
                    mended(run, group)
                until_acknowledged(run, clients)
                if not whole(group):
                    run.counts["sets that stayed incomplete"] += 1
                run.counts[fault.__name__.replace("_", " ")] += 1
                run.done()
                if not run.more:
                    break
        try:
            group.until_equal()
        except AssertionError:
            run.counts["groups whose logs stayed different"] += 1
        master = group.master()
        address = group.members[master].address
        eventually(
            lambda: read_member(recorder, group.machine(master), address),
            within_s=WITHIN_S,
            what="the master shows its queues",
        )
        events = recorder.events()
    for one in anomalies(events, forgets_s=group_failover.FORGETS_S):
        run.counts[one.kind] += 1
    for what in ("stored", "read", "committed"):
        run.counts[what] += sum(event.what == what for event in events)


def until_acknowledged(run: Run, clients: GroupClients) -> None:
    """Wait for the next acknowledgements behind a fault that is over."""
    began = time.monotonic()
    clients.acks.wait_for(BETWEEN, within_s=WITHIN_S)
    run.worst("ms without acknowledgement, all mended", round(1_000 * (time.monotonic() - began)))


def mended(run: Run, group: JavaGroup) -> None:
    """Everything runs and reaches everything again.

    A kill while Java writes its epochs leaves an empty file, with which it does not start: so an
    operator takes the copy.
    """
    group.network.heal()
    for member in group.members.values():
        if member.child.running:
            continue
        try:
            member.start()
        except DidNotStart:
            run.counts["starts that failed until a file was restored by hand"] += 1
            epochs = member.data / EPOCH_FILE_NAME
            shutil.copy(epochs.with_name(f"{epochs.name}.bak"), epochs)
            member.start()


def whole(group: JavaGroup) -> bool:
    """Whether all members come back into the set in time."""
    try:
        group.until_complete()
    except AssertionError:
        return False
    return True


F1J = Campaign(
    key="F1J",
    title=f"faults of F1 on RocketMQ {VERSION}'s own brokers and controller: what they lose",
    unit="faults",
    t1=1,
    t2=2 * len(FAULTS),
    run=faults,
    java=True,
)
