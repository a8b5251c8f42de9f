"""How long the messages of a delay level have waited, whatever the wall clock showed. Pure.

The due time of a parked message is made from its store timestamp, so it is wrong where the wall
clock was. A message that was seen in its level a full delay ago is due at the latest now.
"""

from __future__ import annotations

from collections import deque
from typing import Final

STEPS: Final = 1_000
"""Into how many steps a delay is divided: by so much of it a message may be late."""
STEP_MIN_S: Final = 0.05
REMEMBERED: Final = 2 * STEPS


class LevelWaits:
    """When the end of the queue of one level was first seen where; times are monotonic."""

    __slots__ = ("_seen", "delay_s", "waited_to")

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self._seen: deque[tuple[int, float]] = deque(maxlen=REMEMBERED)
        """Ends of the queue, and when each was seen last, in steps."""
        self.waited_to = 0
        """All messages before this queue offset have waited for the delay."""

    def look(self, end_offset: int, now_s: float) -> None:
        """Note how far the queue goes; called at every check of the level. Hot."""
        seen = self._seen
        if not seen or end_offset > seen[-1][0]:
            step_s = max(STEP_MIN_S, self.delay_s / STEPS)
            if seen and now_s // step_s == seen[-1][1] // step_s:
                seen.pop()
            seen.append((end_offset, now_s))
        while seen and seen[0][1] + self.delay_s <= now_s:
            self.waited_to = max(self.waited_to, seen[0][0])
            if len(seen) == 1:
                break
            seen.popleft()
