"""Property strings cut by numpy against the same strings read one by one."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.spark.rows.properties import ENTRIES_MAX, HIDDEN, Properties
from aerobee.store.format import properties

NAMES = (b"TAGS", b"KEYS", b"UNIQ_KEY", HIDDEN)
named = st.sampled_from([*NAMES, b"UNIQ_KEYS", b"TAG", b"TAGSX", b"a-name-of-some-length", b""])
written = st.lists(
    st.builds(
        lambda name, value: name + b"\x01" + value.encode() + b"\x02", named, st.text(max_size=4)
    ),
    max_size=5,
).map(b"".join)
strings = st.lists(written | st.binary(max_size=12), max_size=20)


def of(*rows: bytes) -> Properties:
    return Properties(pa.array(rows, pa.binary()))


@settings(deadline=None, max_examples=100)
@given(strings, st.permutations([*NAMES, b""]))
def test_values_and_maps_are_what_each_string_means(rows: list[bytes], asked: list[bytes]) -> None:
    found = of(*rows)
    wanted = [properties.decode(row) for row in rows]
    # In any order: what was read one by one for one answer counts for the next.
    for name in asked:
        if name:
            values = found.value_of(name)
            values.validate(full=True)
            assert values.to_pylist() == [one.get(name.decode()) for one in wanted]
            continue
        made = found.map()
        made.validate(full=True)
        shown = [
            {key: value for key, value in one.items() if key != HIDDEN.decode()} for one in wanted
        ]
        assert [dict(row) for row in made.to_pylist()] == shown


def test_what_brokers_write_is_cut_without_reading_a_row() -> None:
    rows = [
        b"",
        b"TAGS\x01a\x02",
        b"KEYS\x01k\x02TAGS\x01b\x02",
        b"",
        b"TAGS\x01\x02",
        b"TAGS\x01c",
    ]
    found = of(*rows)
    assert [dict(row) for row in found.map().to_pylist()] == [
        {}, {"TAGS": "a"}, {"KEYS": "k", "TAGS": "b"}, {}, {}, {"TAGS": "c"},
    ]  # fmt: skip
    assert found.odd == {}


def test_names_that_begin_alike_are_not_taken_for_each_other() -> None:
    alike = b"".join(b"X-Header-%c\x01%d\x02" % (65 + n, n) for n in range(6))
    found = of(alike, alike)
    found.map()
    assert found.odd == {}


@pytest.mark.parametrize(
    "row",
    [
        b"a\x011\x02a\x012\x02",
        b"TAGS\x01a\x01b\x02",
        b"TAGS\x01\xff\x02",
        b"x\x02",
        b"".join(b"%d\x01v\x02" % n for n in range(ENTRIES_MAX + 1)),
    ],
)
def test_only_an_odd_row_is_read_by_itself(row: bytes) -> None:
    plain = b"TAGS\x01t\x02"
    found = of(plain, row, plain)
    maps = [dict(one) for one in found.map().to_pylist()]
    assert maps == [{"TAGS": "t"}, properties.decode(row), {"TAGS": "t"}]
    assert set(found.odd) == {1}


def test_no_rows_at_all() -> None:
    assert of().map().to_pylist() == []
    assert of().value_of(b"TAGS").to_pylist() == []
