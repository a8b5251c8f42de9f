"""The table of open transactions against the queue that it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.transactions.open_transactions import GIVEN_UP_MAX, MOVED_MAX, Transactions
from tests.broker.transactions.test_half_messages import half

if TYPE_CHECKING:
    from aerobee.broker.transactions.half_messages import Half

STEPS = st.lists(st.tuples(st.sampled_from(["begin", "end", "move", "give up"]), st.integers(0, 9)))


def place(number: int, at: int) -> Half:
    """A copy of the half of transaction `number`."""
    found = half(UNIQ_KEY=f"K{number}")
    return found._replace(record=found.record._replace(queue_offset=at))


@given(STEPS)
def test_every_transaction_has_one_end_wherever_its_half_has_gone(
    steps: list[tuple[str, int]],
) -> None:
    table = Transactions()
    queue: list[int] = []
    """Queue offset → transaction."""
    copies: list[list[int]] = []
    """Transaction → all its places."""
    ended: set[int] = set()
    given_up: set[int] = set()

    for step, choice in steps:
        if step == "begin":
            table.began("t", 0)
            copies.append([len(queue)])
            queue.append(len(copies) - 1)
        elif step == "end" and copies:
            number = choice % len(copies)
            named = place(number, copies[number][choice % len(copies[number])])
            at = table.newest(named)
            assert (at is None) == (number in ended), "the first end stands"
            if at is not None:
                assert number in given_up or at == copies[number][-1]
                if at >= table.position:
                    table.op_written(at, (at,))
                table.decide(named, at, 0)
                ended.add(number)
        elif table.position < len(queue) and step == "move":
            number = queue[table.position]
            table.move(place(number, table.position), len(queue))
            copies[number].append(len(queue))
            queue.append(number)
        elif table.position < len(queue) and step == "give up":
            number = queue[table.position]
            table.give_up(place(number, table.position), 0)
            given_up.add(number)
        position, _ = table.progress()
        assert all(at > position for at in table.decided)
        for number, places in enumerate(copies):
            open_ = number not in ended | given_up
            assert (places[-1] >= position) >= open_, "nothing open is left behind"
        assert table.open.get("t", 0) == len(copies) - len(ended | given_up)
        assert not table.ops or table.ops[0][1] >= position, "what is done with in front is gone"
        assert table.moved.keys() <= {place(number, 0).key for number in range(len(copies))}


def test_an_op_record_is_done_with_once_all_its_halves_are() -> None:
    table = Transactions()
    table.op_written(0, (0, 2))
    table.op_written(1, ())
    table.op_written(2, (1,))
    table.go_on(2)
    assert table.progress() == (2, 0)
    table.go_on(3)
    assert table.progress() == (3, 3)


def test_what_it_remembers_is_bounded() -> None:
    table = Transactions()
    for key in range(MOVED_MAX + 5):
        table.remember_move(key, key)
    assert len(table.moved) == MOVED_MAX
    assert 4 not in table.moved
    for key in range(GIVEN_UP_MAX + 5):
        table.remember_given_up(key)
    assert len(table.given_up) == GIVEN_UP_MAX


def test_a_topic_without_open_transactions_leaves_nothing_behind() -> None:
    """However many topics come and go; the version of the document only grows."""
    table = Transactions()
    for number in range(100):
        table.began("t", 10 + number)
        one = place(number, number)
        if number % 2:
            table.decide(one, number, 1_000 - number)
        else:
            table.give_up(one, 1_000 - number)
    assert table.open == {}
    assert table.document() == {
        "dataVersion": {"counter": 200, "stateVersion": 0, "timestamp": 1_000},
        "transactionCount": {},
    }


def test_the_counts_are_written_as_java_reads_them() -> None:
    table = Transactions()
    table.began("t", 5)
    table.began("u", 9)
    assert table.document() == {
        "dataVersion": {"counter": 2, "stateVersion": 0, "timestamp": 9},
        "transactionCount": {
            "t": {"count": 1, "timeStamp": 5},
            "u": {"count": 1, "timeStamp": 9},
        },
    }
