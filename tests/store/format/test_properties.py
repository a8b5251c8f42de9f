from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format import properties

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
PAIRS = st.dictionaries(TEXT, TEXT, max_size=6)


@given(PAIRS)
def test_what_is_encoded_is_decoded(pairs: dict[str, str]) -> None:
    text = properties.encode(pairs)
    assert properties.decode(text) == pairs
    assert properties.decode(text.encode()) == pairs
    assert properties.decode(text.removesuffix("\x02")) == pairs


@given(PAIRS, PAIRS)
def test_appending_gives_the_pairs_of_both_and_the_later_wins(
    first: dict[str, str], second: dict[str, str]
) -> None:
    for text in (properties.encode(first), properties.encode(first).removesuffix("\x02")):
        joined = properties.append(text, properties.encode(second))
        assert properties.decode(joined) == first | second


JUNK = st.lists(st.sampled_from([b"TAGS", b"T", b"\x01", b"\x02", b"\n"]), max_size=30).map(
    b"".join
)


@given(PAIRS, st.binary(max_size=60) | JUNK)
def test_one_value_is_found_as_decoding_all_would_find_it(
    pairs: dict[str, str], junk: bytes
) -> None:
    for data in (properties.encode(pairs).encode(), junk):
        whole = properties.decode(data)
        for name in [*pairs, "TAGS"]:
            assert properties.value_of(data, name.encode()) == whole.get(name)


def test_pieces_without_name_or_value_are_dropped() -> None:
    assert properties.decode("\x01v\x02n\x01\x02n\x02\x02a\x01b") == {"a": "b"}


def test_the_last_of_equal_names_wins_unless_it_is_empty() -> None:
    assert properties.decode("a\x011\x02a\x012") == {"a": "2"}
    assert properties.value_of(b"a\x011\x02a\x012", b"a") == "2"
    assert properties.value_of(b"a\x011\x02a\x01\x02", b"a") == "1"


def test_a_name_that_ends_another_name_is_not_mistaken_for_it() -> None:
    assert properties.value_of(b"XTAGS\x01a\x02", b"TAGS") is None
    assert properties.value_of(b"k\x01TAGS\x01a\x02", b"TAGS") is None


def test_appending_nothing_changes_nothing() -> None:
    assert properties.append("a\x01b", "") == "a\x01b"
    assert properties.append("", "a\x01b\x02") == "a\x01b\x02"


def test_an_empty_value_is_not_written() -> None:
    assert properties.encode({"a": "", "b": "c"}) == "b\x01c\x02"


@given(st.binary(max_size=40))
def test_a_record_closes_its_properties_once(data: bytes) -> None:
    closed = properties.closed(data)
    assert closed in (data, data + b"\x02")
    assert not closed or closed[-1:] == b"\x02"
    assert properties.closed(closed) == closed
    assert properties.is_closed(closed)
    assert properties.is_closed(data) == (closed == data)


def test_properties_that_fill_their_length_field_stay_as_they_are() -> None:
    longest = b"x" * properties.PROPERTIES_BYTES_MAX
    assert properties.closed(longest) == longest
    assert properties.is_closed(longest)


def test_the_length_field_of_properties_is_that_of_java() -> None:
    assert properties.PROPERTIES_BYTES_MAX == 32_767
    assert properties.closed(b"x" * 32_766) == b"x" * 32_766 + b"\x02"
