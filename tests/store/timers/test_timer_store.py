from __future__ import annotations

import errno
import gc
import os
import random
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from aerobee.store.errors import StoreRefused
from aerobee.store.files.disk import Disk
from aerobee.store.format.timer import DELETE, ROLL, TIMER, TIMER_CHECK, WHEEL_SLOT
from aerobee.store.messages.cold_reads import ColdReads
from aerobee.store.stats import StoreStats
from aerobee.store.timers.timer_chain import DueTimer
from aerobee.store.timers.timer_store import TimerStore
from tests.kit.faulty_disk import Fault, FaultyDisk, PowerCut
from tests.kit.store_model import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

NOW_MS = 1_700_000_000_000
SLOTS = 256
FILE_BYTES = 1_000
"""18 units, then a blank of 64 bytes."""


def _no_slots(_queue_offset: int) -> tuple[int, ...]:
    return ()


def open_timers(
    root: Path,
    disk: Disk | None = None,
    *,
    file_bytes: int = FILE_BYTES,
    slots: int = SLOTS,
    precision_ms: int = 1_000,
    **how: object,
) -> TimerStore:
    disk = disk or Disk()
    root.mkdir(exist_ok=True)
    timers = TimerStore(
        disk,
        root,
        precision_ms=precision_ms,
        log_file_bytes=file_bytes,
        read_file=ColdReads(disk, StoreStats(), ManualClock()).log,
        slots=slots,
    )
    given = {"clean": True, "queue": range(10_000), "now_ms": NOW_MS + 777, "slots_of": _no_slots}
    timers.load(**{**given, "queue_offset_of": lambda place: place // 100, **how})  # type: ignore[arg-type]  # as given
    return timers


def add(timers: TimerStore, number: int, after_s: int, magic: int = TIMER) -> None:
    """Message `number` of the wheel topic, due in so many seconds."""
    due = DueTimer(number * 100, 100, magic, 0)
    assert timers.add(NOW_MS + after_s * 1000, NOW_MS, due, number)
    timers.queue_offset = number + 1


def save(timers: TimerStore) -> None:
    picture = timers.begin_save(NOW_MS)
    timers.written(picture, timers.write(picture))
    timers.sync_units(picture)
    timers.write_slots(picture)
    timers.sync_slots(picture)
    timers.write_check(picture)
    timers.sync_check()
    timers.saved(picture)


def due(timers: TimerStore, after_s: int) -> list[int]:
    """Numbers of the messages in a slot, the oldest first."""
    return due_at(timers, NOW_MS + after_s * 1000)


def due_at(timers: TimerStore, time_ms: int) -> list[int]:
    chain = timers.chain(time_ms)
    if chain is None:
        return []
    while not timers.walk(chain, 3):
        pass
    return [chain.due(number).physical_offset // 100 for number in range(len(chain))]


def settle(timers: TimerStore, after_s: int, done: int) -> bool:
    chain = timers.chain(NOW_MS + after_s * 1000)
    assert chain is not None
    timers.walk(chain, 1 << 20)
    return timers.settle(chain, done)


def spread(timers: TimerStore, numbers: Iterable[int]) -> dict[int, list[int]]:
    """Many timers over 20 slots; what each slot then holds."""
    expected: dict[int, list[int]] = {}
    for number in numbers:
        after_s = number * 7 % 20
        add(timers, number, after_s)
        expected.setdefault(after_s, []).append(number)
    return expected


def test_a_slot_gives_its_timers_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    expected = spread(timers, range(200))
    assert {after_s: due(timers, after_s) for after_s in expected} == expected
    save(timers)
    assert {after_s: due(timers, after_s) for after_s in expected} == expected
    assert timers.waiting == 200
    assert [path.stat().st_size for path in sorted((tmp_path / "timerlog").iterdir())] == (
        [FILE_BYTES] * 12
    )


def test_timers_that_wait_hold_pages_of_the_wheel_and_nothing_else(tmp_path: Path) -> None:
    timers = open_timers(tmp_path, file_bytes=1 << 20)
    tracemalloc.start()
    try:
        expected = 10_000
        for number in range(expected):
            add(timers, number, number % 200)
        save(timers)
        gc.collect()
        held_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert timers.waiting == expected
    assert held_bytes < 5 * expected, "as objects they would be fifty times that"


def test_what_was_saved_is_there_after_a_clean_start(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    expected = spread(timers, range(200))
    save(timers)
    timers.close()
    again = open_timers(tmp_path)
    assert {after_s: due(again, after_s) for after_s in expected} == expected
    assert (again.queue_offset, again.waiting, again.read_time_ms) == (200, 200, NOW_MS)
    assert not again.changed
    add(again, 200, 0)
    assert due(again, 0)[-1] == 200


def test_what_was_not_saved_is_read_again(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    expected = spread(timers, range(50))
    save(timers)
    spread(timers, range(50, 70))
    timers.close()
    again = open_timers(tmp_path, clean=False)
    assert again.queue_offset == 50
    assert {after_s: due(again, after_s) for after_s in expected} == expected


def test_slots_saved_after_the_check_file_are_set_back(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    expected = spread(timers, range(50))
    save(timers)
    spread(timers, range(50, 90))
    picture = timers.begin_save(NOW_MS)
    timers.written(picture, timers.write(picture))
    timers.write_slots(picture)
    timers.close()
    again = open_timers(tmp_path, clean=False)
    assert again.queue_offset == 50
    assert {after_s: due(again, after_s) for after_s in range(20)} == expected
    assert again.waiting == 50
    spread(again, range(50, 90))
    assert again.waiting == 90


def test_a_part_of_a_slot_can_be_done_with(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    for number in range(10):
        add(timers, number, 5)
    assert not settle(timers, 5, 4)
    add(timers, 10, 5)
    assert due(timers, 5) == [4, 5, 6, 7, 8, 9, 10]
    assert timers.waiting == 7
    save(timers)
    timers.close()
    again = open_timers(tmp_path)
    assert due(again, 5) == [4, 5, 6, 7, 8, 9, 10]
    assert settle(again, 5, 7)
    assert due(again, 5) == []
    assert again.waiting == 0


def test_a_timer_that_comes_while_its_slot_is_delivered_stays(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    add(timers, 0, 5)
    chain = timers.chain(NOW_MS + 5_000)
    assert chain is not None
    timers.walk(chain, 10)
    add(timers, 1, 5)
    assert not timers.settle(chain, 1)
    assert due(timers, 5) == [1]
    assert timers.waiting == 1


def test_deletions_are_known_apart_and_count_against_their_timers(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    add(timers, 0, 5)
    add(timers, 1, 5, TIMER | DELETE)
    add(timers, 2, 5, TIMER | DELETE | ROLL)
    chain = timers.chain(NOW_MS + 5_000)
    assert chain is not None
    timers.walk(chain, 10)
    assert chain.deletions() == [1]
    assert timers.waiting == -1
    assert timers.settle(chain, 3)
    assert timers.waiting == 0


def test_a_place_is_not_taken_from_a_time_that_still_has_timers(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    add(timers, 0, 5)
    full_turn_ms = NOW_MS + (5 + SLOTS) * 1000
    assert not timers.add(full_turn_ms, NOW_MS, DueTimer(100, 100, TIMER, 0), 1)
    assert settle(timers, 5, 1)
    assert timers.add(full_turn_ms, NOW_MS, DueTimer(100, 100, TIMER, 0), 1)


def test_a_clock_that_goes_back_brings_earlier_slots_back(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    timers.read_time_ms = NOW_MS + 100_000
    add(timers, 0, -50)
    assert timers.read_time_ms == NOW_MS - 50_000


def test_slots_that_others_left_behind_are_empty(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    add(timers, 0, 3)
    add(timers, 1, 5)
    timers.read_time_ms = NOW_MS + 4_000
    save(timers)
    timers.close()
    again = open_timers(tmp_path)
    assert due(again, 3) == []
    assert due(again, 5) == [1]


def test_without_a_check_file_all_is_read_again(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    spread(timers, range(50))
    save(timers)
    timers.close()
    (tmp_path / "config" / "timercheck").unlink()
    again = open_timers(tmp_path, queue=range(7, 50))
    assert (again.queue_offset, again.waiting) == (7, 0)
    assert not (tmp_path / "timerwheel").exists()
    add(again, 7, 1)
    save(again)
    assert due(again, 1) == [7]


@pytest.mark.parametrize("damage", ["missing", "nonsense"])
def test_a_wheel_that_cannot_be_believed_is_made_from_the_log(tmp_path: Path, damage: str) -> None:
    timers = open_timers(tmp_path)
    expected = spread(timers, range(60))
    save(timers)
    timers.close()
    wheel = tmp_path / "timerwheel"
    if damage == "missing":
        wheel.unlink()
    else:
        step = (NOW_MS + 50_000) // 1000
        with wheel.open("r+b") as file:
            file.seek(step % SLOTS * WHEEL_SLOT.size)
            file.write(WHEEL_SLOT.pack(step, 0, 1 << 40, 1, 0))
    again = open_timers(tmp_path)
    assert {after_s: due(again, after_s) for after_s in range(60)} == {
        after_s: expected.get(after_s, []) for after_s in range(60)
    }


def emptied(files: list[Path]) -> None:
    for path in files:
        path.unlink()


def without_last(files: list[Path]) -> None:
    files[-1].unlink()


def zeroed(files: list[Path]) -> None:
    files[-1].write_bytes(bytes(files[-1].stat().st_size))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("spoil", [emptied, without_last, zeroed])
def test_units_that_are_gone_are_read_from_the_log_again(
    tmp_path: Path, spoil: Callable[[list[Path]], None], clean: bool
) -> None:
    timers = open_timers(tmp_path)
    expected = spread(timers, range(60))
    save(timers)
    timers.close()
    spoil(sorted((tmp_path / "timerlog").iterdir()))
    with capture_logs() as logged:
        again = open_timers(tmp_path, clean=clean, queue=range(60))
    [said] = [line for line in logged if line["event"] == "timer.log_lost"]
    assert (said["queue_offset"], said["expected"]) == (again.queue_offset, 60)
    for number in range(again.queue_offset, 60):
        add(again, number, number * 7 % 20)
    assert {after_s: due(again, after_s) for after_s in expected} == expected
    save(again)
    again.close()
    with capture_logs() as logged:
        assert open_timers(tmp_path, queue=range(60)).queue_offset == 60
    assert "timer.log_lost" not in [line["event"] for line in logged]


def test_a_file_of_the_timer_log_missing_in_the_middle_is_refused_with_the_remedy(
    tmp_path: Path,
) -> None:
    timers = open_timers(tmp_path)
    spread(timers, range(60))
    save(timers)
    timers.close()
    sorted((tmp_path / "timerlog").iterdir())[1].unlink()
    with pytest.raises(StoreRefused, match=r"timerlog/0*1000 is missing: .*timerwheel"):
        open_timers(tmp_path)


def test_no_bit_of_a_slot_that_turns_over_loses_a_timer(tmp_path: Path) -> None:
    slots = 252  # As for a real wheel, no power of two is a multiple.
    timers = open_timers(tmp_path, slots=slots)
    expected = spread(timers, range(60))
    save(timers)
    timers.close()
    wheel = tmp_path / "timerwheel"
    at = (NOW_MS + 5_000) // 1000 % slots * WHEEL_SLOT.size
    content = wheel.read_bytes()
    for bit in range(8 * (WHEEL_SLOT.size - 4)):
        damaged = bytearray(content)
        damaged[at + bit // 8] ^= 1 << bit % 8
        wheel.write_bytes(damaged)
        again = open_timers(tmp_path, slots=slots)
        assert {after_s: due(again, after_s) for after_s in expected} == expected, bit
        again.close()


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_in_the_wheel_lose_no_timer(tmp_path: Path, seed: int) -> None:
    timers = open_timers(tmp_path)
    expected = spread(timers, range(60))
    save(timers)
    timers.close()
    noise = random.Random(seed)
    with (tmp_path / "timerwheel").open("r+b") as file:
        file.seek((NOW_MS + 5_000) // 1000 % SLOTS * WHEEL_SLOT.size)
        file.write(noise.randbytes(WHEEL_SLOT.size * noise.randint(1, 3)))
    again = open_timers(tmp_path)
    assert {after_s: due(again, after_s) for after_s in expected} == expected


def test_a_unit_is_only_where_one_was_put(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    spread(timers, range(60))
    save(timers)
    timers.close()
    again = open_timers(tmp_path)
    found = [at for at in range(-1, again.log.end + 1) if again.log.unit(at) is not None]
    assert found == [number // 18 * FILE_BYTES + number % 18 * 52 for number in range(60)]


def test_a_chain_that_is_broken_ends_there_and_says_so(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    expected = spread(timers, range(60))
    save(timers)
    timers.close()
    with (tmp_path / "timerlog" / "00000000000000001000").open("r+b") as file:
        file.seek(17 * 52 + 4)
        file.write((988).to_bytes(8, "big"))
    again = open_timers(tmp_path)
    with capture_logs() as logs:
        assert due(again, 5) == expected[5][1:]
    assert [(one["event"], one["position"]) for one in logs] == [("timer.chain_broken", 988)]


def test_a_wheel_of_another_length_is_refused_with_the_remedy(tmp_path: Path) -> None:
    timers = open_timers(tmp_path)
    add(timers, 0, 3)
    save(timers)
    (tmp_path / "timerwheel").write_bytes(bytes(100))
    with pytest.raises(StoreRefused, match=r"timerwheel has 100 bytes instead of 8192: move it"):
        open_timers(tmp_path)


def test_a_check_file_that_is_ahead_of_the_log_is_not_believed_after_a_crash(
    tmp_path: Path,
) -> None:
    timers = open_timers(tmp_path)
    spread(timers, range(20))
    timers.queue_offset = 25
    save(timers)
    timers.close()
    assert open_timers(tmp_path).queue_offset == 25
    assert open_timers(tmp_path, clean=False).queue_offset == 20


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("place", [-1, 0, 520, 777, 1_000, 3_311])
def test_a_check_file_that_knows_too_few_units_loses_no_timer(
    tmp_path: Path, place: int, clean: bool
) -> None:
    timers = open_timers(tmp_path)
    expected = spread(timers, range(60))
    save(timers)
    timers.close()
    rewrite_check(tmp_path, flushed_position=place)
    again = open_timers(tmp_path, clean=clean)
    assert {after_s: due(again, after_s) for after_s in expected} == expected
    assert again.queue_offset == 60


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("before", [0, 1, 25])
def test_a_wheel_that_is_older_than_what_was_read_loses_no_timer(
    tmp_path: Path, before: int, clean: bool
) -> None:
    """A Java broker leaves it so when it ends before its next flush."""
    timers = open_timers(tmp_path)
    expected = spread(timers, range(before))
    save(timers)
    wheel = tmp_path / "timerwheel"
    older, flushed = wheel.read_bytes() if before else bytes(timers.wheel.size), timers.log.end
    for after_s, numbers in spread(timers, range(before, 60)).items():
        expected[after_s] = expected.get(after_s, []) + numbers
    save(timers)
    timers.close()
    wheel.write_bytes(older)
    rewrite_check(tmp_path, flushed_position=flushed)
    again = open_timers(tmp_path, clean=clean)
    assert {after_s: due(again, after_s) for after_s in expected} == expected
    assert (again.queue_offset, again.waiting) == (60, 60)


@pytest.mark.parametrize("offset", [71, 1 << 40])
def test_a_check_file_that_is_ahead_of_the_queue_is_not_believed(
    tmp_path: Path, offset: int
) -> None:
    timers = open_timers(tmp_path)
    spread(timers, range(60))
    save(timers)
    timers.close()
    rewrite_check(tmp_path, queue_offset=offset, master_queue_offset=offset)
    assert open_timers(tmp_path, queue=range(70)).queue_offset == 60


def rewrite_check(root: Path, **fields: int) -> None:
    path = root / "config" / "timercheck"
    check = TIMER_CHECK.read(path.read_bytes()[: TIMER_CHECK.size])
    path.write_bytes(TIMER_CHECK.write(check._replace(**fields)).ljust(4_096, b"\0"))


def test_files_of_the_timer_log_go_when_the_commit_log_has_lost_their_records(
    tmp_path: Path,
) -> None:
    timers = open_timers(tmp_path)
    spread(timers, range(60))
    assert timers.log.expired(1 << 40) is None, "it is not on disk yet"
    save(timers)
    assert timers.log.expired(17 * 100) is None
    file = timers.log.expired(17 * 100 + 1)
    assert file is not None
    assert file.start == 0
    file.path.unlink()
    timers.log.drop_first()
    assert timers.log.begin == FILE_BYTES
    assert due(timers, 0) == [20, 40], "the chain ends where the log begins"


def churn(timers: TimerStore, rng: random.Random, done: set[int], steps: int) -> None:
    """Add, deliver whole slots and parts of them, save; `done` is what is off the slots."""
    for _ in range(steps):
        what = rng.random()
        if what < 0.75:
            add(timers, timers.queue_offset, rng.randrange(20))
        elif what < 0.9:
            after_s = rng.randrange(20)
            here = due(timers, after_s)
            if here:
                number = rng.randrange(1, len(here) + 1)
                settle(timers, after_s, number)
                done.update(here[:number])
        else:
            save(timers)


@pytest.mark.parametrize("seed", range(40))
def test_no_timer_is_lost_by_a_power_cut(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    root = tmp_path / "data"
    root.mkdir()
    disk = FaultyDisk(root, granule=512)
    disk.faults = [Fault(number=rng.randrange(20, 120), cut=True)]
    done: set[int] = set()
    timers = open_timers(root, disk)
    with pytest.raises(PowerCut):
        churn(timers, rng, done, 10_000)
    reached = timers.queue_offset
    after = tmp_path / "after"
    disk.power_cut(after, rng)
    again = open_timers(after, clean=False)
    kept = {number for after_s in range(20) for number in due(again, after_s)}
    assert again.queue_offset <= reached
    assert set(range(again.queue_offset)) - done <= kept
    assert all(number < again.queue_offset for number in kept)
    churn(again, rng, done, 100)
    save(again)


PRECISIONS = [(1_000, 100), (100, 1_000), (1_000, 300), (250, 1_000)]


@pytest.mark.parametrize("wheel", ["whole", "missing"])
@pytest.mark.parametrize(("stored_ms", "wanted_ms"), PRECISIONS)
def test_timers_that_wait_keep_the_precision_that_they_were_stored_with(
    tmp_path: Path, stored_ms: int, wanted_ms: int, wheel: str
) -> None:
    timers = open_timers(tmp_path, precision_ms=stored_ms)
    times: dict[int, list[int]] = {}
    for number in range(120):
        time_ms = NOW_MS + number * 3 % 200 * stored_ms
        assert timers.add(time_ms, NOW_MS, DueTimer(number * 100, 100, TIMER, 0), number)
        times.setdefault(time_ms, []).append(number)
        timers.queue_offset = number + 1
    save(timers)
    timers.close()
    if wheel == "missing":
        (tmp_path / "timerwheel").unlink()
    for precision_ms in (wanted_ms, stored_ms, wanted_ms):
        with capture_logs() as said:
            again = open_timers(tmp_path, precision_ms=precision_ms)
        kept = [line["event"] for line in said if line["event"] == "timer.precision_kept"]
        assert again.waiting == 120
        assert kept or again.precision_ms == precision_ms
        assert {time: due_at(again, time) for time in times} == times
        save(again)
        again.close()


def test_another_precision_counts_once_no_timer_waits(tmp_path: Path) -> None:
    timers = open_timers(tmp_path, precision_ms=1_000)
    add(timers, 0, 5)
    save(timers)
    assert settle(timers, 5, 1)
    timers.read_time_ms = NOW_MS + 6_000
    save(timers)
    timers.close()
    again = open_timers(tmp_path, precision_ms=100, now_ms=NOW_MS + 7_000)
    assert again.precision_ms == again.wheel.precision_ms == 100
    assert again.add(NOW_MS + 8_100, NOW_MS, DueTimer(100, 100, TIMER, 0), 1)
    save(again)
    again.close()
    assert open_timers(tmp_path, precision_ms=1_000, now_ms=NOW_MS + 7_000).precision_ms == 100


def test_saves_on_a_full_disk_leave_no_descriptor_open(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    timers = open_timers(tmp_path, disk)
    expected = spread(timers, range(40))
    disk.faults = [Fault(name="pwrite", path="timerlog", error=errno.ENOSPC, times=1 << 30)]
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        picture = timers.begin_save(NOW_MS)
        with pytest.raises(OSError, match="No space"):
            timers.write(picture)
        timers.not_saved(picture)
    assert len(os.listdir("/proc/self/fd")) == before
    disk.faults = []
    save(timers)
    timers.close()
    again = open_timers(tmp_path)
    assert {after_s: due(again, after_s) for after_s in expected} == expected
