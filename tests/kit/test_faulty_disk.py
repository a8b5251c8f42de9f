"""A fault that no call meets is told, as no test of it is one."""

from pathlib import Path

import pytest

from tests.kit.faulty_disk import Fault, FaultyDisk, unmet


def test_a_fault_that_no_call_has_met_is_told(tmp_path: Path) -> None:
    met, missed = Fault(name="mkdir"), Fault(name="rmdir")
    disk = FaultyDisk(tmp_path, met, missed)
    with pytest.raises(OSError, match="Input/output error"):
        disk.mkdir(tmp_path / "a")
    disk.mkdir(tmp_path / "a")
    assert (met.met, unmet([met, missed])) == (1, [missed])
    with pytest.raises(OSError, match="Input/output error"):
        disk.remove_directory(tmp_path / "a")
    assert unmet([met, missed]) == []


def test_a_fault_at_a_numbered_change_may_be_behind_the_end() -> None:
    assert unmet([Fault(number=100)]) == []
