"""Small and read-only file systems for one test, of kinds that only root may mount."""

import lzma
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_file_system(at: Path, *, size_bytes: int) -> Iterator[Path]:
    """A tmpfs of this size at `at`; skips the test, saying why, where it cannot be mounted."""
    at.mkdir(parents=True, exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(at))
    try:
        yield at
    finally:
        unmount(at)


@contextmanager
def small_ext4(at: Path, *, size_bytes: int) -> Iterator[Path]:
    """A real file system of this size, in a file beside `at`; skips the test where it cannot be."""
    if os.geteuid() != 0:
        pytest.skip("faults: mounting a small file system needs root")
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("faults: there is no mkfs.ext4 here")
    at.mkdir(parents=True, exist_ok=True)
    image = at.with_name(f"{at.name}.ext4")
    with image.open("wb") as file:
        file.truncate(size_bytes)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True, capture_output=True)
    mount("-o", "loop", str(image), str(at))
    try:
        yield at
    finally:
        unmount(at)


@contextmanager
def small_btrfs(at: Path) -> Iterator[Path]:
    """64 MiB of a file system that copies on write; skips the test where it cannot be mounted.

    The empty image was made by `mkfs.btrfs --mixed -m single`, which few machines have.
    """
    if os.geteuid() != 0:
        pytest.skip("faults: mounting a small file system needs root")
    if "btrfs" not in Path("/proc/filesystems").read_text():
        subprocess.run(["modprobe", "btrfs"], check=False, capture_output=True)
    if "btrfs" not in Path("/proc/filesystems").read_text():
        pytest.skip("faults: this kernel has no btrfs")
    at.mkdir(parents=True, exist_ok=True)
    image = at.with_name(f"{at.name}.btrfs")
    image.write_bytes(lzma.decompress(Path(__file__).with_name("btrfs.img.xz").read_bytes()))
    mount("-o", "loop", str(image), str(at))
    try:
        yield at
    finally:
        unmount(at)


@contextmanager
def unreadable(path: Path, at: Path, *, begin: int = 0) -> Iterator[None]:
    """Meanwhile the disk of this file, which is all its own, cannot read it from `begin` on: EIO.

    The file is copied to a file system below `at`, whose image then ends in the midst of the file.
    """
    size = path.stat().st_size
    with small_ext4(at / "disk", size_bytes=size + (16 << 20)) as place:
        copy = place / path.name
        shutil.copyfile(path, copy)
        os.sync()
        extents = subprocess.run(
            ["filefrag", "-v", "-b4096", str(copy)], check=True, capture_output=True, text=True
        ).stdout
        first = next(line for line in extents.splitlines() if line.split()[:1] == ["0:"])
        block = int(first.split(":")[2].split("..")[0])
        # A new mount has no byte of it in memory, but its names.
        image = at / "disk.ext4"
        subprocess.run(["umount", str(place)], check=True, capture_output=True)
        mount("-o", "loop", str(image), str(place))
        copy.stat()
        os.truncate(image, block * 4_096 + begin)
        mount("--bind", str(copy), str(path))
        try:
            yield
        finally:
            unmount(path)


def make_read_only(at: Path) -> None:
    """Nobody, root included, can write there from now on."""
    mount("-o", "remount,ro", str(at))


def unmount(at: Path) -> None:
    """Gone from the tree at once, and for good when its last user is."""
    subprocess.run(["umount", "--lazy", str(at)], check=True, capture_output=True)


def mount(*arguments: str) -> None:
    """As the command; skips the test, saying why, where it does not work."""
    if os.geteuid() != 0:
        pytest.skip("faults: mounting a small file system needs root")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"faults: cannot mount here: {done.stderr.strip()}")
