"""The reserve: real blocks, given back at once."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from aerobee.store.files.disk import Disk
from aerobee.store.files.machine import Space
from aerobee.store.space.reserve_file import ReserveFile, Reserves, reserve_bytes
from tests.kit.faulty_disk import Fault, FaultyDisk

if TYPE_CHECKING:
    from pathlib import Path

KiB = 1_024


def test_the_reserve_is_a_sixteenth_of_a_segment_within_bounds() -> None:
    assert reserve_bytes(1 << 30) == 64 << 20
    assert reserve_bytes(2**31 - 1) == 64 << 20
    assert reserve_bytes(16 << 20) == 1 << 20
    assert reserve_bytes(1 << 20) == 64 << 10, "the least"
    assert reserve_bytes((1 << 20) - 16) == 0
    assert reserve_bytes(4_096) == 0, "too small to help"


def test_it_holds_blocks_and_gives_them_back(tmp_path: Path) -> None:
    reserve = ReserveFile(Disk(), tmp_path / "reserve", 64 * KiB)
    reserve.hold()
    assert reserve.held
    status = reserve.path.stat()
    assert (status.st_size, status.st_blocks * 512 >= 64 * KiB) == (64 * KiB, True)
    reserve.hold()
    reserve.release()
    assert not reserve.path.exists()
    reserve.release()
    assert not reserve.held


def test_one_of_another_size_becomes_the_right_one(tmp_path: Path) -> None:
    (tmp_path / "reserve").write_bytes(bytes(100_000))
    ReserveFile(Disk(), tmp_path / "reserve", 64 * KiB).hold()
    assert (tmp_path / "reserve").stat().st_size == 64 * KiB


def test_without_room_there_is_none(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="posix_fallocate", error=errno.ENOSPC))
    reserve = ReserveFile(disk, tmp_path / "reserve", 64 * KiB)
    with pytest.raises(OSError, match="space"):
        reserve.hold()
    assert not reserve.held
    assert not reserve.path.exists()


class Disks(Disk):
    """Consume queues and tables each on a disk of their own, with so much room."""

    def __init__(self) -> None:
        super().__init__()
        self.room = {1: 1 << 30, 2: 1 << 30, 3: 1 << 30}

    def device(self, path: Path) -> int:
        if "consumequeue" in path.parts:
            return 2
        return 3 if "config" in path.parts else 1

    def free_space(self, path: Path) -> Space:
        room = self.room[self.device(path)]
        return Space(1 << 40, room, room)


def reserves(root: Path) -> list[str]:
    """Where there is one, by the names of the directories."""
    return sorted(path.parent.name for path in root.rglob("reserve"))


def test_each_disk_has_one_reserve_as_soon_as_its_directory_is_there(tmp_path: Path) -> None:
    disk, root = Disks(), tmp_path / "root"
    (root / "consumequeue").mkdir(parents=True)
    held = Reserves(disk, root, 64 * KiB)
    assert not held.held
    held.hold()
    assert held.held
    assert reserves(root) == ["consumequeue", "root"]
    (root / "config").mkdir()
    held.hold()
    assert reserves(root) == ["config", "consumequeue", "root"]


def test_directories_of_one_disk_share_a_reserve(tmp_path: Path) -> None:
    for name in ("consumequeue", "config"):
        (tmp_path / "root" / name).mkdir(parents=True)
    held = Reserves(Disk(), tmp_path / "root", 64 * KiB)
    held.hold()
    assert reserves(tmp_path) == ["root"]


def test_a_reserve_is_taken_with_four_times_its_room_and_given_up_below_twice(
    tmp_path: Path,
) -> None:
    disk, root = Disks(), tmp_path / "root"
    (root / "consumequeue").mkdir(parents=True)
    held = Reserves(disk, root, 64 * KiB)
    disk.room[2] = 4 * 64 * KiB
    held.hold()
    assert (reserves(root), held.held) == (["root"], False)
    disk.room[2] += 1
    held.hold()
    assert (reserves(root), held.held) == (["consumequeue", "root"], True)
    disk.room[2] = 2 * 64 * KiB
    assert held.give_up() == []
    disk.room[2] -= 1
    assert [file.path.parent.name for file in held.give_up()] == ["consumequeue"]
    assert (reserves(root), held.held) == (["root"], False)


def test_where_a_file_could_not_be_made_the_disk_is_full_whatever_it_says(tmp_path: Path) -> None:
    disk, root = Disks(), tmp_path / "root"
    (root / "consumequeue").mkdir(parents=True)
    held = Reserves(disk, root, 64 * KiB)
    held.hold()
    assert [file.path.parent.name for file in held.give_up(root)] == ["root"]
    assert reserves(root) == ["consumequeue"]


def test_a_small_store_has_no_reserve(tmp_path: Path) -> None:
    (tmp_path / "reserve").touch()
    assert Reserves(Disks(), tmp_path, 0).give_up(tmp_path) == []
    assert reserves(tmp_path) == [tmp_path.name]
