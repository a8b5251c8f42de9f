"""Lists of callbacks for the events of a store: short ones that seldom change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")


class Listeners(Generic[P]):
    """Callbacks for one kind of event, called in the order in which they were added.

    `tell` calls all of them. It is None when there are none, and the callback itself when there is
    only one: an event that occurs for each message should cost one call at most. It returns whether
    all of them returned a true value, which an event may give a meaning.
    """

    __slots__ = ("_all", "tell")

    def __init__(self) -> None:
        self._all: tuple[Callable[P, object], ...] = ()
        self.tell: Callable[P, object] | None = None

    def add(self, listener: Callable[P, object]) -> None:
        """Call this one as well from now on."""
        self._change((*self._all, listener))

    def remove(self, listener: Callable[P, object]) -> None:
        """Call this one no more. Raises: ValueError when it was never added."""
        left = list(self._all)
        left.remove(listener)
        self._change(tuple(left))

    def _change(self, listeners: tuple[Callable[P, object], ...]) -> None:
        self._all = listeners
        match listeners:
            case ():
                self.tell = None
            case (alone,):
                self.tell = alone
            case several:
                self.tell = _to_each(several)


def _to_each(listeners: tuple[Callable[P, object], ...]) -> Callable[P, bool]:
    """One listener that tells all of them."""

    def tell(*args: P.args, **kwargs: P.kwargs) -> bool:
        results = [listener(*args, **kwargs) for listener in listeners]
        return all(results)

    return tell
