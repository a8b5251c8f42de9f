"""R23: four times the peak of a broker, by the clock: it stores as much as ever and refuses the
rest.

Each cycle measures the peak in a closed loop, and right behind it an open one at four times that.
The load generator (`bench/rawload`, Go) has a core of its own; what other programs take of the
broker's core in one of the two measurements is taken out by its CPU time.
"""

from __future__ import annotations

import shutil
import statistics
from typing import TYPE_CHECKING

from bench.load import build
from bench.overload import SETTINGS, measure
from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign
from tests.kit.java import unavailable

if TYPE_CHECKING:
    from tests.kit.campaign import Run

TIMES = 4
LARGE = 5
"""From so many cycles on it is a recorded run, and the ratio says something."""
GOODPUT_MIN = 0.8
GOODPUT_MIN_SMALL = 0.4
"""One short cycle beside other tests; without reading ahead it is 0.3 at best on a free machine."""
WITHIN_MS = 500.0
"""For half of the answers, from the time at which the request was to leave."""
FIGURES = {
    "offered/s": "offered/s",
    "good/s": "good/s",
    "refused/s": "busy/s",
    "good p50 ms": "good_p50",
    "refused p50 ms": "busy_p50",
}
"""Of the open loop, by their names in rawload's line; the medians are reported."""
MiB_MORE = 96.0
"""200 ms of what is offered wait as they came, and the answers of a round."""


def overload(run: Run) -> None:
    """So many rounds of one broker."""
    if shutil.which("go") is None:
        unavailable("go is not installed")
    build()
    large = run.wanted >= LARGE
    seconds, warm_up_s = (10.0, 3.0) if large else (1.5, 1.0)
    rounds = []
    with BrokerProcess(data=run.directory / "data", settings=SETTINGS) as broker:
        for _ in run.cycles():
            one = measure(broker, times=TIMES, seconds=seconds, warm_up_s=warm_up_s)
            rounds.append(one)
            peak, overloaded = one.closed, one.open
            assert not overloaded["other"], "answered with neither success nor SYSTEM_BUSY"
            assert overloaded["busy/s"], overloaded
            grown = overloaded["rss_anon_mb"] - peak["rss_anon_mb"]
            run.worst("MiB more", round(grown))
            assert grown <= MiB_MORE, f"{grown} MiB more"
        assert broker.stop() == 0
    goodput = statistics.median(one.goodput for one in rounds)
    per_core = statistics.median(one.goodput_per_core for one in rounds)
    for name, key in FIGURES.items():
        run.counts[name] = round(statistics.median(one.open[key] for one in rounds))
    run.counts["peak/s"] = round(statistics.median(one.closed["msgs/s"] for one in rounds))
    run.counts["goodput % of the peak"] = round(100 * goodput)
    run.counts["for equal CPU time %"] = round(100 * per_core)
    least = GOODPUT_MIN if large else GOODPUT_MIN_SMALL
    assert max(goodput, per_core) >= least, [(one.closed, one.open) for one in rounds]
    if large:
        assert run.counts["good p50 ms"] <= WITHIN_MS
        assert run.counts["refused p50 ms"] <= WITHIN_MS


R23 = Campaign(
    key="R23",
    title="four times the peak offered, by the clock",
    unit="rounds",
    t1=1,
    t2=5,
    run=overload,
)
