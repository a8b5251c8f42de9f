"""The network between a master and its slave loses what passes: both ways, one way, or it is slow.

Both live all the time, and clients reach the master. Nothing that was acknowledged is missing on
the slave, nothing is there twice, and the two are together again by themselves.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tests.faults.replica_kills import AWAY, Life
from tests.kit.campaign import Campaign
from tests.kit.replicas import Replicas, WatchedCodes, log_end, probe
from tests.kit.split_network import split_network
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from tests.kit.campaign import Cycle, Run
    from tests.kit.split_network import SplitNetwork

CYCLES_PER_PAIR = 10
LASTS_S = (0.3, 6.0)
"""Shorter and longer than either side waits for the other (2 s) and a send for the slave (3 s)."""
TOGETHER_WITHIN_S = 30.0
"""A lost SYN is sent again after 1, 3 and 7 s, other packets after as long as they were lost."""
SLOW_KBIT = 2_000
DAYS = ("parted", "acknowledgements lost", "log lost", "flapping", "slow")


def bad_days(run: Run) -> None:
    """H7: one of the days in each cycle, in turn."""
    with split_network() as network:
        while run.more:
            root = run.directory / f"from-{run.number}"
            with Replicas(root, network=network) as pair:
                life = Life(run, pair)
                for _ in range(CYCLES_PER_PAIR):
                    cycle = run.cycle()
                    a_day(life, network, cycle, DAYS[cycle.number % len(DAYS)])
                    life.check_equal()
                    run.done()
                    if not run.more:
                        break
                life.end()


def a_day(life: Life, network: SplitNetwork, cycle: Cycle, day: str) -> None:
    """Load over a bad network, until it is a good one again."""
    pair, seconds = life.pair, cycle.rng.uniform(*LASTS_S)
    life.run.counts[day] += 1
    with life.loaded(cycle), WatchedCodes(pair.master.address) as unheld:
        try:
            if day == "slow":
                network.slow(SLOW_KBIT)
                threading.Event().wait(seconds)
            elif day == "flapping":
                for _ in range(round(seconds / 0.6)):
                    lose(network, "parted")
                    threading.Event().wait(cycle.rng.uniform(0, 0.6))
                    network.heal()
                    threading.Event().wait(cycle.rng.uniform(0, 0.6))
            else:
                lose(network, day)
                assert probe(pair.master.address) in AWAY
                threading.Event().wait(seconds)
        finally:
            network.heal()
        began = time.monotonic()
        eventually(
            lambda: probe(pair.master.address) == 0,
            within_s=TOGETHER_WITHIN_S,
            what=f"a send is answered 0 again after the network was {day}",
        )
        life.run.worst("ms until together", round((time.monotonic() - began) * 1_000))
    assert set(unheld.codes) <= {0}, unheld.codes
    assert log_end(pair.slave.address) > 0, "the slave does not answer"


def lose(network: SplitNetwork, day: str) -> None:
    """Packets are lost from now on; the slave's are the acknowledgements."""
    network.lose(outward=day != "acknowledgements lost", inward=day != "log lost")


H7 = Campaign(
    key="H7",
    title="a network that loses packets between a master and its slave, or is slow",
    unit="days",
    t1=1,
    t2=100,
    run=bad_days,
)
