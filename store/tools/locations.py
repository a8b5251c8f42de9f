"""Where the stores below a data directory lie: of one broker, or of several, with their logs.

One broker has its store in the data directory itself, several have theirs in `broker-0`, `broker-1`
… below it. A log with a directory of its own (`storePathCommitLog`) is divided the same way. Reads
names only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.store.errors import StoreUnusable
from aerobee.store.format.names import CHECKPOINT, COMMIT_LOG, CONFIG, CONSUME_QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aerobee.store.files.disk import Disk

STORE_SIGNS: Final = (COMMIT_LOG, CONSUME_QUEUE, CHECKPOINT, f"{CONFIG}/topics.json")
"""Files that only a broker makes."""
MEMBER: Final = re.compile(r"broker-(\d{1,3})", re.ASCII)
"""The directory of one of several brokers."""
ELSEWHERE: Final = (
    "where its log has a directory of its own (storePathCommitLog), name that with --log, or the "
    "broker's file with --config"
)


class StoreLocation(NamedTuple):
    """The data directory of one broker, and the directory of its log."""

    root: Path
    log: Path


def is_store(path: Path, disk: Disk) -> bool:
    """Whether a broker has its store there; its log may be elsewhere. Raises: OSError."""
    return any(disk.exists(path / sign) for sign in STORE_SIGNS)


def members(root: Path, disk: Disk) -> Iterator[int]:
    """The numbers of the brokers with a store below this directory. Raises: OSError."""
    for name in disk.folders(root):
        match = MEMBER.fullmatch(name)
        if match and is_store(root / name, disk):
            yield int(match[1])


def locations(root: Path, log: Path | None, disk: Disk) -> list[StoreLocation]:
    """The stores of a data directory, in the order of the brokers' numbers.

    `log` is `storePathCommitLog`, None where it is not set. Raises: StoreUnusable, OSError.
    """
    numbers = [] if is_store(root, disk) else sorted(members(root, disk))
    names = [f"broker-{number}" for number in numbers]
    if not names:
        return [StoreLocation(root, _log_of(root, log, disk))]
    return [
        StoreLocation(root / name, _log_of(root / name, log and log / name, disk)) for name in names
    ]


def _log_of(root: Path, log: Path | None, disk: Disk) -> Path:
    directory = log or root / COMMIT_LOG
    if disk.is_directory(directory):
        return directory
    if log is not None:
        raise StoreUnusable(f"{log} is no directory: the log of {root} is not there")
    if not is_store(root, disk):
        raise StoreUnusable(f"{root} holds no {COMMIT_LOG}: it is no store directory")
    raise StoreUnusable(f"{root} holds no {COMMIT_LOG}, but a broker's store: {ELSEWHERE}")
