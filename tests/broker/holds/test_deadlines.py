"""Deadlines, a few at a time."""

from __future__ import annotations

from aerobee.broker.holds.deadlines import Deadlines


class Entry:
    def __init__(self, done: bool = False) -> None:
        self.done = done


def test_those_that_are_over_are_taken_the_earliest_first_and_so_many_at_once() -> None:
    deadlines: Deadlines[Entry] = Deadlines()
    entries = [Entry() for _ in range(5)]
    for at in (3, 1, 0, 4, 2):
        deadlines.add(at, entries[at], 5)
    assert deadlines.over(3, 3) == entries[:3]
    assert deadlines.due(3)
    assert deadlines.over(3, 3) == [entries[3]]
    assert not deadlines.due(3)
    assert deadlines.over(4, 3) == [entries[4]]
    assert not deadlines.due(9)


def test_those_that_are_done_take_their_part_of_a_step_too() -> None:
    """Else one step would remove all of the thousands that one message woke before."""
    deadlines: Deadlines[Entry] = Deadlines()
    last = Entry()
    for number in range(10):
        deadlines.add(number, Entry(done=True), 0)
    deadlines.add(10, last, 1)
    assert deadlines.over(10, 8) == []
    assert deadlines.due(10)
    assert deadlines.over(10, 8) == [last]
