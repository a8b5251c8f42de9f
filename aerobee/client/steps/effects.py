"""The two effects that steps yield, and the signal."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from aerobee.remoting.wire.header import Header

T = TypeVar("T")


class Signal:
    """An event that fronts wait for; it stays set until it is cleared.

    It is set only where the state of the client may change: in its loop, or under its lock.
    """

    __slots__ = ("_listeners", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._listeners: list[Callable[[], object]] = []

    def set(self) -> None:
        """Set the signal and call every listener; listeners must not block."""
        self.is_set = True
        for listener in tuple(self._listeners):
            listener()

    def clear(self) -> None:
        """Clear the signal."""
        self.is_set = False

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` at each set(), at once if it is set; returns a function to stop that."""
        self._listeners.append(listener)
        if self.is_set:
            listener()
        return lambda: self._listeners.remove(listener)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request; the step is sent the response (a Command), or None for one-way or given up.

    `until`: give up the wait, not the connection, as soon as this signal is set. The step is thrown
    TransportError and its subclasses.
    """

    address: str
    header: Header
    body: bytes = b""
    timeout_s: float
    oneway: bool = False
    until: Signal | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait until the signal is set, at most for the given seconds; the step is sent None."""

    signal: Signal
    seconds: float


Effect: TypeAlias = Ask | Wait
Steps: TypeAlias = Generator[Effect, Any, T]


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of steps: monotonic seconds, and ms since the epoch."""

    monotonic: Callable[[], float]
    wall_ms: Callable[[], int]
