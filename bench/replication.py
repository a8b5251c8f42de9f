"""A master and its slave on this machine: what a slave costs, its lag, and how it catches up.

    python -m bench.replication [--seconds 5] [--rounds 3] [--rate 20000] [--behind 512]

Each round: 64 connections with one send each to a master without a slave, with one (ASYNC_MASTER),
and to one that waits for it (SYNC_MASTER, inSyncReplicas 2); and, for the CPU of a message, sends
at half of the fixed rate to the first two. Then sends at the fixed rate, while the master is asked
how long ago its slave had everything. At the end the slave is stopped, MiB are sent, and it is
started again. Master, slave and generator share the cores: the rate beside a slave has what the
slave itself takes, and the CPU of a message is more where a busy core makes rounds of fewer
messages. At half of the rate only what the slave costs its master is different.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bench.arguments import positive, program, whole
from bench.load import DEFAULT_SIZES, SENDS, Case, build, load
from bench.machine import describe
from tests.kit.replicas import MASTER, SLAVE, Replicas, ha_status, log_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench.load import Figures

MiB = 1 << 20
SIZES = {**dict.fromkeys([*MASTER, *SLAVE], None), **DEFAULT_SIZES}
LOOK_S = 0.02
"""Between two questions how far the slave is."""
WARM_UP_S = 2.0
KINDS: dict[str, dict[str, object]] = {
    "alone": {"brokerRole": "ASYNC_MASTER", "haPeers": None},
    "ASYNC_MASTER": {"brokerRole": "ASYNC_MASTER", "haPeers": "127.0.0.1"},
    "SYNC_MASTER": {
        "brokerRole": "SYNC_MASTER",
        "haPeers": "127.0.0.1",
        "inSyncReplicas": 2,
    },
}
UNWAITED = ("alone", "ASYNC_MASTER")


class Lags:
    """Asks a master for how long its slave has not had everything, in ms."""

    def __init__(self, address: str) -> None:
        self.ms: list[int] = []
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> list[int]:
        self._thread.start()
        return self.ms

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            slaves = ha_status(self._address)["haConnectionInfo"]
            self.ms += [int(slave["lagMillis"]) for slave in slaves]


def pair_of(root: Path, kind: str) -> Replicas:
    """A pair that is not started, with the sizes of files that a broker comes with."""
    here = {"brokerRole": "SLAVE", "brokerId": 1}
    return Replicas(root, of_master={**SIZES, **KINDS[kind]}, of_slave={**SIZES, **here})


def rates(
    root: Path, seconds: float, options: tuple[str, ...], kinds: Iterable[str]
) -> dict[str, Figures]:
    """One load on each kind of master."""
    return {
        kind: rate_of(pair_of(root / kind, kind), Case(kind, options), seconds) for kind in kinds
    }


def rate_of(pair: Replicas, case: Case, seconds: float) -> Figures:
    """The load on one kind of master, with a slave unless it is alone."""
    with ExitStack() as stack:
        stack.enter_context(pair.master)
        address = pair.master.address
        if case.name != "alone":
            stack.enter_context(pair.slave)
            until(lambda: bool(ha_status(address)["haConnectionInfo"]))
        return load(address, pair.master.child.pid, case, seconds, warm_up_s=WARM_UP_S)


def until(look: Callable[[], bool]) -> None:
    """Wait for what a slave does."""
    ends = time.monotonic() + 120
    while not look():
        assert time.monotonic() < ends, "the slave does not follow"
        time.sleep(0.01)


def lag_and_catch_up(
    root: Path, rate: int, seconds: float, behind_mib: int
) -> tuple[list[int], float]:
    """The lags at a fixed rate in ms; and MiB/s of a slave that has so much to catch up."""
    pair = pair_of(root, "ASYNC_MASTER")
    with pair.master, ExitStack() as stack:
        address, pid = pair.master.address, pair.master.child.pid
        pair.slave.start()
        stack.callback(pair.slave.kill)
        until(lambda: bool(ha_status(address)["haConnectionInfo"]))
        load(address, pid, Case("warm", SENDS), 1, warm_up_s=1)
        with Lags(address) as ms:
            load(address, pid, Case("paced", paced(rate)), seconds)
        until(lambda: log_end(pair.slave.address) == log_end(address))
        pair.slave.kill()
        begin = log_end(address)
        while log_end(address) - begin < behind_mib * MiB:
            options = ("-m", "batch", "-c", "8", "-d", "4", "-s", "1024")
            load(address, pid, Case("fill", options), 1, warm_up_s=0)
        end = log_end(address)
        pair.slave.start()
        until(lambda: log_end(pair.slave.address) > begin)
        began, first = time.monotonic(), log_end(pair.slave.address)
        until(lambda: log_end(pair.slave.address) == end)
        return ms, (end - first) / MiB / (time.monotonic() - began)


def paced(rate: int) -> tuple[str, ...]:
    """The load of 64 connections that pause between two sends, for so many a second."""
    return (*SENDS, "-pace", "-think", f"{64 / rate * 1_000:.3f}ms")


@program
def main() -> None:
    """Print each round, and the medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.replication")
    parser.add_argument("--seconds", type=positive, default=5)
    parser.add_argument("--rounds", type=whole, default=3)
    parser.add_argument("--rate", type=whole, default=20_000)
    parser.add_argument("--behind", type=whole, default=512)
    given = parser.parse_args()
    build()
    print(describe())
    rounds, slow = [], []
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as directory:
        root = Path(directory)
        for number in range(given.rounds):
            rounds.append(rates(root / str(number), given.seconds, SENDS, KINDS))
            half = paced(given.rate // 2)
            slow.append(rates(root / f"{number}-slow", given.seconds, half, UNWAITED))
            for kind, figures in (*rounds[-1].items(), *slow[-1].items()):
                values = (f"{name}={value:g}" for name, value in figures.items())
                print(f"{kind}:", *values, flush=True)
        ms, mib_s = lag_and_catch_up(root / "lag", given.rate, given.seconds, given.behind)
    for kind, other in (("ASYNC_MASTER", "alone"), ("SYNC_MASTER", "ASYNC_MASTER")):
        rate = statistics.median(one[kind]["rate"] / one[other]["rate"] for one in rounds)
        cpu = statistics.median(one[kind]["cpu"] / one[other]["cpu"] for one in rounds)
        print(f"{kind}: {rate:.0%} of the rate of {other}, {cpu:.0%} of its CPU per message")
    cpu = statistics.median(one["ASYNC_MASTER"]["cpu"] / one["alone"]["cpu"] for one in slow)
    print(f"ASYNC_MASTER at half of {given.rate:,} msgs/s: {cpu:.0%} of the CPU of alone")
    worst = sorted(ms)[int(len(ms) * 0.99)]
    print(f"lag at about {given.rate:,} msgs/s: p50 {statistics.median(ms):g} ms, p99 {worst} ms")
    print(f"catching up: {mib_s:,.0f} MiB/s")


if __name__ == "__main__":
    main()
