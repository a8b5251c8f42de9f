"""What the system says about its file systems."""

from pathlib import Path

from aerobee.store.files.disk import Disk


def test_a_path_is_on_the_file_system_of_its_directory(tmp_path: Path) -> None:
    disk = Disk()
    assert disk.device(tmp_path) == tmp_path.stat().st_dev
    assert disk.file_system(Path("/proc")) == "proc"
    assert disk.free_space(tmp_path).total_bytes > 0
