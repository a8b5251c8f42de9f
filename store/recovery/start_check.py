"""Checks before a start changes anything: may this broker use the directory? Reads only.

A data directory and its listing in; out comes nothing, a warning, or a StoreRefused whose text
names the file and the remedy. A refused directory stays exactly as it was. Source: store format
§1.9.
"""

from __future__ import annotations

import contextlib
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import structlog

from aerobee.store.errors import (
    NO_ROOM,
    StoreForeign,
    StoreRefused,
    StoreUnusable,
    no_room,
    remedy_for,
)
from aerobee.store.format.epoch_file import EPOCH_FILE_NAME
from aerobee.store.format.names import (
    ABORT,
    CHECKPOINT,
    CONFIG,
    CONSUME_QUEUE,
    INDEX,
    LAST_STOP,
    SAVED_TOPICS,
    backup_name,
    is_spare,
    is_spare_of,
    segment_start,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.log.commit_log import CommitLog
    from aerobee.store.recovery.abort_file import AbortFile
    from aerobee.store.space.reserve_file import Reserves

log = structlog.get_logger(__name__)

CLOCK_BEHIND_MS = 5_000
"""How far the newest message may be ahead of the clock before a start warns of it."""
TOPICS = "topics.json"
SAVED_TABLES = (TOPICS, "subscriptionGroup.json", "consumerOffset.json")
"""The tables without which groups begin anew, or topics are not found."""
_SEARCH_DEPTH = 4
_ROCKSDB_IN_USE = "5.x keeps its {} in RocksDB here; start that broker with the file store first"


class Sign(NamedTuple):
    """A name that only foreign data has."""

    directory: str
    pattern: str
    means: str
    deep: bool = False
    """Whether it is looked for in subdirectories, too."""
    empty_ok: bool = False
    """Whether an empty file of that name does not count."""


SIGNS = (
    *(
        Sign(CONSUME_QUEUE, name, _ROCKSDB_IN_USE.format("consume queues"))
        for name in ("CURRENT", "MANIFEST-*", "*.sst")
    ),
    Sign("config/topics", "CURRENT", _ROCKSDB_IN_USE.format("topics")),
    *(
        Sign(CONFIG, name, _ROCKSDB_IN_USE.format("configuration"))
        for name in ("subscriptionGroups", "consumerOffsets", "metadata", "rdb")
    ),
    Sign("rocksdbstore", "*.sst", _ROCKSDB_IN_USE.format("timers or index"), deep=True),
    Sign(
        "rocksdbstore",
        "*.log",
        _ROCKSDB_IN_USE.format("timers or index"),
        deep=True,
        empty_ok=True,
    ),
    Sign("batchconsumequeue", "*", "queues of inner batches (queue.type=BatchCQ) are not served"),
    Sign("", "dledger-*", "a DLedger log wraps its records; it is not served"),
)

OF_A_GROUP = (
    Sign("", "brokerIdentity", "this replica belongs to a controller; it is not served alone"),
    Sign("", EPOCH_FILE_NAME, "this replica belongs to a group; it is not served alone"),
)


def refuse_foreign(disk: Disk, root: Path, *, in_group: bool = False) -> None:
    """Refuse data of a kind that is not supported; nothing is changed.

    `in_group`: the store replicates by epochs, and may be that of a replica. Raises: StoreForeign
    naming the file, StoreUnusable when the directory cannot be read.
    """
    with refusing(root):
        for sign in SIGNS if in_group else SIGNS + OF_A_GROUP:
            place = _find(disk, root / sign.directory, sign, _SEARCH_DEPTH if sign.deep else 1)
            if place is not None:
                raise StoreForeign(f"{place}: {sign.means}, or choose another directory")
        _check_topics(disk, root / CONFIG / "topics.json")
        if disk.exists(root / "kvStore"):
            log.warning("store.pop_state_ignored", path=str(root / "kvStore"))


def _find(disk: Disk, directory: Path, sign: Sign, depth: int) -> Path | None:
    if not disk.is_directory(directory):
        return None
    for name in disk.listdir(directory):
        path = directory / name
        if depth > 1 and disk.is_directory(path):
            place = _find(disk, path, sign, depth - 1)
            if place is not None:
                return place
        elif fnmatchcase(name, sign.pattern) and not (sign.empty_ok and not disk.size(path)):
            return path
    return None


class _Topic(msgspec.Struct):
    attributes: dict[str, str] | None = None


class _Topics(msgspec.Struct):
    topics: dict[str, _Topic] = msgspec.field(name="topicConfigTable", default_factory=dict)


def _check_topics(disk: Disk, path: Path) -> None:
    if not disk.exists(path):
        return
    try:
        topics = msgspec.json.decode(disk.read(path), type=_Topics).topics
    except msgspec.DecodeError:
        # Loading the topics falls back to the backup, or reports what is wrong with both.
        return
    for name, topic in topics.items():
        attributes = topic.attributes or {}
        if attributes.get("queue.type") == "BatchCQ":
            raise StoreForeign(
                f"{path}: topic {name} has queue.type=BatchCQ, which is not served: consume and "
                "delete it with the other broker, or choose another directory"
            )
        if attributes.get("cleanup.policy") == "COMPACTION":
            log.warning("store.compaction_ignored", topic=name)


def refuse_no_directory(disk: Disk, root: Path, log_directory: Path) -> None:
    """Refuse names that must be directories, or not exist: a dangling link is neither.

    Raises: StoreUnusable.
    """
    for path in (log_directory, *(root / name for name in (CONSUME_QUEUE, INDEX, CONFIG))):
        with refusing(path):
            if disk.exists(path) and not disk.is_directory(path):
                raise StoreUnusable(
                    f"{path} is no directory, nor a link to one: restore what was there, or move "
                    "it away, and an empty one is made"
                )


def is_made_anew(disk: Disk, root: Path) -> bool:
    """Whether no store has been loaded here, as far as its own files tell; before a load. Raises:
    OSError.
    """
    return not any(disk.exists(root / name) for name in (ABORT, CHECKPOINT, LAST_STOP))


def lost_tables(disk: Disk, root: Path) -> list[Path]:
    """The tables that were saved here and are gone, with their backups. Raises: OSError."""
    paths = [root / CONFIG / name for name in saved_tables(disk, root)]
    return [
        path
        for path in paths
        if not any(
            disk.exists(file) and disk.read(file).strip()
            for file in (path, path.with_name(backup_name(path.name)))
        )
    ]


def saved_tables(disk: Disk, root: Path) -> list[str]:
    """The tables that were saved here, by the mark of the topics and the names in it. Raises:
    OSError.
    """
    mark = root / SAVED_TOPICS
    if not disk.exists(mark):
        return []
    names = disk.read(mark).decode(errors="replace").split()
    return [name for name in SAVED_TABLES if name == TOPICS or name in names]


def make_directory(disk: Disk, root: Path) -> None:
    """Create the data directory. Raises: StoreUnusable."""
    with refusing(root):
        if not disk.is_directory(root):
            disk.mkdir(root)


def refuse_small_disk(
    disk: Disk, root: Path, log_directory: Path, segment_bytes: int, index_bytes: int
) -> None:
    """An empty directory needs room for two segments and an index, each on its disk.

    Raises: StoreUnusable.
    """
    with refusing(root):
        if any(segment_start(name) is not None for name in disk.listdir(log_directory)):
            return
        needed: dict[int, int] = {}
        places: dict[int, Path] = {}
        for directory, size in ((log_directory, 2 * segment_bytes), (root / INDEX, index_bytes)):
            place = next(
                parent for parent in (directory, *directory.parents) if disk.exists(parent)
            )
            device = disk.device(place)
            needed[device] = needed.get(device, 0) + size
            places.setdefault(device, place)
        rooms = {device: disk.free_space(place) for device, place in places.items()}
    for device, room in rooms.items():
        if room.available_bytes < needed[device]:
            raise StoreUnusable(
                f"{places[device]} has {room.available_bytes >> 20} MiB free, two log segments and "
                f"an index file need {-(-needed[device] >> 20)} MiB there: make room, or lower "
                "mappedFileSizeCommitLog, maxHashSlotNum and maxIndexNum"
            )


def say_footprint(disk: Disk, commit_log: CommitLog, index_bytes: int, reserve_bytes: int) -> None:
    """Log the sizes of a log segment, an index file and the reserve, and the free space. Raises:
    OSError.
    """
    log.info(
        "store.footprint",
        segment_bytes=commit_log.segment_bytes,
        index_file_bytes=index_bytes,
        reserve_bytes=reserve_bytes,
        free_bytes=disk.free_space(commit_log.queue.directory).available_bytes,
    )


@contextlib.contextmanager
def opening(
    disk: Disk, abort: AbortFile, folders: Sequence[Path], reserve: Reserves
) -> Iterator[bool]:
    """Set up the abort file: the next start sees a crash in here, a refusal leaves no trace. A full
    disk is given the reserve.

    Yields whether the last stop was a clean one. Raises: OSError.
    """
    give_up_reserve(reserve)
    clean = not abort.exists()
    if clean:
        abort.create()
    disk.sync_directory(abort.path.parent)
    made = [folder for folder in folders if not disk.exists(folder)]
    for folder in made:
        disk.mkdir(folder)
    try:
        yield clean
    except StoreRefused:
        for folder in made:
            with contextlib.suppress(OSError):
                disk.remove_directory(folder)
        if clean:
            abort.remove()
        raise


def warn_of_clock(root: Path, newest_ms: int, now_ms: int) -> None:
    """Say that new messages get the time of the newest one until the clock has reached it."""
    behind_ms = newest_ms - now_ms
    if behind_ms > CLOCK_BEHIND_MS:
        log.warning("store.clock_behind", path=str(root), behind_s=behind_ms // 1_000)


def remove_leftovers(disk: Disk, root: Path, log_directory: Path) -> None:
    """Remove files that a crash left without their final names. Raises: OSError."""
    queues = root / CONSUME_QUEUE
    own = (root, root / INDEX, *(queues / topic for topic in disk.folders(queues)))
    for directory in own:
        for name in disk.readable(directory):
            if is_spare(name):
                disk.remove(directory / name)
    # Other brokers may have their logs beside ours.
    beside = log_directory.parent
    for name in disk.readable(beside) if beside != root else ():
        if is_spare_of(log_directory.name, name):
            disk.remove(beside / name)


def give_up_reserve(reserve: Reserves) -> None:
    """Free the reserve of each full disk: a start writes little, but not nothing.

    Raises: OSError.
    """
    for file in reserve.give_up():
        log.info("store.reserve_released", path=str(file.path), size_bytes=file.size)


@contextlib.contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn an OSError into a refusal that names the file and the remedy.

    Without room on the disk it is no refusal: the same start works once there is some. Raises:
    StoreRefused, OSError.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise no_room(path, error) from error
        raise StoreUnusable(
            f"{error.filename or path} cannot be used ({error.strerror}): {remedy_for(error)}"
        ) from error
