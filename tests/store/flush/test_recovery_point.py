from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.files.disk import Disk
from aerobee.store.flush.recovery_point import RecoveryPointFile
from aerobee.store.format.recovery_point import FILE_BYTES, SLOTS_AT, RecoveryPoint
from tests.kit.faulty_disk import FaultyDisk

POINT = RecoveryPoint(
    number=1,
    owner="aerobee 4711 1700000000000",
    boot="b" * 36,
    log_end=(1 << 62) + 5,
    queues_end=1 << 62,
    queues_units=1 << 60,
    units=1 << 60,
    last=(1 << 62) - 5,
    last_crc=0xFFFF_FFFF,
)


def numbered(number: int) -> RecoveryPoint:
    return msgspec.structs.replace(POINT, number=number, units=number * 10)


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert RecoveryPointFile(Disk(), tmp_path / "p").load() is None


def test_the_newest_of_the_two_slots_counts(tmp_path: Path) -> None:
    file = RecoveryPointFile(Disk(), tmp_path / "p")
    for number in range(1, 6):
        file.write(numbered(number), sync=False)
        assert file.load() == numbered(number)
    assert (tmp_path / "p").stat().st_size == FILE_BYTES


@given(at=st.integers(0, 511), bit=st.integers(0, 7), number=st.integers(2, 5))
def test_a_damaged_point_gives_way_to_the_one_before(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int, number: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "p"
    path.unlink(missing_ok=True)
    file = RecoveryPointFile(Disk(), path)
    for one in range(1, number + 1):
        file.write(numbered(one), sync=False)
    content = bytearray(path.read_bytes())
    content[SLOTS_AT[number % 2] + at] ^= 1 << bit
    path.write_bytes(content)
    # A blank behind the document may turn into another one that means nothing.
    assert file.load() in (numbered(number - 1), numbered(number))


def test_a_torn_write_leaves_the_point_before_it(tmp_path: Path) -> None:
    file = RecoveryPointFile(Disk(), tmp_path / "p")
    file.write(numbered(1), sync=False)
    before = (tmp_path / "p").read_bytes()
    file.write(numbered(2), sync=False)
    after = (tmp_path / "p").read_bytes()
    changed = [at for at in range(FILE_BYTES) if before[at] != after[at]]
    for cut in range(changed[0], changed[-1]):
        (tmp_path / "p").write_bytes(after[:cut] + before[cut:])
        found = file.load()
        assert found in (numbered(1), numbered(2))


def test_only_a_synced_point_outlives_a_power_cut(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    file = RecoveryPointFile(disk, tmp_path / "d")
    file.write(numbered(1), sync=True)
    file.write(numbered(2), sync=False)
    after = disk.power_cut(tmp_path.with_name("after"), Random(1), keep=0)
    assert RecoveryPointFile(Disk(), after / "d").load() == numbered(1)
