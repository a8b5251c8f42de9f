"""A disk that reads as slowly as a test wants: ext4 in a file, on a loop device, behind a throttle.

The throttle is that of cgroup v1 (`blkio.throttle.read_bps_device`), for the loop device alone.
Needs root, loop devices and that controller; a test is skipped, saying why, where one is missing.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.skipping import skip

THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device")


class SlowDisk:
    """A mounted file system whose cache can be emptied and whose reads can be slowed down."""

    def __init__(self, device: str, at: Path) -> None:
        self._device = device
        self.at = at

    def mount(self) -> None:
        """Make it reachable below `at`."""
        _run("mount", self._device, str(self.at))

    def unmount(self) -> None:
        """Take it away; nothing of it stays in memory."""
        self.limit_reads(0)
        _run("umount", str(self.at))

    def empty_cache(self) -> None:
        """Everything must be read from the device again. Nobody may have a file open."""
        _run("umount", str(self.at))
        self.mount()

    def limit_reads(self, bytes_per_s: int) -> None:
        """Slow reads down to this; 0 lifts the limit."""
        number = self.at.stat().st_dev
        THROTTLE.write_text(f"{os.major(number)}:{os.minor(number)} {bytes_per_s}")


@contextmanager
def slow_disk(directory: Path, *, size_bytes: int) -> Iterator[SlowDisk]:
    """A fresh file system, mounted at `directory/disk`."""
    if os.geteuid() != 0:
        skip("faults: a slow disk needs root, for a loop mount and a throttle")
    if not THROTTLE.exists():
        skip(f"faults: a slow disk needs {THROTTLE}")
    image, at = directory / "disk.img", directory / "disk"
    at.mkdir()
    with image.open("wb") as file:
        file.truncate(size_bytes)
    _run("mkfs.ext4", "-q", "-F", str(image))
    disk = SlowDisk(_run("losetup", "--find", "--show", str(image)), at)
    try:
        disk.mount()
        try:
            yield disk
        finally:
            disk.unmount()
    finally:
        _run("losetup", "--detach", disk._device)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        skip(f"faults: a slow disk needs {command[0]}")
    if done.returncode:
        skip(f"faults: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()
