"""The wall clock that the broker goes by: jumps of the machine's count once they have lasted. Pure.

A clock that is wrong for a moment would date records, make delayed messages due and end waits, and
nothing of that could be taken back. So the time shown is compared with the time that passed: as
long as both agree, the time shown is the time. After a jump, in either direction, time goes on as
if there had been none, until the clock has shown the new time for `SETTLE_MS`: a machine that
slept, or whose clock was corrected, is believed then, and a moment's error never was. The first
time that a process sees is believed at once, since there is nothing to compare it with. Source:
decision 0012.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SLACK_MS: Final = 1_000
"""No jump: a clock that is slewed, or a leap second, or a thread that slept between two looks."""
SETTLE_MS: Final = 60_000
"""How long a clock must show a new time until it is believed."""
NEVER_MS: Final = -1


class WallTime:
    """The time to go by. Calls from several threads at once do no harm.

    Invariant: what `now_ms` returns differs from the time that passed by a constant, up to slack,
    except in the moment in which a jump is believed.
    """

    __slots__ = (
        "_compared_ms",
        "_jump_ms",
        "_offset_ms",
        "_passed_ns",
        "_shown_ns",
        "_since_ms",
        "_tell",
    )

    def __init__(
        self,
        shown_ns: Callable[[], int],
        passed_ns: Callable[[], int],
        tell: Callable[[int, bool], None] | None = None,
    ) -> None:
        """`shown_ns` is the time that the clock shows, `passed_ns` the time that passed since some
        moment, both in ns. `tell` is called with each jump in ms when it is noticed, and again,
        with True, when it is believed.
        """
        self._shown_ns = shown_ns
        self._passed_ns = passed_ns
        self._offset_ms = shown_ns() // 1_000_000 - passed_ns() // 1_000_000
        self._compared_ms = NEVER_MS
        """The time shown when both were compared and agreed."""
        self._jump_ms = 0
        """The jump that is not believed yet."""
        self._since_ms = 0
        self._tell = tell or _tell_nobody

    def now_ms(self) -> int:
        """The time, in ms since 1970. Hot: one call for each message.

        The time that passed is asked for at most once in each ms: that call costs five times as
        much as the other.
        """
        shown_ms = self._shown_ns() // 1_000_000
        if shown_ms == self._compared_ms:
            return shown_ms
        passed_ms = self._passed_ns() // 1_000_000
        jump_ms = shown_ms - passed_ms - self._offset_ms
        if -SLACK_MS <= jump_ms <= SLACK_MS:
            self._offset_ms += jump_ms
            self._jump_ms = 0
            self._compared_ms = shown_ms
            return shown_ms
        self._compared_ms = NEVER_MS
        return self._doubted(jump_ms, passed_ms)

    def _doubted(self, jump_ms: int, passed_ms: int) -> int:
        if abs(jump_ms - self._jump_ms) > SLACK_MS:
            self._jump_ms, self._since_ms = jump_ms, passed_ms
            self._tell(jump_ms, False)
        elif passed_ms - self._since_ms >= SETTLE_MS:
            self._offset_ms += jump_ms
            self._jump_ms = 0
            self._tell(jump_ms, True)
        return passed_ms + self._offset_ms


def _tell_nobody(_jump_ms: int, _believed: bool) -> None:
    """Drop the news."""
