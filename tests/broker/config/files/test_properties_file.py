"""RocketMQ's files: read as `java.util.Properties` reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.config.files.entries import ConfigurationError, Scalar
from aerobee.broker.config.files.properties_file import escape, read_properties


def pairs(text: str | bytes) -> list[tuple[str, str]]:
    content = text.encode() if isinstance(text, str) else text
    found = []
    for entry in read_properties(content, "broker.conf"):
        assert isinstance(entry.value, Scalar)
        found.append((entry.name, entry.value.text))
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("k = v", ("k", "v")),
        ("k: v", ("k", "v")),
        ("k v", ("k", "v")),
        ("  k=v", ("k", "v")),
        ("k\t=\tv", ("k", "v")),
        ("deleteWhen=04 # night", ("deleteWhen", "04 # night")),
        ("brokerId=1 ", ("brokerId", "1 ")),
        ("a = b \\\n   c", ("a", "b c")),
        ("a = b\\\\", ("a", "b\\")),
        ("a = b \\", ("a", "b ")),
        (r"p=C:\a", ("p", "C:a")),
        (r"a\=b=c", ("a=b", "c")),
        (r"a\ b=c", ("a b", "c")),
        (r"t=\t\n\r\f\u00e9", ("t", "\t\n\r\f\u00e9")),
        ("k", ("k", "")),
        ("k==v", ("k", "=v")),
        ("k = : v", ("k", ": v")),
        ("a = b \\\n\nc=d", ("a", "b ")),
        ("a = b \\\n# c", ("a", "b # c")),
    ],
)
def test_a_line_means_what_it_means_to_java(line: str, expected: tuple[str, str]) -> None:
    assert pairs(line)[0] == expected


def test_comments_and_empty_lines_say_nothing() -> None:
    assert pairs("# a\n! b\n\n   \n  # c \\\nk=v\n") == [("k", "v")]


def test_every_kind_of_line_end_ends_a_line_and_counts_as_one() -> None:
    entries = read_properties(b"a=1\r\nb=2\rc=3\n\nd=4", "f")
    assert [(entry.name, entry.location) for entry in entries] == [
        ("a", "f:1"),
        ("b", "f:2"),
        ("c", "f:3"),
        ("d", "f:5"),
    ]


def test_the_line_of_a_joined_entry_is_its_first() -> None:
    entries = read_properties(b"\na=1\\\n2\\\n3\nb=1", "f")
    assert [entry.location for entry in entries] == ["f:2", "f:5"]


def test_bytes_are_utf8_where_they_can_be_else_latin1() -> None:
    assert pairs("n=Zürich".encode()) == [("n", "Zürich")]
    assert pairs("n=Zürich".encode("latin-1")) == [("n", "Zürich")]
    assert pairs(b"\xef\xbb\xbfn=v") == [("n", "v")]


def test_a_broken_unicode_escape_is_named_with_its_line() -> None:
    with pytest.raises(ConfigurationError, match=r"broker\.conf:2: .*four hexadecimal digits"):
        pairs("a=1\nb=\\u12g4")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_our_own_error(content: bytes) -> None:
    try:
        read_properties(content, "f")
    except ConfigurationError as error:
        assert error.problems  # noqa: PT017  (most inputs raise nothing)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_an_escaped_value_is_read_back_unchanged(value: str) -> None:
    assert pairs(f"k={escape(value)}") == [("k", value)]
