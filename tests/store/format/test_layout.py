from typing import NamedTuple

import pytest

from aerobee.store.format.layout import Layout, host4, host6, i16, i32, i64


class Row(NamedTuple):
    place: i64
    size: i32
    host: host4
    length: i16


def test_offsets_and_size_follow_from_the_declaration() -> None:
    layout = Layout(Row, size=22)
    assert layout.offset == {"place": 0, "size": 8, "host": 12, "length": 20}


def test_a_wrong_size_is_seen_at_import() -> None:
    with pytest.raises(AssertionError, match="22 bytes, declared as 20"):
        Layout(Row, size=20)


def test_a_row_comes_back_as_it_was_written() -> None:
    layout = Layout(Row, size=22)
    row = Row(-5, 7, b"12345678", -1)
    data = layout.write(row)
    assert layout.read(b"xx" + data, 2) == row
    assert list(layout.rows(data * 3)) == [row] * 3


def test_picked_fields_are_read_without_what_is_around_them() -> None:
    layout = Layout(Row, size=22)
    data = layout.write(Row(-5, 7, b"12345678", -1))
    assert layout.pick("place", "length")(data, 0) == (-5, -1)
    assert layout.pick("size")(data[:12], 0) == (7,)


def test_hosts_of_the_other_family_are_swapped_in() -> None:
    layout = Layout(Row, size=34, hosts={"host": host6})
    assert layout.offset["length"] == 32
