"""Small and read-only file systems for one test: tmpfs and ext4, which only root may mount."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["make_read_only", "small_ext4", "small_file_system"]


@contextmanager
def small_file_system(at: Path, *, size_bytes: int) -> Iterator[Path]:
    """A tmpfs of this size at `at`; skips the test, saying why, where it cannot be mounted."""
    at.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(at))
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True, capture_output=True)


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
    _mount("-o", "loop", str(image), str(at))
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True, capture_output=True)


def make_read_only(at: Path) -> None:
    """Nobody, root included, can write there from now on."""
    _mount("-o", "remount,ro", str(at))


def _mount(*arguments: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("faults: mounting a small file system needs root")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"faults: cannot mount here: {done.stderr.strip()}")
