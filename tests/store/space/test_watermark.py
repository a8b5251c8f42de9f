"""How full is full, and when sends are refused for it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from aerobee.store.config import StoreConfig
from aerobee.store.files.disk import Disk
from aerobee.store.files.machine import Space
from aerobee.store.space.retention import Level
from aerobee.store.space.watermark import DiskWatch, usage_of, used_percent

GiB = 1 << 30
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


def used(percent: float, total: int = 100 * GiB) -> Space:
    free = total - round(total * percent / 100)
    return Space(total, free, free)


class BentDisk(Disk):
    """File systems as full as a test says, by directory."""

    def __init__(self) -> None:
        super().__init__()
        self.spaces: dict[str, Space | None] = {}

    def free_space(self, path: Path) -> Space:
        space = self.spaces[path.name]
        if space is None:
            raise OSError(errno.EIO, "Input/output error")
        return space


class Desk:
    """A watch, and what it told."""

    def __init__(self, **changes: object) -> None:
        self.disk = BentDisk()
        self.changes: list[str] = []
        config = StoreConfig(**changes)  # type: ignore[arg-type]  # as the test names them
        self.watch = DiskWatch(
            config, self.disk, Path("/log"), Path("/root"), on_change=self.changes.append
        )

    async def look(self, log: Space | None, root: Space | None = None) -> None:
        self.disk.spaces = {"log": log, "root": root or used(1)}
        await self.watch.look()


def test_use_is_counted_as_rocketmq_does_in_whole_percent_rounded_up() -> None:
    assert used_percent(used(74.0)) == 74
    assert used_percent(used(74.01)) == 75
    assert used_percent(Space(100, 30, 20)) == 78, "what only root may take is no room"
    assert used_percent(Space(0, 0, 0)) == 0


@pytest.mark.parametrize(
    ("percent", "level"),
    [
        (75, Level.ROOM),
        (75.1, Level.HIGH),
        (85, Level.HIGH),
        (85.1, Level.FORCED),
        (90, Level.FORCED),
        (90.1, Level.FULL),
        (100, Level.FULL),
    ],
)
def test_each_limit_is_exceeded_above_it_and_not_at_it(percent: float, level: Level) -> None:
    assert usage_of(used(percent), StoreConfig()).level is level


def test_a_limit_may_be_bytes_to_keep_free() -> None:
    config = StoreConfig(disk_space_warning_level_free_bytes=20 * GiB)
    assert usage_of(used(80), config).level is Level.HIGH
    assert usage_of(used(80.1), config).level is Level.FULL
    big = StoreConfig(
        disk_max_used_space_free_bytes=3 * GiB,
        disk_space_clean_forcibly_free_bytes=2 * GiB,
        disk_space_warning_level_free_bytes=GiB,
    )
    assert usage_of(used(96.9), big).level is Level.ROOM
    assert usage_of(used(98.5), big) == (Level.FORCED, 99, GiB // 2)


def test_the_excess_is_what_must_go_before_nothing_is_forced_any_more() -> None:
    assert usage_of(used(85), StoreConfig()).excess_bytes == 0
    assert usage_of(used(88), StoreConfig()).excess_bytes == 3 * GiB
    only_warning = StoreConfig(
        disk_space_clean_forcibly_free_bytes=1, disk_space_warning_level_ratio_percent=50
    )
    assert usage_of(used(60), only_warning).excess_bytes == 10 * GiB


@pytest.mark.trio
async def test_sends_are_refused_above_the_warning_level_and_taken_at_it() -> None:
    desk = Desk()
    await desk.look(used(90))
    assert not desk.watch.refusing
    assert desk.changes == []
    await desk.look(used(90.5))
    assert desk.watch.refusing
    assert desk.changes[-1].startswith(
        "the broker's disk is full [CL:  0.91 CQ:  0.01 INDEX:  0.01]"
    )
    await desk.look(used(90))
    assert not desk.watch.refusing
    assert desk.changes[-1] == ""


@pytest.mark.trio
async def test_the_fuller_file_system_decides_and_neither_hides_the_other() -> None:
    desk = Desk()
    await desk.look(used(10), used(95))
    assert desk.watch.refusing
    assert desk.watch.level is Level.FULL
    assert desk.watch.excess_bytes(GiB) == 1, "one segment at a time: its queues go with it"
    await desk.look(used(95), used(10))
    assert desk.watch.refusing
    assert desk.watch.excess_bytes(GiB) == 10 * GiB


@pytest.mark.trio
async def test_two_causes_are_both_gone_before_sends_go_on() -> None:
    desk = Desk()
    await desk.look(used(95))
    desk.watch.no_segment(NO_SPACE)
    assert "No space left on device" in desk.changes[-1]
    desk.watch.segment_again()
    assert desk.changes[-1], "still above the warning level"
    desk.watch.no_segment(NO_SPACE)
    await desk.look(used(10))
    assert desk.watch.starved
    assert desk.changes[-1], "the segment is still missing"
    desk.watch.segment_again()
    assert desk.changes[-1] == ""


@pytest.mark.trio
async def test_without_room_for_a_segment_a_disk_is_full_whatever_the_percentage() -> None:
    desk = Desk()
    await desk.look(used(50, total=GiB))
    desk.watch.no_segment(NO_SPACE)
    assert desk.watch.level is Level.FULL
    assert desk.watch.excess_bytes(GiB) == GiB // 2
    desk.watch.no_segment(OSError(errno.EACCES, "Permission denied"))
    assert desk.watch.level < Level.HIGH, "deleting would not help"
    assert desk.watch.refusing
    assert desk.changes[-1] == "no log segment can be made: Permission denied"
    desk.watch.no_segment(OSError(errno.EMFILE, "Too many open files"))
    assert "Too many open files: raise the limit" in desk.changes[-1]
    assert "ulimit -n" in desk.changes[-1]


@pytest.mark.trio
async def test_a_disk_that_says_nothing_refuses_nothing_and_forces_nothing() -> None:
    desk = Desk()
    await desk.look(None)
    assert desk.watch.level is Level.HIGH
    assert not desk.watch.refusing
    assert desk.watch.excess_bytes(GiB) == 0


@pytest.mark.trio
async def test_a_disk_is_crowded_when_one_is_known_to_be_above_the_first_limit() -> None:
    desk = Desk()
    await desk.look(None)
    assert not desk.watch.crowded
    await desk.look(used(75), used(10))
    assert not desk.watch.crowded
    await desk.look(used(10), used(76))
    assert desk.watch.crowded
    await desk.look(None, used(76))
    assert desk.watch.crowded
    await desk.look(used(10))
    desk.watch.no_segment(NO_SPACE)
    assert desk.watch.crowded
