"""A consumer far behind, on a disk that reads 1 MiB/s: neither producers nor the loop feel it."""

from pathlib import Path

import pytest

from tests.kit.slow_disk import slow_disk
from tests.kit.stall_watch import WatchedBroker
from tests.kit.steady import Past, Producers, fill, p99_ms

pytestmark = [pytest.mark.faults, pytest.mark.alone]

MiB = 1 << 20
READ_BPS = MiB
PAST_BYTES = 8 * MiB
SECONDS = 3.0
STALL_MS = 20.0
FLOOR_MS = 3.0
"""Below this a p99 says more about the machine than about us."""
ATTEMPTS = 3
"""Machines stand still by themselves; a page fault of ours would be there each time."""


def attempt(directory: Path) -> str:
    """One run; what was wrong with it, or nothing."""
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
    print(
        f"p99 {before:.2f} ms alone, {after:.2f} ms beside a reader of {past.bytes >> 10} KiB "
        f"(slowest pull {past.slowest_ms:.0f} ms); longest standstill {stall:.1f} ms"
    )
    if stall > STALL_MS:
        return f"the loop stood still for {stall:.1f} ms"
    if after > max(2 * before, FLOOR_MS):
        return f"p99 went from {before:.2f} to {after:.2f} ms"
    return ""


def test_a_reader_of_the_past_on_a_slow_disk_slows_nobody_else(tmp_path: Path) -> None:
    complaints = []
    for number in range(ATTEMPTS):
        directory = tmp_path / str(number)
        directory.mkdir()
        complaint = attempt(directory)
        if not complaint:
            return
        complaints.append(complaint)
    raise AssertionError(f"{ATTEMPTS} times: {complaints}")
