"""The reserve is there on good days and gone on bad ones; settings reach every part."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from aerobee.store.files.machine import Space
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.running_store import put_in_time, running_store
from tests.kit.store_model import draft

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

MiB = 1 << 20
TOTAL = 1_000 * MiB


class SmallDisk(FaultyDisk):
    used_percent = 10.0

    def free_space(self, path: Path) -> Space:
        free = TOTAL - round(TOTAL * self.used_percent / 100)
        return Space(TOTAL, free, free)


@pytest.mark.trio
async def test_the_reserve_is_kept_and_given_back_when_a_full_store_stops(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path)
    reserve = tmp_path / "reserve"
    async with running_store(tmp_path, disk, mapped_file_size_commit_log_bytes=16 * MiB) as store:
        await store.space.cleanup.look()
        assert reserve.stat().st_size == MiB
        await store.space.make_room()
        assert reserve.exists(), "there is room enough"
        disk.used_percent = 99.9
        await store.space.cleanup.look()
    assert not reserve.exists()


@pytest.mark.trio
@pytest.mark.parametrize(("used_percent", "kept"), [(90.0, True), (99.9, False)])
async def test_a_start_on_a_full_disk_has_the_room_of_the_reserve(
    tmp_path: Path, autojump_clock: MockClock, used_percent: float, kept: bool
) -> None:
    disk = SmallDisk(tmp_path)
    async with running_store(tmp_path, disk, mapped_file_size_commit_log_bytes=16 * MiB) as store:
        await put_in_time(store, draft())
        await store.space.cleanup.look()
    assert (tmp_path / "reserve").exists()
    disk.used_percent = used_percent
    async with running_store(tmp_path, disk, mapped_file_size_commit_log_bytes=16 * MiB):
        assert (tmp_path / "reserve").exists() == kept


@pytest.mark.trio
async def test_on_a_full_disk_no_reserve_is_taken(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path)
    disk.used_percent = 95
    async with running_store(tmp_path, disk, mapped_file_size_commit_log_bytes=16 * MiB) as store:
        await store.space.cleanup.look()
        assert not (tmp_path / "reserve").exists()


@pytest.mark.trio
async def test_a_reserve_that_cannot_be_had_or_given_back_hurts_nobody(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path, Fault(name="posix_fallocate", path="reserve", error=errno.EIO))
    async with running_store(tmp_path, disk, mapped_file_size_commit_log_bytes=16 * MiB) as store:
        await store.space.cleanup.look()
        await store.space.cleanup.look()
        assert store.space.reserve.held
        disk.faults.append(Fault(name="unlink", path="reserve", error=errno.EPERM))
        disk.used_percent = 99.9
        await store.space.cleanup.look()
        await store.space.make_room()
        assert store.space.reserve.held


@pytest.mark.trio
async def test_settings_reach_every_part(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running_store(tmp_path, SmallDisk(tmp_path)) as store:
        config = replace(store.config, delete_when="05")
        store.reconfigure(config)
        space = store.space
        assert space.cleanup.config is space.watch.config is space.queues.config is config


@pytest.mark.trio
async def test_a_start_says_what_it_takes_of_the_disk(tmp_path: Path) -> None:
    with capture_logs() as logged:
        async with running_store(tmp_path, SmallDisk(tmp_path), max_index_num=100) as store:
            index_bytes = store.index.file_bytes
    (footprint,) = [line for line in logged if line["event"] == "store.footprint"]
    assert footprint["segment_bytes"] == store.config.mapped_file_size_commit_log_bytes
    assert footprint["index_file_bytes"] == index_bytes > 0
    assert footprint["free_bytes"] == TOTAL * 9 // 10
    assert footprint["reserve_bytes"] == store.space.reserve.size


class TwoDisks(SmallDisk):
    """The consume queues are on a disk of their own."""

    queues_percent = 10.0

    def device(self, path: Path) -> int:
        return 2 if "consumequeue" in path.parts else 1

    def free_space(self, path: Path) -> Space:
        if self.device(path) == 1:
            return super().free_space(path)
        free = TOTAL - round(TOTAL * self.queues_percent / 100)
        return Space(TOTAL, free, free)


@pytest.mark.trio
async def test_each_disk_has_its_reserve_and_gives_back_its_own(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    disk = TwoDisks(tmp_path)
    of_root, of_queues = tmp_path / "reserve", tmp_path / "consumequeue" / "reserve"
    for root_percent, queues_percent in ((99.9, 10.0), (10.0, 99.9), (99.9, 99.9)):
        disk.used_percent = disk.queues_percent = 10.0
        async with running_store(
            tmp_path, disk, mapped_file_size_commit_log_bytes=16 * MiB
        ) as store:
            await put_in_time(store, draft())
            await store.space.cleanup.look()
            assert of_root.stat().st_size == of_queues.stat().st_size == MiB
            disk.used_percent, disk.queues_percent = root_percent, queues_percent
            await store.space.cleanup.look()
        assert of_root.exists() == (root_percent < 99)
        assert of_queues.exists() == (queues_percent < 99)


@pytest.mark.trio
async def test_a_start_gives_back_the_reserve_of_the_disk_that_is_full(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    disk = TwoDisks(tmp_path)
    async with running_store(tmp_path, disk, mapped_file_size_commit_log_bytes=16 * MiB) as store:
        await put_in_time(store, draft())
        await store.space.cleanup.look()
    disk.queues_percent = 99.9
    async with running_store(tmp_path, disk, mapped_file_size_commit_log_bytes=16 * MiB) as store:
        assert (tmp_path / "reserve").exists()
        assert not (tmp_path / "consumequeue" / "reserve").exists()
        assert store.min_offset("T", 0) == 0
        assert store.max_offset("T", 0) == 1
