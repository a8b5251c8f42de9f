"""Who gets which queue: strategies as pure functions of (group, client id, queues, client ids).

Every member of a group must run the same strategy over the same sorted lists; nothing else keeps
two members from taking the same queue. Source: client §8.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from aerobee.client.message import MessageQueue
from aerobee.errors import ConfigurationError

__all__ = ["Allocator", "average", "strategy"]

Allocator: TypeAlias = Callable[
    [str, str, Sequence[MessageQueue], Sequence[str]], Sequence[MessageQueue]
]


def average(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> Sequence[MessageQueue]:
    """Even runs of neighbouring queues, the first members one more (`AVG`, the default).

    Nothing if the own id is not in the list. Source: client §8.2
    (AllocateMessageQueueAveragely).
    """
    del group
    if client_id not in client_ids:
        return []
    own = client_ids.index(client_id)
    share, rest = divmod(len(queues), len(client_ids))
    start = own * share + min(own, rest)
    return queues[start : start + share + (1 if own < rest else 0)]


STRATEGIES: dict[str, Allocator] = {"AVG": average}


def strategy(chosen: str | Allocator) -> Allocator:
    """The function behind a strategy name. Raises: ConfigurationError."""
    if not isinstance(chosen, str):
        return chosen
    if chosen not in STRATEGIES:
        known = ", ".join(sorted(STRATEGIES))
        raise ConfigurationError(f"no allocation strategy {chosen!r}; there are: {known}")
    return STRATEGIES[chosen]
