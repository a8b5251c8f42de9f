"""What is checked before a broker starts: its data directory, and the disk below.

A check that fails is logged with what to do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.config.report import beyond_disk
from aerobee.broker.config.schema import SCHEMA
from aerobee.broker.process.host import disk_bytes, nearest
from aerobee.broker.supervisor.layout import layout_problem

if TYPE_CHECKING:
    from aerobee.broker.config.load import BrokerConfig
    from aerobee.store.files.disk import Disk

__all__ = ["VOLATILE_FILE_SYSTEMS", "may_start"]

VOLATILE_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs", "overlay"})

log = structlog.stdlib.get_logger(__name__)


def may_start(config: BrokerConfig, disk: Disk) -> bool:
    """Whether all checks pass. Blocking."""
    checks = (keeps_data, may_write, has_its_layout, fits_disk)
    return all(check(config, disk) for check in checks)


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
    reason = (
        f"user {user} may not write in {place}: chown -R {user} {place} as root"
        f" (of a container's mount: the folder of the host), or choose another {key}"
    )
    log.error("broker.refused", reason=reason)
    return False


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
