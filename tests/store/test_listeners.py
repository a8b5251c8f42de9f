"""Lists of those who are told."""

import pytest

from aerobee.store.listeners import Listeners


def test_all_are_told_in_the_order_in_which_they_came() -> None:
    told: list[tuple[str, int]] = []
    listeners: Listeners[[int]] = Listeners()
    assert listeners.tell is None, "nobody is called for nobody"

    def first(number: int) -> None:
        told.append(("first", number))

    def second(number: int) -> None:
        told.append(("second", number))

    listeners.add(first)
    assert listeners.tell is first, "one is called directly"
    listeners.add(second)
    assert listeners.tell is not None
    listeners.tell(7)
    assert told == [("first", 7), ("second", 7)]
    listeners.remove(first)
    assert listeners.tell is second
    with pytest.raises(ValueError, match="not in list"):
        listeners.remove(first)
