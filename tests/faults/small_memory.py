"""R16: a broker under full load in 256 MiB, page cache included, with a log many times as long.

Beside it, by turns, works one without the limit: what the limit costs is their ratio.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign
from tests.kit.health import rss_anon
from tests.kit.memory_limit import memory_limit
from tests.kit.raw_client import RawConnection, pull_fields, records
from tests.kit.steady import fill

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.campaign import Run

KiB, MiB = 1 << 10, 1 << 20
LIMIT_BYTES = 256 * MiB
PRIVATE_BYTES = 128 * MiB
SHARE_MIN = 0.7
LARGE = 20
"""From so many cycles on it is a recorded run, and the ratio says something."""
PULL = 11
ORDINARY = {"PYTHONNOUSERSITE": "1"}
"""Variables with which a broker starts as a process of its own. The fork of a prepared one would be
in the group of that process, and not in the limited one."""


def small_memory(run: Run) -> None:
    """So many bursts to each of the two."""
    large = run.wanted >= LARGE
    burst_bytes = (64 if large else 4) * MiB
    settings: dict[str, object] = {"mappedFileSizeCommitLog": (64 if large else 4) * MiB}
    shares: list[float] = []
    stored = 0
    limited, free = (
        BrokerProcess(data=run.directory / name, settings=settings, env=ORDINARY)
        for name in ("limited", "free")
    )
    with memory_limit(LIMIT_BYTES) as limit, ExitStack() as stack:
        stack.enter_context(free)
        with limit.entered():
            stack.enter_context(limited)
        for cycle in run.cycles():
            took_s: dict[Path, float] = {}
            for broker in cycle.rng.sample((limited, free), 2):
                began = time.perf_counter()
                sent = fill(broker.address, "load", size_bytes=burst_bytes, body_bytes=KiB)
                took_s[broker.data] = time.perf_counter() - began
            stored += sent
            shares.append(took_s[free.data] / took_s[limited.data])
            # The begin of the log has left the memory long ago.
            assert first_of(limited, sent // 2) == sent // 2
            run.worst("MiB private", rss_anon(limited.child.pid) >> 20)
        assert not limit.kills
        assert limited.stop() == 0
        run.counts["messages"] = stored
        run.counts["MiB in use at most"] = limit.most_bytes >> 20
        run.counts["times at the limit"] = limit.times_reached
    run.counts["rate beside one without limit %"] = round(100 * statistics.median(shares))
    assert run.counts["MiB private"] <= PRIVATE_BYTES >> 20
    if large:
        assert run.counts["times at the limit"], "the log is longer than the memory"
        assert statistics.median(shares) >= SHARE_MIN, shares


def first_of(broker: BrokerProcess, offset: int) -> int:
    """The queue offset of the first message that a pull from `offset` gives."""
    with RawConnection(broker.address, timeout_s=30) as consumer:
        answer = consumer.call(PULL, pull_fields("readers", "load", 0, offset))
    return next(iter(records(answer.body))).queue_offset


R16 = Campaign(
    key="R16",
    title="full load in 256 MiB of memory, page cache included",
    unit="bursts",
    t1=1,
    t2=60,
    run=small_memory,
)
