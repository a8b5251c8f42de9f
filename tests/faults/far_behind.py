"""R11: a consumer far behind, on a disk of 1 MiB/s: neither producers nor the loop feel it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kit.campaign import Campaign
from tests.kit.slow_disk import slow_disk
from tests.kit.stall_watch import WatchedBroker
from tests.kit.steady import Past, Producers, fill, p99_ms

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.campaign import Run

MiB = 1 << 20
READ_BPS = MiB
PAST_BYTES = 8 * MiB
SECONDS = 3.0
STALL_MS = 20.0
FLOOR_MS = 3.0
"""Below this a p99 says more about the machine than about us."""
ATTEMPTS = 3
"""Machines stand still by themselves; a page fault of ours would be there each time."""


def cold_consumer(run: Run) -> None:
    """Each cycle a broker whose past only the slow disk has."""
    for cycle in run.cycles():
        complaints: list[str] = []
        while len(complaints) < ATTEMPTS:
            directory = run.directory / f"{cycle.number}-{len(complaints)}"
            directory.mkdir()
            complaint = attempt(run, directory)
            if not complaint:
                break
            complaints.append(complaint)
        run.counts["repeated"] += len(complaints)
        assert len(complaints) < ATTEMPTS, complaints


def attempt(run: Run, directory: Path) -> str:
    """One measurement; what was wrong with it, or nothing."""
    with slow_disk(directory, size_bytes=192 * MiB) as disk:
        broker = WatchedBroker(data=disk.at / "data", log_path=directory / "broker.log")
        with broker:
            fill(broker.address, "past", size_bytes=PAST_BYTES, body_bytes=1_024)
            assert broker.stop() == 0
        disk.empty_cache()
        with broker.watched() as gaps:
            disk.limit_reads(READ_BPS)
            with Producers(broker.address, "now", body_bytes=1_024, pause_s=0.002) as alone:
                broker.let_run(SECONDS)
            with (
                Past(broker.address, "past") as past,
                Producers(broker.address, "now", body_bytes=1_024, pause_s=0.002) as beside,
            ):
                broker.let_run(SECONDS)
            disk.limit_reads(0)
    assert past.messages > 0
    assert past.bytes < 2 * READ_BPS * SECONDS, "the past was not read from the slow disk"
    before, after = p99_ms(alone.latencies_ms), p99_ms(beside.latencies_ms)
    stall = max((gap.stall_ms for gap in gaps), default=0.0)
    if stall > STALL_MS:
        return f"the loop stood still for {stall:.1f} ms"
    if after > max(2 * before, FLOOR_MS):
        return f"p99 went from {before:.2f} to {after:.2f} ms"
    run.counts["KiB of the past"] += past.bytes >> 10
    run.counts["sends beside it"] += len(beside.latencies_ms)
    run.worst("slowest pull ms", round(past.slowest_ms))
    run.worst("longest standstill us", round(stall * 1_000))
    run.worst("p99 us alone", round(before * 1_000))
    run.worst("p99 us beside", round(after * 1_000))
    return ""


R11 = Campaign(
    key="R11",
    title="a cold consumer on a disk of 1 MiB/s, beside producers",
    unit="brokers",
    t1=1,
    t2=20,
    run=cold_consumer,
)
