"""A data directory stays with the member whose it is."""

from pathlib import Path

import pytest

from aerobee.broker.failover.member_number import refuse_other_number, save_number
from aerobee.store.errors import StoreRefused
from aerobee.store.files.disk import Disk
from aerobee.store.format.names import MEMBER


def test_a_directory_keeps_its_first_number(tmp_path: Path) -> None:
    disk = Disk()
    refuse_other_number(disk, tmp_path, 3)
    save_number(disk, tmp_path, 3)
    save_number(disk, tmp_path, 4)
    refuse_other_number(disk, tmp_path, 3)
    with pytest.raises(StoreRefused, match=r"of member 3 .*brokerId is 1.*Set brokerId to 3"):
        refuse_other_number(disk, tmp_path, 1)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"x" * 1_000])
def test_a_file_without_a_number_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MEMBER).write_bytes(content)
    with pytest.raises(StoreRefused, match="brokerId is 1"):
        refuse_other_number(Disk(), tmp_path, 1)
