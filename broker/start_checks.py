"""The checks before a broker starts: its data directory, and the disk below.

A check that fails is logged with what to do.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.config.report import beyond_disk
from aerobee.broker.config.schema import SCHEMA
from aerobee.broker.process.host import disk_bytes, nearest
from aerobee.broker.supervisor.layout import layout_problem
from aerobee.store.format.names import segment_start
from aerobee.store.tools.locations import MEMBER

if TYPE_CHECKING:
    from aerobee.broker.config.model import BrokerConfig
    from aerobee.store.files.disk import Disk

VOLATILE_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs", "overlay"})
SIGNS: Final = frozenset({"commitlog", "consumequeue", "checkpoint", "config", "lock"})
"""The names that mark the directory of a broker, beside segments and `broker-0`."""
OF_THE_FILE_SYSTEM: Final = frozenset({"lost+found"})

log = structlog.stdlib.get_logger(__name__)


def may_start(config: BrokerConfig, disk: Disk) -> bool:
    """Whether all checks pass. Blocking."""
    checks = (keeps_data, may_write, has_its_layout, fits_disk)
    try:
        return all(check(config, disk) for check in checks)
    except OSError as error:
        # Of a link that leads nowhere, or of a mount whose server is gone.
        path = error.filename or config.store.store_path_root_dir
        reason = f"{path}: {error.strerror}; mount or make what is to be there"
        log.error("broker.refused", reason=f"{reason}, or choose another storePathRootDir")
        return False


def _places(config: BrokerConfig) -> dict[str, Path]:
    """The directories of the store that have a setting."""
    store = config.store
    places = {
        "storePathRootDir": store.store_path_root_dir,
        "storePathCommitLog": store.store_path_commit_log,
    }
    return {key: Path(path).expanduser().absolute() for key, path in places.items() if path}


def keeps_data(config: BrokerConfig, disk: Disk) -> bool:
    """Whether the data directory outlives the machine or container, or does not have to."""
    return all(_keeps(config, disk, path) for path in _places(config).values())


def _keeps(config: BrokerConfig, disk: Disk, path: Path) -> bool:
    kind = disk.file_system(nearest(path, disk))
    if kind not in VOLATILE_FILE_SYSTEMS or config.broker.ephemeral:
        return True
    remedy = "mount a volume there, or say --ephemeral if the data may be lost"
    if config.in_image:
        log.error("store.ephemeral", path=str(path), file_system=kind, remedy=remedy)
        return False
    log.warning("store.ephemeral", path=str(path), file_system=kind, remedy=remedy)
    return True


def may_write(config: BrokerConfig, disk: Disk) -> bool:
    """Whether this user may write in the data directory and the log's, or make them."""
    return all(_may_write(key, path, disk) for key, path in _places(config).items())


def _may_write(key: str, path: Path, disk: Disk) -> bool:
    place = nearest(path, disk)
    # A file system that is mounted read-only is reported by the first write.
    writable = os.access(place, os.W_OK | os.X_OK, effective_ids=True)
    if writable or os.statvfs(place).f_flag & os.ST_RDONLY:
        return True
    user = os.geteuid()
    log.error(
        "broker.refused",
        reason=f"user {user} may not {remedy(user, path, place)}, or choose another {key}",
    )
    return False


def remedy(user: int, path: Path, place: Path) -> str:
    """The right to a data directory that a user lacks, and what helps.

    `place`: the nearest directory that exists. A command names the data directory and none above
    it, which are not the broker's: to be given away they may be `/` or `/var/lib`.
    """
    quoted = shlex.quote(str(path))
    if place == path:
        if not _is_for_a_broker(path):
            return f"write in {path}, which has files of others: name a directory of its own"
        return (
            f"write in {path}: chown -R {user} {quoted} as root (of a container's mount: the folder"
            " of the host)"
        )
    if not os.access(place, os.X_OK, effective_ids=True):
        return f"enter {place}, above {path}: let this user enter it"
    return f"make {path}: install -d -o {user} {quoted} as root"


def _is_for_a_broker(path: Path) -> bool:
    """Whether a directory is that of a broker, or empty, as far as this user may see."""
    try:
        names = os.listdir(path)
    except OSError:
        return True
    return OF_THE_FILE_SYSTEM.issuperset(names) or any(
        name in SIGNS or MEMBER.fullmatch(name) or segment_start(name) is not None for name in names
    )


def has_its_layout(config: BrokerConfig, disk: Disk) -> bool:
    """Whether the data directory is that of so many brokers, or empty."""
    try:
        problem = layout_problem(config, disk)
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}"
    if problem is not None:
        log.error("broker.refused", reason=problem)
    return problem is None


def fits_disk(config: BrokerConfig, disk: Disk) -> bool:
    """Whether the disk has more room than the settings keep free of it."""
    try:
        problems = beyond_disk(config, SCHEMA.values(), disk_bytes(config, disk))
    except OSError as error:
        path = error.filename or config.store.store_path_root_dir
        problems = [f"{path}: {error.strerror}; choose another storePathRootDir"]
    for problem in problems:
        log.error("broker.refused", reason=problem)
    return not problems
