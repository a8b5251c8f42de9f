"""Programs of Debian's packages, unpacked into the cache of this checkout: nothing is installed."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from pathlib import Path

from tests.kit.java import unavailable

CACHE = Path(__file__).parents[2] / ".cache" / "debian"
FETCH_WITHIN_S = 180.0


@functools.cache
def unpacked(package: str, *libraries: str) -> Path:
    """The files of a package and of those that it needs; the test is skipped where none come."""
    for command in ("apt-get", "dpkg-deb"):
        if shutil.which(command) is None:
            unavailable(f"{package} is not installed, and there is no {command} to fetch it with")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = CACHE / package
        if not path.exists():
            _fetch(path, [package, *libraries])
    return path


def environment(root: Path) -> dict[str, str]:
    """The variables with which a program of unpacked packages finds its libraries."""
    folders = sorted({str(library.parent) for library in root.rglob("*.so.*")})
    return os.environ | {"LD_LIBRARY_PATH": ":".join(folders)}


def _fetch(path: Path, packages: list[str]) -> None:
    """Unpack packages; the place gets its name only when it is complete."""
    apt = CACHE / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    places = {"Dir::State::Lists": apt / "lists", "Dir::Cache": apt / "cache"}
    options = [word for key, place in places.items() for word in ("-o", f"{key}={place}")]
    half = path.with_name(f"{path.name}.part")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir()
    try:
        _run(["apt-get", "-qq", *options, "update"], apt)
        _run(["apt-get", "-qq", *options, "download", *packages], apt)
        for file in apt.glob("*.deb"):
            _run(["dpkg-deb", "-x", str(file), str(half)], apt)
    except (subprocess.SubprocessError, OSError) as error:
        detail = getattr(error, "stderr", "") or error
        unavailable(f"Debian's package {path.name} cannot be fetched: {detail}")
    half.rename(path)
    shutil.rmtree(apt, ignore_errors=True)


def _run(command: list[str], at: Path) -> None:
    subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=FETCH_WITHIN_S, cwd=at
    )
