"""What a selector tells its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.server.arrivals import SlowRound
    from aerobee.remoting.server.connection import Connection


class Hooks(NamedTuple):
    """Callbacks of a selector: plain functions."""

    connected: Callable[[Connection], None] = lambda _: None
    """Called for each new connection."""
    after_round: Callable[[], None] = lambda: None
    """Called at the end of every round before its answers are sent: it may add more."""
    slow_round: Callable[[SlowRound], None] = lambda _: None
    """Called before that, when the round was slow."""
