"""The usage of the disks, and the one owner of DISK_FULL.

Sends are refused for two causes: the usage of a disk is above diskSpaceWarningLevelRatio, or a log
segment that is needed cannot be allocated. Each comes and goes by itself; sends are accepted again
when neither holds. `DiskWatch` sets and clears the flag, with the text that clients get. Source:
store format §6.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from aerobee.store.errors import NO_ROOM, OPEN_FILES_REMEDY
from aerobee.store.files.descriptors import NONE_LEFT
from aerobee.store.space.retention import Level

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.store.config import StoreConfig
    from aerobee.store.files.disk import Disk
    from aerobee.store.files.machine import Space

UNKNOWN = -1


log = structlog.get_logger(__name__)


class Usage(NamedTuple):
    """How full one file system is."""

    level: Level
    used_percent: int
    """As RocketMQ counts: rounded up; -1 when the system does not say."""
    excess_bytes: int
    """Bytes to delete until deletion is not forced any more; 0 below the forcible limit."""


NOTHING_KNOWN = Usage(Level.HIGH, UNKNOWN, 0)
"""Without an answer only expired segments are deleted."""


def used_percent(space: Space) -> int:
    """The used share of the space for unprivileged users, in whole percent rounded up."""
    used = space.total_bytes - space.free_bytes
    return -(-100 * used // max(1, used + space.available_bytes))


def usage_of(space: Space, config: StoreConfig) -> Usage:
    """Compare with the three limits; each is a percentage, or bytes to keep free in its place."""
    limits = (
        (config.disk_max_used_space_ratio_percent, config.disk_max_used_space_free_bytes),
        (
            config.disk_space_clean_forcibly_ratio_percent,
            config.disk_space_clean_forcibly_free_bytes,
        ),
        (config.disk_space_warning_level_ratio_percent, config.disk_space_warning_level_free_bytes),
    )
    excess = [_excess_bytes(space, percent, keep) for percent, keep in limits]
    level = max((at for at in Level if at and excess[at - 1]), default=Level.ROOM)
    return Usage(level, used_percent(space), max(excess[1:]))


def _excess_bytes(space: Space, percent: int, keep_bytes: int) -> int:
    if keep_bytes:
        return max(0, keep_bytes - space.available_bytes)
    used = space.total_bytes - space.free_bytes
    return max(0, used - (used + space.available_bytes) * percent // 100)


class DiskWatch:
    """Checks the file systems of log and queues, and decides when sends are refused.

    `on_change` gets the present cause, or an empty text when sends are accepted.
    """

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        log_directory: Path,
        root: Path,
        *others: Path,
        on_change: Callable[[str], None],
    ) -> None:
        """`others`: directories below the root, each of which may be on a disk of its own."""
        self.config = config
        self._disk = disk
        self.directories = (log_directory, root, *others)
        self._on_change = on_change
        self._starved = ""
        self._no_space = False
        self._silent = False
        self.log = NOTHING_KNOWN
        """The state of the file system of the commit log, as far as it is known."""
        self.root = NOTHING_KNOWN
        """The state of the fullest of the file systems of everything else."""
        self.available_bytes = 0
        """Space left for the commit log."""

    @property
    def level(self) -> Level:
        """Of the fuller one. A disk without space for a segment is full, whatever the
        percentage.
        """
        return Level.FULL if self._no_space else max(self.log.level, self.root.level)

    @property
    def crowded(self) -> bool:
        """Whether one is known to be above diskMaxUsedSpaceRatio; no answer is not enough."""
        known = [usage.level for usage in (self.log, self.root) if usage.used_percent != UNKNOWN]
        return self._no_space or max(known, default=Level.ROOM) >= Level.HIGH

    def excess_bytes(self, segment_bytes: int) -> int:
        """Bytes of the log to delete until deletion is not forced any more."""
        missing = segment_bytes - self.available_bytes if self._no_space else 0
        # The other file system is freed with the queues, segment by segment.
        return max(missing, self.log.excess_bytes, min(1, self.root.excess_bytes))

    @property
    def starved(self) -> bool:
        """Whether a needed segment could not be allocated."""
        return bool(self._starved)

    @property
    def refusing(self) -> bool:
        """Whether sends are refused for lack of space."""
        return self.starved or self.level is Level.FULL

    async def look(self) -> None:
        """Ask the system, and act on the answer."""
        log_space, root_space, *spaces = await self._disk.in_thread(self._spaces)
        was = self.refusing
        self.log = self._usage(log_space)
        self.root = max(self._usage(space) for space in (root_space, *spaces))
        self.available_bytes = 0 if log_space is None else log_space.available_bytes
        self._notify(was)

    def _spaces(self) -> list[Space | None]:
        """The answer for each directory, None where the system gives none; those below the root
        that do not exist are left out. For a thread.
        """
        spaces: list[Space | None] = []
        for directory in self.directories:
            try:
                spaces.append(self._disk.free_space(directory))
            except OSError as error:
                if isinstance(error, FileNotFoundError) and directory in self.directories[2:]:
                    continue
                if not self._silent:
                    self._silent = True
                    log.warning("cleanup.space_unknown", path=str(directory), error=str(error))
                spaces.append(None)
        self._silent = None in spaces
        return spaces

    def _usage(self, space: Space | None) -> Usage:
        return NOTHING_KNOWN if space is None else usage_of(space, self.config)

    def no_segment(self, error: OSError) -> None:
        """Record that a needed segment cannot be allocated."""
        was = self.refusing
        remedy = f": {OPEN_FILES_REMEDY}" if error.errno in NONE_LEFT else ""
        self._starved = f"no log segment can be made: {error.strerror or error}{remedy}"
        self._no_space = error.errno in NO_ROOM
        self._notify(was)

    def segment_again(self) -> None:
        """Record that the missing segment was allocated."""
        was = self.refusing
        self._starved = ""
        self._no_space = False
        self._notify(was)

    def _notify(self, was: bool) -> None:
        if self.refusing:
            self._on_change(self.cause)
            if not was:
                log.error("cleanup.disk_full", cause=self.cause)
        elif was:
            self._on_change("")
            log.info("cleanup.disk_recovered", used_percent=self.log.used_percent)

    @property
    def cause(self) -> str:
        """The cause in words; those about a full disk begin as RocketMQ's."""
        if self._starved and self.level is not Level.FULL:
            return self._starved
        ratios = [usage.used_percent / 100 for usage in (self.log, self.root, self.root)]
        shown = "[CL: {:5.2f} CQ: {:5.2f} INDEX: {:5.2f}]".format(*ratios)
        why = self._starved or "diskSpaceWarningLevelRatio is exceeded"
        return f"the broker's disk is full {shown}, {why}"
