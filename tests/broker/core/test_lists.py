import json

import pytest

from aerobee.broker.core.lists import STEP_BYTES, encoded, encoded_table
from aerobee.broker.errors import Refusal
from aerobee.remoting.server.routes import finished


def test_a_long_list_is_encoded_in_steps() -> None:
    names = [f"t{number}" for number in range(2_501)]
    steps = encoded(names)
    for _ in range(6):
        next(steps)
    assert json.loads(finished(steps)) == names


def test_a_long_table_is_encoded_in_steps() -> None:
    table = {f"t{number:05}": number for number in range(2_501)}
    steps = encoded_table(table)
    for _ in range(6):
        next(steps)
    assert json.loads(finished(steps)) == table


def test_what_is_deleted_meanwhile_is_left_out() -> None:
    table = {f"t{number:05}": number for number in range(2_000)}
    steps = encoded_table(table)
    next(steps)
    for number in range(500, 1_500):
        del table[f"t{number:05}"]
    assert json.loads(finished(steps)) == table


def test_nothing_is_an_empty_list() -> None:
    assert (finished(encoded([])), finished(encoded_table({}))) == (b"[]", b"{}")


def test_an_answer_longer_than_clients_take_is_refused() -> None:
    names = ["x" * 100] * 2_000
    with pytest.raises(Refusal, match="longer than 100000 bytes"):
        finished(encoded(names, 100_000))
    with pytest.raises(Refusal, match="longer than 100000 bytes"):
        finished(encoded_table({str(n): name for n, name in enumerate(names)}, 100_000))


def test_a_step_of_long_entries_has_few_of_them() -> None:
    table = {f"t{number:05}": "x" * 16_000 for number in range(640)}
    least = 640 * 16_000 // (2 * STEP_BYTES)
    assert sum(1 for _ in encoded_table(table)) >= least
    assert sum(1 for _ in encoded(table.values())) >= least
