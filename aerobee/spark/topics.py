"""The topics of a read: the named ones, or all but those of the system. Pure.

Source: spark §9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.system_names import SYSTEM_PREFIXES, SYSTEM_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def is_system(topic: str) -> bool:
    """Whether a topic is a system topic. Topics of answers are none: they have data."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIXES)


def topic_filter(topics: Sequence[str], *, exclude_system: bool) -> Callable[[str], bool]:
    """A test for topics: the named ones; without names all, or all but the system topics."""
    if topics:
        return frozenset(topics).__contains__
    return (lambda topic: not is_system(topic)) if exclude_system else (lambda _: True)
