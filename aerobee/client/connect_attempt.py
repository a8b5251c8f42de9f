"""One attempt to connect to an address at a time, for all that want a connection to it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from aerobee.remoting.errors import ConnectFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

L = TypeVar("L")


class ConnectAttempt(Generic[L]):
    """The running attempt to connect to an address; others wait for its lock, and fail with it.

    Otherwise a thousand senders would each try, one after the other, to connect to a broker that is
    down, and at a silent one their number would grow without end.
    """

    __slots__ = ("_failed", "lock", "turn")

    def __init__(self, lock: L) -> None:
        """`lock` is held by the one that tries."""
        self.lock = lock
        self.turn = 0
        """The number of failed attempts."""
        self._failed = ""

    def check(self, turn: int) -> None:
        """Check that no attempt failed since that turn. Raises: ConnectFailed, as that one."""
        if self.turn != turn and self._failed:
            raise ConnectFailed(self._failed)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what becomes of the attempt that is made inside."""
        try:
            yield
        except ConnectFailed as error:
            self.turn += 1
            self._failed = str(error)
            raise
        self._failed = ""
