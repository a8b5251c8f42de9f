"""H10, H13: a master and its slave exchange their roles under load; either is killed meanwhile.

Producers send to whoever takes their messages, and try again at once what was refused. What was
acknowledged is in both logs, at the place that the answer named; the messages of a producer are in
its queue in the order in which they were sent.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from tests.kit.campaign import Campaign
from tests.kit.odd_broker import dies_beside
from tests.kit.ports import HOST
from tests.kit.raw_client import Closed, RawConnection, send_fields, topic_fields
from tests.kit.replicas import (
    CREATE_TOPIC,
    SEND,
    SUCCESS,
    Replicas,
    ha_status,
    log_end,
    stored_messages,
)
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from tests.kit.broker_process import BrokerProcess
    from tests.kit.campaign import Run

SWITCH = 900_003
TOPIC = "switched"
PRODUCERS = 2
AGAIN_S = 0.002
"""The pause of a producer that both brokers have refused."""
BETWEEN = 40
"""So many acknowledgements lie between two switches, and in front of the first one."""
WITHIN_S = 60.0


class Ack(NamedTuple):
    """A message that was answered with 0."""

    queue_offset: int
    body: bytes
    at: float


class Producer:
    """Sends to one queue, one message at a time, to one of two brokers."""

    def __init__(self, queue_id: int, addresses: list[str], over: threading.Event) -> None:
        self.acks: list[Ack] = []
        self.refused = 0
        self._queue_id = queue_id
        self._addresses = addresses
        self._over = over
        self.thread = threading.Thread(target=self._run, name=f"producer-{queue_id}")

    def _run(self) -> None:
        number, turn = 0, 0
        links: dict[str, RawConnection] = {}
        while not self._over.is_set():
            address = self._addresses[turn]
            body = b"%d|%d" % (self._queue_id, number)
            try:
                link = links.get(address) or links.setdefault(address, RawConnection(address))
                answer = link.call(SEND, send_fields(TOPIC, self._queue_id), body)
            except (Closed, OSError):
                if address in links:
                    links.pop(address).close()
                number += 1  # perhaps it is stored: the next one is another message
                turn = 1 - turn
                continue
            if answer.code == SUCCESS:
                offset = int(answer.ext["queueOffset"])
                self.acks.append(Ack(offset, body, time.monotonic()))
                number += 1
                continue
            self.refused += 1
            turn = 1 - turn
            self._over.wait(AGAIN_S)
        for link in links.values():
            link.close()


class Producers:
    """All of them, from `with` to its end."""

    def __init__(self, addresses: list[str]) -> None:
        self._over = threading.Event()
        self.each = [Producer(number, addresses, self._over) for number in range(PRODUCERS)]

    def __enter__(self) -> Producers:
        for producer in self.each:
            producer.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for producer in self.each:
            producer.thread.join(timeout=WITHIN_S)
            assert not producer.thread.is_alive(), producer.thread.name

    def wait_for(self, count: int) -> None:
        """Until each has so many acknowledgements more."""
        wanted = [len(producer.acks) + count for producer in self.each]
        eventually(
            lambda: all(len(p.acks) >= n for p, n in zip(self.each, wanted, strict=True)),
            within_s=WITHIN_S,
            what=f"{count} acknowledgements of each producer",
        )

    def without_writes_ms(self, since: float) -> int:
        """The longest time between two acknowledgements of a producer, from a moment on."""
        longest = 0.0
        for producer in self.each:
            times = [ack.at for ack in producer.acks if ack.at >= since]
            longest = max([longest, *(b - a for a, b in pairwise(times))])
        return round(longest * 1000)


def switches(run: Run) -> None:
    """The roles go to and fro."""
    run.counts["lost"] = run.counts["disordered"] = 0
    settings = {"brokerRole": "ASYNC_MASTER", "inSyncReplicas": 1}
    with Replicas(run.directory, of_master=settings, of_slave={"haPeers": HOST}) as pair:
        master, slave = pair.master, pair.slave
        with RawConnection(master.address) as connection:
            answer = connection.call(CREATE_TOPIC, topic_fields(TOPIC, PRODUCERS))
            assert answer.code == SUCCESS, answer
        gaps, pauses = [], []
        with Producers([master.address, slave.address]) as producers:
            producers.wait_for(BETWEEN)
            for _ in run.cycles():
                began = time.monotonic()
                paused_ms = switched(master, slave)
                master, slave = slave, master
                producers.wait_for(BETWEEN)
                gaps.append(producers.without_writes_ms(began - 0.05))
                pauses.append(paused_ms)
                run.worst("sends refused ms", paused_ms)
                run.worst("without writes ms", gaps[-1])
        run.counts["sends refused ms, median"] = round(median(pauses))
        run.counts["without writes ms, median"] = round(median(gaps))
        run.counts["acknowledged"] = sum(len(each.acks) for each in producers.each)
        run.counts["refused"] = sum(each.refused for each in producers.each)
        end = log_end(master.address)
        eventually(
            lambda: log_end(slave.address) == end, within_s=WITHIN_S, what="both logs are equal"
        )
        for broker in (master, slave):
            check(broker, producers)


def switched(master: BrokerProcess, slave: BrokerProcess) -> int:
    """Exchange the roles; for how many ms sends were refused."""
    last = ""

    def done() -> int | None:
        nonlocal last
        with RawConnection(master.address, timeout_s=30) as connection:
            answer = connection.call(SWITCH, {"to": slave.address})
        last = answer.remark or ""
        return 1 + int(answer.ext["pausedMs"]) if answer.code == SUCCESS else None

    # The one that was the master a moment ago may not follow yet, or have more to copy.
    paused_ms = eventually(done, within_s=WITHIN_S, what=f"a switch: {last}")
    assert paused_ms is not None
    return paused_ms - 1


def check(broker: BrokerProcess, producers: Producers) -> None:
    """Everything that was acknowledged is there, in order, and nothing twice."""
    found: dict[int, dict[int, bytes]] = {}
    order: dict[int, list[int]] = {}
    for message in stored_messages(broker.data, TOPIC):
        assert message.queue_offset not in found.setdefault(message.queue_id, {}), message
        found[message.queue_id][message.queue_offset] = message.body
        order.setdefault(message.queue_id, []).append(int(message.body.partition(b"|")[2]))
    for queue_id, producer in enumerate(producers.each):
        lost = [ack for ack in producer.acks if found[queue_id].get(ack.queue_offset) != ack.body]
        assert not lost, f"lost: {lost[:3]} of {len(lost)} on {broker.data.name}"
        assert order[queue_id] == sorted(order[queue_id]), "disordered"


# ── A kill at each step ──

HANDOVER, PROMOTION = (
    "broker.replication.handover:Handover",
    "broker.replication.promotion:Promotion",
)
POINTS: tuple[tuple[str, str, str], ...] = (
    ("master", "after", f"{HANDOVER}._save_slave"),
    ("slave", "after", f"{PROMOTION}._save_role"),
    ("slave", "before", f"{PROMOTION}._save_role"),
    ("master", "before", f"{HANDOVER}._save_slave"),
    ("master", "before", f"{HANDOVER}._paused"),
    ("master", "after", f"{HANDOVER}._paused"),
    ("master", "after", f"{HANDOVER}._taken"),
    ("slave", "before", f"{PROMOTION}._end_copy"),
    ("slave", "after", f"{PROMOTION}._become_master"),
)
"""Who is killed, and beside which step."""
PROMOTE = 900_002


def killed_switches(run: Run) -> None:
    """One of the two is killed at a step, and comes back; a person promotes where nobody is."""
    run.counts["lost"] = run.counts["disordered"] = run.counts["two masters"] = 0
    for cycle in run.cycles():
        who, when, step = POINTS[cycle.number % len(POINTS)]
        settings = {"brokerRole": "ASYNC_MASTER", "inSyncReplicas": 1}
        root = run.directory / str(cycle.number)
        pair = Replicas(root, of_master=settings, of_slave={"haPeers": HOST})
        victim = pair.master if who == "master" else pair.slave
        victim.module = dies_beside(when, step)
        with pair:
            with RawConnection(pair.master.address) as connection:
                answer = connection.call(CREATE_TOPIC, topic_fields(TOPIC, PRODUCERS))
                assert answer.code == SUCCESS, answer
            with Producers([pair.master.address, pair.slave.address]) as producers:
                producers.wait_for(BETWEEN)
                until_killed(pair, victim)
                victim.kill()
                victim.module = ("aerobee",)
                victim.start()
                run.counts["promoted by a person"] += one_master(pair)
                producers.wait_for(BETWEEN)
            run.counts["acknowledged"] += sum(len(each.acks) for each in producers.each)
            until_equal(pair)
            for broker in (pair.master, pair.slave):
                check(broker, producers)


def until_equal(pair: Replicas) -> None:
    """Wait until the two have the same log; nobody sends."""
    master, slave = pair.master.address, pair.slave.address
    eventually(lambda: log_end(slave) == log_end(master) > 0, within_s=WITHIN_S, what="equal logs")


def until_killed(pair: Replicas, victim: BrokerProcess) -> None:
    """Ask for a switch until that has killed the victim."""

    def gone() -> bool:
        with suppress(Closed, OSError), RawConnection(pair.master.address, timeout_s=30) as link:
            link.call(SWITCH, {"to": pair.slave.address})
        return not victim.child.running

    eventually(gone, within_s=WITHIN_S, what="a kill in a switch")


def masters(pair: Replicas) -> list[BrokerProcess]:
    """Those of the two that say that they are the master."""
    return [broker for broker in (pair.master, pair.slave) if ha_status(broker.address)["master"]]


def one_master(pair: Replicas) -> int:
    """See that there is one master, or make one as the text of a refusal says; whether it had to.

    A slave that has all is the one with the longer log.
    """
    found = masters(pair)
    assert len(found) < 2, found
    if found:
        return 0
    further = max((pair.master, pair.slave), key=lambda broker: log_end(broker.address))

    def promoted() -> bool:
        with RawConnection(further.address, timeout_s=30) as link:
            return link.call(PROMOTE, {}).code == SUCCESS

    eventually(promoted, within_s=WITHIN_S, what="a promotion where nobody is the master")
    return 1


H13 = Campaign(
    key="H13",
    title="kill -9 of master or slave at each step of a switch",
    unit="kills",
    t1=2,
    t2=len(POINTS),
    run=killed_switches,
)
H10 = Campaign(
    key="H10",
    title="planned switches of master and slave under load",
    unit="switches",
    t1=2,
    t2=50,
    run=switches,
)
