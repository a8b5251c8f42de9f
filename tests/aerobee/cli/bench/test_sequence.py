"""Bodies say which they are, and what is missing, doubled or out of order is counted."""

import pytest

from aerobee.cli.bench.sequence import HEAD_BYTES, Checker, Mark, marked, read_mark

RUN = 77


def mark(number: int, sender: int = 1) -> Mark:
    return Mark(RUN, sender, number, 123)


@pytest.mark.parametrize("size", [HEAD_BYTES, 128])
def test_a_mark_is_read_out_of_its_body(size: int) -> None:
    body = marked(mark(5), size)
    assert len(body) == size
    assert read_mark(body, RUN) == mark(5)
    assert read_mark(body, RUN + 1) is None
    assert read_mark(b"x" * size, RUN) is None
    assert read_mark(b"short", RUN) is None


def test_what_is_wrong_is_counted() -> None:
    checker = Checker()
    for number in (0, 2, 1, 1, 3):
        checker.add(mark(number), "queue")
    checker.add(mark(0, sender=2), "queue")
    checker.add(mark(4), "another queue")
    assert (checker.duplicates, checker.reordered) == (1, 1)
    sent = {(1, number) for number in range(7)} | {(2, 0)}
    assert checker.lost(sent) == 2
