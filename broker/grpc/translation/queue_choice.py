"""The queue of a message group. When queues are added, few groups move.

Source: grpc §2.7 (Guava's consistent hash: Lamping and Veach, arXiv 1406.2294).
"""

from __future__ import annotations

from typing import Final

from aerobee.store.format.tags import java_hash

MULTIPLIER: Final = 2_862_933_555_777_941_757
MASK: Final = (1 << 64) - 1


def chosen_queue(group: str, queues: int) -> int:
    """The queue of a message group, of so many; −1 where there are none."""
    state, queue, following = java_hash(group) & MASK, -1, 0
    while following < queues:
        queue = following
        state = (state * MULTIPLIER + 1) & MASK
        following = int((queue + 1) * (1 << 31) / ((state >> 33) + 1))
    return queue
