"""The reserve: real blocks, given back at once."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from aerobee.store.files.disk import Disk
from aerobee.store.space.reserve_file import ReserveFile, reserve_bytes
from tests.kit.faulty_disk import Fault, FaultyDisk

if TYPE_CHECKING:
    from pathlib import Path

KiB = 1_024


def test_the_reserve_is_a_sixteenth_of_a_segment_within_bounds() -> None:
    assert reserve_bytes(1 << 30) == 64 << 20
    assert reserve_bytes(2**31 - 1) == 64 << 20
    assert reserve_bytes(16 << 20) == 1 << 20
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
