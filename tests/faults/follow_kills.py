"""H14, H15: a slave is to follow another master, and is killed at each step of that.

The slave has messages that the other master lacks, and the other way round. The command is given
with the consent to a cut. However often the slave is killed on the way, it ends with the log of the
other master, byte for byte, and what it gave up is kept in a directory. H15: that master is Java's.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.faults.replica_java import IN_TURN, java_broker
from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign
from tests.kit.odd_broker import dies_at, dies_beside
from tests.kit.ports import HOST, free_port
from tests.kit.process import DidNotStart
from tests.kit.raw_client import Closed, RawConnection, send_fields, topic_fields
from tests.kit.replicas import (
    COMMON,
    CREATE_TOPIC,
    MASTER,
    SEND,
    SLAVE,
    SUCCESS,
    Replicas,
    expect_prefix,
    log_end,
    stored_messages,
)
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit.campaign import Cycle, Run
    from tests.kit.java_server import JavaBroker

FOLLOW: Final = 900_004
TOPIC: Final = "followed"
BODY_BYTES: Final = 4_000
BOTH, OWN, THEIRS = 50, 100, 30
"""So many messages have both logs, the slave alone, the other master alone: what is cut goes over
an end of a segment.
"""
WITHIN_S: Final = 90.0
ALONE: dict[str, object] = {**COMMON, "brokerRole": "ASYNC_MASTER", "haPeers": HOST}
STEP: Final = "broker.replication.another_master:AnotherMaster"
POINTS: Final[tuple[tuple[str, str], ...]] = (
    ("before", "_saved"),
    ("before", "_begin_cut"),
    ("after", "_begin_cut"),
    ("after", "_saved"),
    ("before", "_compared"),
    ("after", "_compared"),
    ("after", "_changed"),
)
"""Steps of the command."""
CHANGES_OF_A_START: Final = 30
"""About as many changes of files as the start makes that ends a cut."""


class Parted(NamedTuple):
    """Two directories with logs that part; each cycle works on copies."""

    slave: Path
    master: Path


@dataclass
class Command:
    """The slave of a cycle, and the master that it is to follow."""

    slave: BrokerProcess
    master: BrokerProcess | JavaBroker

    def given(self) -> str | None:
        """Give the command: what was cut is kept there, "" for nothing; None: it was not done."""
        with suppress(Closed, OSError), RawConnection(self.slave.address, timeout_s=30) as link:
            answer = link.call(FOLLOW, {"master": self.master.address, "cut": True})
            if answer.code == SUCCESS:
                return answer.ext.get("keptIn", "")
        return None


def send(address: str, text: str, count: int) -> None:
    """So many messages that are all acknowledged."""
    with RawConnection(address, timeout_s=30) as link:
        for number in range(count):
            body = f"{text} {number} ".encode().ljust(BODY_BYTES, b".")
            answer = link.call(SEND, send_fields(TOPIC, number % 2), body)
            assert answer.code == SUCCESS, answer


def parted(root: Path) -> Parted:
    """Have a slave and a former slave of one master go two ways."""
    other = BrokerProcess(data=root / "other", settings=ALONE)
    settings = {"brokerRole": "ASYNC_MASTER", "inSyncReplicas": 1}
    with Replicas(root / "pair", of_master=settings) as pair:
        with RawConnection(pair.master.address) as link:
            answer = link.call(CREATE_TOPIC, topic_fields(TOPIC, 2))
            assert answer.code == SUCCESS, answer
        send(pair.master.address, "both", BOTH)
        pair.until_equal()
        assert pair.slave.stop() == 0
        shutil.copytree(pair.slave.data, other.data)
        pair.slave.start()
        send(pair.master.address, "own", OWN)
        pair.until_equal()
        assert pair.slave.stop() == 0
        slave = pair.slave.data
    with other:
        with RawConnection(other.address) as link:
            answer = link.call(CREATE_TOPIC, topic_fields(TOPIC, 2))
            assert answer.code == SUCCESS, answer
        send(other.address, "theirs", THEIRS)
        assert other.stop() == 0
    return Parted(slave, other.data)


def kills(run: Run, master_at: Callable[[Path, int], BrokerProcess | JavaBroker]) -> None:
    """A kill in each cycle, in the command or in the start that ends the cut."""
    seeds = parted(run.directory / "seeds")
    for cycle in run.cycles():
        root = run.directory / str(cycle.number)
        shutil.copytree(seeds.slave, root / "slave")
        shutil.copytree(seeds.master, root / "other")
        nobody = {"haMasterAddress": f"{HOST}:{free_port()}", "brokerIP1": HOST}
        slave = BrokerProcess(data=root / "slave", settings={**SLAVE, **nobody})
        with master_at(root, cycle.number) as master, slave:
            followed(run, cycle, Command(slave, master))
            master.kill()
        shutil.rmtree(root)


def followed(run: Run, cycle: Cycle, command: Command) -> None:
    """The command, a kill on its way, and what is there in the end."""
    slave, master = command.slave, command.master
    of_start = cycle.number % 2 == 1
    if not of_start:
        when, name = POINTS[cycle.number // 2 % len(POINTS)]
        slave.kill()
        slave.module = dies_beside(when, f"{STEP}.{name}")
        slave.start()
        assert command.given() is None
        slave.kill()
        slave.module = ("aerobee",)
        slave.start()
        run.counts[f"kills {when} {name.strip('_').replace('_', ' ')}"] += 1
    kept = eventually(
        lambda: command.given() is not None or log_end(slave.address) == log_end(master.address),
        within_s=WITHIN_S,
        what="the command is done",
    )
    assert kept
    slave.kill()
    if of_start:
        kill_its_start(run, cycle, slave)
    slave.start()
    end = log_end(master.address)
    eventually(
        lambda: log_end(slave.address) == end, within_s=WITHIN_S, what="the slave has the same log"
    )
    expect_prefix(slave.data, master.data, end)
    texts = [message.body.split()[0] for message in stored_messages(slave.data, TOPIC)]
    assert texts == [b"both"] * BOTH + [b"theirs"] * THEIRS, texts
    kept_bytes = b"".join(
        path.read_bytes() for path in sorted((slave.data / "cut").rglob("*")) if path.is_file()
    )
    for number in range(OWN):
        assert b"own %d " % number in kept_bytes, f"lost: own {number}"
    run.counts["messages kept"] += OWN


def kill_its_start(run: Run, cycle: Cycle, slave: BrokerProcess) -> None:
    """At a change of a file, if it makes as many."""
    slave.module = dies_at(cycle.rng.randint(1, CHANGES_OF_A_START))
    try:
        slave.start()
    except DidNotStart:
        run.counts["kills of the start that ends the cut"] += 1
    slave.kill()
    slave.module = ("aerobee",)


def ours(root: Path, number: int) -> BrokerProcess:
    """The other master is ours."""
    return BrokerProcess(data=root / "other", settings=ALONE)


def javas(root: Path, number: int) -> JavaBroker:
    """The other master is Java's, each version in turn."""
    settings = {**MASTER, "brokerRole": "ASYNC_MASTER", "inSyncReplicas": 1}
    return java_broker(root, IN_TURN[number // 2 % len(IN_TURN)], "other", settings)


H14 = Campaign(
    key="H14",
    title="kill -9 of a slave at each step of following another master, with a cut",
    unit="kills",
    t1=2,
    t2=4 * len(POINTS),
    run=partial(kills, master_at=ours),
)
H15 = Campaign(
    key="H15",
    title="the same with a Java master",
    unit="kills",
    t1=2,
    t2=2 * len(POINTS),
    run=partial(kills, master_at=javas),
    java=True,
)
