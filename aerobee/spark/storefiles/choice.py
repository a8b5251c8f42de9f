"""Selects the topics and segments of a store that a read needs. Pure.

Source: spark §9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.system_names import SYSTEM_PREFIXES, SYSTEM_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CLOCK_SLACK_MS = 3_600_000
"""How far a clock may step back between two records before pruning by time is wrong."""


def is_system(topic: str) -> bool:
    """Whether a topic is a system topic. Source: spark §9."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIXES)


def topic_filter(topics: Sequence[str], *, exclude_system: bool) -> Callable[[str], bool]:
    """A test for topics: the named ones; without names all, or all but the system topics."""
    if topics:
        return frozenset(topics).__contains__
    return (lambda topic: not is_system(topic)) if exclude_system else (lambda _: True)


def within_times(
    firsts: Sequence[int | None], starting_ms: int | None, ending_ms: int | None
) -> list[bool]:
    """Which segments can have records of [starting, ending), by the time of each first record.

    A segment without a time is always kept. Clocks that step back by less than an hour are allowed.
    """
    kept = []
    for number, first in enumerate(firsts):
        following = firsts[number + 1] if number + 1 < len(firsts) else None
        past = (
            starting_ms is not None
            and following is not None
            and following < starting_ms - CLOCK_SLACK_MS
        )
        future = ending_ms is not None and first is not None and first >= ending_ms + CLOCK_SLACK_MS
        kept.append(not past and not future)
    return kept
