"""How many lines a peer can provoke, and that none is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.server.log_limit import LogLimit


def test_so_many_lines_per_period_and_the_next_period_says_what_was_left_out() -> None:
    limit = LogLimit(lines=2, period_s=10)
    assert [limit.admit(now) for now in (0, 1, 2, 9.9)] == [0, 0, None, None]
    assert [limit.admit(now) for now in (10, 11, 12)] == [2, 0, None]
    assert limit.admit(100) == 1


@given(st.lists(st.floats(0, 5), max_size=200))
def test_every_line_is_said_or_counted(pauses: list[float]) -> None:
    limit = LogLimit(lines=3, period_s=10)
    now, said, counted = 0.0, 0, 0
    for pause in pauses:
        now += pause
        left_out = limit.admit(now)
        if left_out is not None:
            said += 1
            counted += left_out
    last = limit.admit(now + 10.1)
    assert last is not None
    assert said + counted + last == len(pauses)
