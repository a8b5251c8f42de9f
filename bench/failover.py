"""Three members and etcd on this machine: how long nobody acknowledges at a kill and at a switch.

    python -m bench.failover [--kills 20] [--switches 20] [--lease 3] [--calm MINUTES [--burners 2]]

One producer sends to whoever takes its messages, one at a time, and tries again at once what was
refused. A gap is the time from the last acknowledgement in front of kill -9 of the master, or of a
planned switch, to the first one by another member. Between two of them all members are in the sync
set again, and a kill comes at a random moment of a lease. With `--calm` nothing happens to the
group for so long, while `--burners` other processes take all the CPU that they get: it counts how
often another member became the master for nothing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aerobee import blocking
from bench.arguments import positive, program, whole, whole_or_0
from bench.machine import describe
from tests.kit.etcd import EtcdNode
from tests.kit.failover_group import TOPIC, WITHIN_S, FailoverGroup
from tests.kit.raw_client import Closed, RawConnection, send_fields
from tests.kit.replicas import SEND, SUCCESS
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_S = 0.05
"""Between two looks at a group that is left alone."""
AGAIN_S = 0.005
"""Between two attempts at members that do not take a message."""
ANSWER_S = 4.0
"""So long a member may take for an answer."""


class Producer:
    """Sends until it is closed; `at` is when the last message was acknowledged, and by whom."""

    def __init__(self, addresses: dict[int, str]) -> None:
        self.at = 0.0
        self.by = 0
        self._addresses = addresses
        self._links: dict[int, RawConnection] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for link in self._links.values():
            link.close()

    def _run(self) -> None:
        while not self._over.is_set():
            order = sorted(self._addresses, key=lambda member: member != self.by)
            taken = next((member for member in order if self._takes(member)), 0)
            if taken:
                self.at, self.by = time.monotonic(), taken
            else:
                self._over.wait(AGAIN_S)

    def _takes(self, member: int) -> bool:
        try:
            if member not in self._links:
                self._links[member] = RawConnection(self._addresses[member], timeout_s=ANSWER_S)
            return self._links[member].call(SEND, send_fields(TOPIC, 0), b"x").code == SUCCESS
        except (Closed, OSError):
            with suppress(KeyError):
                self._links.pop(member).close()
            return False


def gap(producer: Producer, end: Callable[[int], object]) -> float:
    """Seconds without an acknowledgement after `end` has ended the master."""
    master = producer.by
    end(master)
    ended_at = time.monotonic()
    last = producer.at
    eventually(lambda: producer.by != master, within_s=WITHIN_S, what="another master")
    assert last <= ended_at
    return producer.at - last


def gaps(group: FailoverGroup, kills: int, switches: int, rng: random.Random) -> list[list[float]]:
    """The gaps of kills, and of switches."""
    addresses = {number: member.address for number, member in group.members.items()}
    found: list[list[float]] = [[], []]
    with Producer(addresses) as producer, blocking.AdminClient(group.names.address) as admin:
        eventually(lambda: producer.by, within_s=WITHIN_S, what="an acknowledgement")
        for _ in range(kills):
            group.until_complete()
            time.sleep(rng.uniform(1.0, 4.0))
            master = producer.by
            found[0].append(gap(producer, lambda number: group.members[number].kill()))
            group.members[master].start()
        for _ in range(switches):
            group.until_complete()
            time.sleep(rng.uniform(0.5, 1.0))
            heir = next(number for number in addresses if number != producer.by)
            found[1].append(
                gap(producer, lambda number: admin.switch(addresses[number], addresses[heir]))  # noqa: B023  (called at once)
            )
    return found


def burn() -> None:
    """Take a core, until the process is ended."""
    while True:
        pass


def busy_and_all() -> tuple[float, float]:
    """CPU time of all cores so far: busy, and in all, in ticks."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [float(word) for word in file.readline().split()[1:]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def calm(group: FailoverGroup, minutes: float, burners: int) -> str:
    """The changes of a group that nothing happened to, in words."""
    addresses = {number: member.address for number, member in group.members.items()}
    others = [multiprocessing.Process(target=burn, daemon=True) for _ in range(burners)]
    longest = 0.0
    with Producer(addresses) as producer:
        eventually(lambda: producer.by, within_s=WITHIN_S, what="an acknowledgement")
        group.until_complete()
        before, (busy, ticks) = group.record(), busy_and_all()
        for other in others:
            other.start()
        ends_at = time.monotonic() + 60 * minutes
        while (now := time.monotonic()) < ends_at:
            longest = max(longest, now - producer.at)
            time.sleep(LOOK_S)
        for other in others:
            other.kill()
            other.join()
        busy, ticks = (now - then for now, then in zip(busy_and_all(), (busy, ticks), strict=True))
        group.until_complete()
        after = group.record()
    return (
        f"{minutes:g} minutes, {100 * busy / ticks:.0f} % of all cores busy, load"
        f" {os.getloadavg()[2]:.0f}: {after['epoch'] - before['epoch']} masters more,"
        f" {after['setEpoch'] - before['setEpoch']} changes of the sync set,"
        f" {longest:.2f} s without an acknowledgement at most"
    )


def line(what: str, seconds: list[float]) -> str:
    """A row of the table."""
    if not seconds:
        return f"{what:<16} -"
    median, worst = statistics.median(seconds), max(seconds)
    return f"{what:<16} {len(seconds):>5} {median:>8.2f} {worst:>8.2f}"


@program
def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(prog="python -m bench.failover")
    parser.add_argument("--kills", type=whole, default=20)
    parser.add_argument("--switches", type=whole, default=20)
    parser.add_argument("--lease", type=positive, default=3, help="seconds")
    parser.add_argument("--seed", type=whole, default=1)
    parser.add_argument("--calm", type=positive, metavar="MINUTES")
    parser.add_argument("--burners", type=whole_or_0, default=os.cpu_count())
    given = parser.parse_args()
    print(describe(), flush=True)
    settings: dict[str, object] = {"failoverLease": int(given.lease)}
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        etcd = stack.enter_context(EtcdNode(data=root / "etcd"))
        group = stack.enter_context(FailoverGroup(root / "group", [etcd], settings=settings))
        if given.calm:
            print(f"lease {given.lease:g} s; {calm(group, given.calm, given.burners)}")
            return
        rng = random.Random(given.seed)
        of_kills, of_switches = gaps(group, given.kills, given.switches, rng)
    print(f"lease {given.lease:g} s; seconds without acknowledgements")
    print(f"{'':<16} {'count':>5} {'p50':>8} {'max':>8}")
    print(line("kill -9", of_kills))
    print(line("planned switch", of_switches))


if __name__ == "__main__":
    main()
