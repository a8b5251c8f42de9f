"""The fence of a master: until when it may acknowledge, by its own clock alone.

Pure: moments of a monotonic clock come in. The decider counts the lease from when it learns of a
renewal, which is after the renewal began here. So a master that counts from the begin of its last
successful renewal, and stops a margin earlier, has stopped before anybody else can begin. It asks
nobody for that: a process that stood still, or that reaches nobody, finds out by its clock.
"""

from __future__ import annotations

from typing import Final

MARGIN: Final = 0.2
"""The part of a lease that a master leaves unused: two clocks may run apart by so much."""


class Lease:
    """One lease of a master: without a renewal it has not begun, and it ends for good.

    A renewal whose answer comes after the end changes nothing.
    """

    __slots__ = ("_began", "_over", "length_s")

    def __init__(self, length_s: float) -> None:
        """`length_s`: how long the decider keeps the lease after a renewal."""
        self.length_s = length_s
        self._began = float("-inf")
        self._over = False

    @property
    def ends(self) -> float:
        """From this moment on nothing may be acknowledged."""
        return float("-inf") if self._over else self._began + self.length_s * (1 - MARGIN)

    def renewed(self, began: float) -> None:
        """The decider has confirmed a renewal, which was begun at this moment."""
        self._began = max(self._began, began)

    def end(self) -> None:
        """End it: the lease is to be given back, or the decider has said that it is over."""
        self._over = True

    def may_answer(self, now: float) -> bool:
        """Whether this master may acknowledge at this moment.

        To be asked after every wait, immediately before the answer: the wait may have been long.
        """
        return now < self.ends
