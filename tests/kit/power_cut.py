"""Power cuts on a real file system: ext4 in an image file, and what the device had got by then.

    with powered(tmp / "power") as power:
        ... a broker works below power.root ...
        image = power.cut("after-17")
    with power.again(image) as root:
            ... the file system as it comes up: its journal was replayed, nothing else was ...

The image lies on an XFS whose files can be cloned in one step (reflink), so a cut stops nobody and
takes no more than a few milliseconds. What is on its way from the page cache of the inner file
system is not in the clone: that is what a power cut takes away. Needs root, loop mounts and
mkfs.ext4; skips the test, saying what is missing, where it has them not. Where mkfs.xfs is not
installed, that of Debian's package is fetched. What no loop device shows is a drive that lies about
its own cache.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.debian import environment, unpacked
from tests.kit.mounts import mount, unmount

FICLONE = 0x40049409
"""The request that makes one file share all the blocks of another."""
MiB = 1_048_576
OUTER_BYTES = 4_096 * MiB
INNER_BYTES = 512 * MiB
"""Both are sparse: they take what was written."""
INNER_OPTIONS = "loop,commit=1"
"""The journal commits every second, so that it is a busy one."""


@dataclass(frozen=True, slots=True)
class Power:
    """A file system with a switch."""

    outer: Path
    image: Path
    root: Path
    """Where the inner file system is mounted."""

    def cut(self, name: str) -> Path:
        """An image of what the device holds at this instant."""
        return self.cut_again(self.image, name)

    def cut_again(self, image: Path, name: str) -> Path:
        """The same for an image that is mounted again."""
        copy = self.outer / name
        with image.open("rb") as source, copy.open("xb") as target:
            fcntl.ioctl(target, FICLONE, source.fileno())
        return copy

    @contextmanager
    def again(self, image: Path) -> Iterator[Path]:
        """Power is back: the file system of an image, mounted; its changes stay in the image."""
        at = self.outer.with_name(f"{self.outer.name}-{image.name}")
        at.mkdir()
        # No skip here: power came back once, so that it cannot now is a finding.
        subprocess.run(["mount", "-o", INNER_OPTIONS, str(image), str(at)], check=True)
        try:
            yield at
        finally:
            unmount(at)
            at.rmdir()


@contextmanager
def powered(at: Path) -> Iterator[Power]:
    """The inner file system in the outer one, below `at`; gone at the end, with all images."""
    if os.geteuid() != 0:
        pytest.skip("power cuts: mounting needs root")
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("power cuts: there is no mkfs.ext4 here (e2fsprogs)")
    make_xfs, found_by = xfs_maker()
    outer, root = at / "outer", at / "inner"
    for directory in (outer, root):
        directory.mkdir(parents=True)
    device, image = at / "outer.img", outer / "disk.img"
    _make(device, OUTER_BYTES, make_xfs, "-q", "-m", "reflink=1", env=found_by)
    mount("-o", "loop", str(device), str(outer))
    try:
        _make(image, INNER_BYTES, "mkfs.ext4", "-q", "-m", "0")
        mount("-o", INNER_OPTIONS, str(image), str(root))
        try:
            yield Power(outer, image, root)
        finally:
            unmount(root)
    finally:
        unmount(outer)
        device.unlink()


def xfs_maker() -> tuple[str, dict[str, str]]:
    """`mkfs.xfs`, installed or fetched, and the variables to run it with."""
    if installed := shutil.which("mkfs.xfs"):
        return installed, dict(os.environ)
    root = unpacked("xfsprogs", "libinih1", "liburcu8")
    return str(next(root.rglob("mkfs.xfs"))), environment(root)


def _make(image: Path, size_bytes: int, *command: str, env: dict[str, str] | None = None) -> None:
    with image.open("wb") as file:
        file.truncate(size_bytes)
    subprocess.run([*command, str(image)], check=True, capture_output=True, env=env)
