"""YAML files: scalars keep the text that stands in the file, and everything has a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.config.files.entries import ConfigurationError, Scalar
from aerobee.broker.config.files.yaml_file import read_yaml


def problem(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_yaml(text.encode(), "b.yaml")
    return str(caught.value)


def test_entries_are_flat_or_one_heading_deep() -> None:
    entries = read_yaml(b"broker_name: a\nstore:\n  delete_when: 04\n\nnamesrv:\n", "b.yaml")
    assert [(entry.section, entry.name, entry.location) for entry in entries] == [
        ("", "broker_name", "b.yaml:1"),
        ("store", "delete_when", "b.yaml:3"),
    ]


def test_a_scalar_is_its_text_not_what_yaml_makes_of_it() -> None:
    entries = read_yaml(b"a: 0123\nb: 04\nc: yes\nd: ~\ne: '04'\nf: 1_000\n", "b.yaml")
    assert [entry.value for entry in entries] == [
        Scalar("0123", "int"),
        Scalar("04", "int"),
        Scalar("yes", "bool"),
        Scalar("~", "null"),
        Scalar("04", "str"),
        Scalar("1_000", "int"),
    ]


def test_lists_and_mappings_stay_trees() -> None:
    entry = read_yaml(b"advertised: [{network: 10.0.0.0/8, address: a}]", "b.yaml")[0]
    assert entry.value == [{"network": Scalar("10.0.0.0/8", "str"), "address": Scalar("a", "str")}]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "~"])
def test_an_empty_file_sets_nothing(text: str) -> None:
    assert read_yaml(text.encode(), "b.yaml") == []


def test_what_is_not_yaml_is_named_with_its_line() -> None:
    assert problem("a: 1\nb: [1\n").startswith("b.yaml:3: not YAML: ")
    assert problem("a: 1\n\tb: 2\n").startswith("b.yaml:2: not YAML: a tab; ")
    assert problem("a:\t1\n").startswith("b.yaml:1: not YAML: a tab; ")


def test_what_is_not_key_and_value_is_refused() -> None:
    assert problem("- a\n- b") == "b.yaml:1: settings are `key: value` lines"
    assert problem("\nstore: 5") == "b.yaml:2: store: a section holds `key: value` lines"
    assert problem("[a, b]: 5") == "b.yaml:1: a key is a plain word"
    assert problem("a: [[[[[[x]]]]]]") == "b.yaml:1: nested too deep"


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="not UTF-8 at byte 3"):
        read_yaml(b"a: \xff", "b.yaml")


def test_a_list_that_holds_itself_is_refused() -> None:
    assert "nested too deep" in problem("a: &x [*x]")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_our_own_error(content: bytes) -> None:
    try:
        read_yaml(content, "f")
    except ConfigurationError as error:
        assert error.problems  # noqa: PT017  (most inputs raise nothing)


@given(st.text("ab:-[]{}&*!|>'\"%@ \n\t#,?0", max_size=60))
def test_any_text_of_yaml_signs_is_read_or_refused_with_our_own_error(text: str) -> None:
    try:
        read_yaml(text.encode(), "f")
    except ConfigurationError as error:
        assert error.problems  # noqa: PT017  (most inputs raise nothing)
