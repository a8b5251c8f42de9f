"""The reasons why the store refuses operations: one bit each, with RocketMQ's values."""

from __future__ import annotations

from enum import IntFlag


class Flag(IntFlag):
    """A reason, as a bit. Source: store format §2.6 (RunningFlags)."""

    NOT_READABLE = 0x01
    NOT_WRITEABLE = 0x02
    """A sync of a store file failed; final for this run."""
    WRITE_LOGICS_QUEUE_ERROR = 0x04
    WRITE_INDEX_FILE_ERROR = 0x08
    DISK_FULL = 0x10
    FENCED = 0x20
    LOGIC_DISK_FULL = 0x40
    SHUT_DOWN = 0x100
    """Ours: closed, or not loaded yet."""
    SLAVE = 0x200
    """Ours: the log is copied from a master, and nobody else writes to it."""


UNWRITABLE = ~int(Flag.NOT_READABLE)
FAULTS = UNWRITABLE & ~int(Flag.SLAVE)
LASTING = FAULTS & ~int(Flag.DISK_FULL)
FULL = Flag.DISK_FULL | Flag.LOGIC_DISK_FULL


class RunningFlags:
    """The present reasons, each with its cause in words.

    `refusing` is true while any of them forbids writes: the hot path reads only this.
    """

    __slots__ = ("_causes", "bits", "refusing")

    def __init__(self) -> None:
        self._causes: dict[Flag, str] = {}
        self.bits = 0
        self.refusing = False

    def set(self, flag: Flag, cause: str) -> None:
        """Add a reason."""
        self._causes[flag] = cause
        self._count()

    def clear(self, flag: Flag) -> None:
        """Remove a reason; a no-op when it is not set."""
        self._causes.pop(flag, None)
        self._count()

    def tell(self, flag: Flag, cause: str) -> None:
        """Add a reason, or remove it with an empty cause."""
        if cause:
            self.set(flag, cause)
        else:
            self.clear(flag)

    def has(self, flag: Flag) -> bool:
        """Whether this reason is set."""
        return flag in self._causes

    @property
    def cause(self) -> str:
        """Why writes are refused, for people; empty while they are not."""
        return self._said(UNWRITABLE)

    @property
    def fault(self) -> str:
        """Why writes are refused, but for the role: a slave is to refuse them."""
        return self._said(FAULTS)

    @property
    def lasting_fault(self) -> str:
        """Why writes are refused, but for a full disk, which may have room again at any time."""
        return self._said(LASTING)

    @property
    def no_room(self) -> str:
        """Why there is no room for messages, or their queues; empty: there is."""
        return self._said(FULL)

    def _said(self, flags: int) -> str:
        return "; ".join(cause for flag, cause in self._causes.items() if flag & flags)

    def _count(self) -> None:
        self.bits = sum(self._causes)
        self.refusing = bool(self.bits & UNWRITABLE)
