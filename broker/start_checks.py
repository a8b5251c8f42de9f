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


def keeps_data(config: BrokerConfig, disk: Disk) -> bool:
    """Whether the data directory outlives the machine or container, or does not have to."""
    root = Path(config.store.store_path_root_dir).expanduser().absolute()
    kind = disk.file_system(nearest(root, disk))
    if kind not in VOLATILE_FILE_SYSTEMS or config.broker.ephemeral:
        return True
    remedy = "mount a volume there, or say --ephemeral if the data may be lost"
    if config.in_image:
        log.error("store.ephemeral", path=str(root), file_system=kind, remedy=remedy)
        return False
    log.warning("store.ephemeral", path=str(root), file_system=kind, remedy=remedy)
    return True


def may_write(config: BrokerConfig, disk: Disk) -> bool:
    """Whether this user may write in the data directory, or make it."""
    root = Path(config.store.store_path_root_dir).expanduser().absolute()
    place = nearest(root, disk)
    # A file system that is mounted read-only is reported by the first write.
    writable = os.access(place, os.W_OK | os.X_OK, effective_ids=True)
    if writable or os.statvfs(place).f_flag & os.ST_RDONLY:
        return True
    user = os.geteuid()
    reason = (
        f"user {user} may not write in {place}: chown -R {user} {place} as root"
        " (of a container's mount: the folder of the host), or choose another storePathRootDir"
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
