"""Why the store refuses what: one bit per reason, as RocketMQ counts them."""

from __future__ import annotations

from enum import IntFlag

__all__ = ["Flag", "RunningFlags"]


class Flag(IntFlag):
    """What a store cannot do at the moment, as bits. Source: store format §2.6 (RunningFlags)."""

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


UNWRITABLE = ~int(Flag.NOT_READABLE)


class RunningFlags:
    """The reasons that hold now, each with its cause in words.

    `refusing` is true while anything stands against a write: the hot path reads only this.
    """

    __slots__ = ("_causes", "bits", "refusing")

    def __init__(self) -> None:
        self._causes: dict[Flag, str] = {}
        self.bits = 0
        self.refusing = False

    def set(self, flag: Flag, cause: str) -> None:
        """From now on this reason holds."""
        self._causes[flag] = cause
        self._count()

    def clear(self, flag: Flag) -> None:
        """This reason is gone; nothing when it did not hold."""
        self._causes.pop(flag, None)
        self._count()

    def tell(self, flag: Flag, cause: str) -> None:
        """This reason holds, or with an empty cause is gone."""
        if cause:
            self.set(flag, cause)
        else:
            self.clear(flag)

    def has(self, flag: Flag) -> bool:
        """Whether this reason holds."""
        return flag in self._causes

    @property
    def cause(self) -> str:
        """Why writes are refused, for people; empty while they are not."""
        return "; ".join(cause for flag, cause in self._causes.items() if flag & UNWRITABLE)

    def _count(self) -> None:
        self.bits = sum(self._causes)
        self.refusing = bool(self.bits & UNWRITABLE)
