"""The buffer into which a selector receives: shared by its connections, and read over again."""

from __future__ import annotations

RECEIVE_BYTES = 256 * 1024
"""What one receive takes at most, where only one socket is ready."""


class ReceiveBuffer:
    """Bytes for one read after the other; those of gathered requests are kept for a while.

    Invariant: `free` is one share long, and behind all that is kept.
    """

    __slots__ = ("_at", "_share", "free", "whole")

    def __init__(self) -> None:
        self.whole = memoryview(bytearray(RECEIVE_BYTES))
        self._share = RECEIVE_BYTES
        self._at = 0
        self.free = self.whole
        """Where the next read goes."""

    def divide(self, shares: int) -> None:
        """Let a read take this fraction of the buffer; nothing is kept."""
        self._share = RECEIVE_BYTES // shares
        self.free = self.whole[: self._share]
        self._at = 0

    def keep(self, received: int) -> bool:
        """Read behind what was just received; False when there is no room behind it. Hot."""
        self._at = at = self._at + received
        if at + self._share > RECEIVE_BYTES:
            return False
        self.free = self.whole[at : at + self._share]
        return True

    def begin(self) -> None:
        """Read over everything. Hot."""
        if self._at:
            self._at = 0
            self.free = self.whole[: self._share]
