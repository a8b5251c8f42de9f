"""Addresses: whatever is put into one stays one value."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.console.pages.links import link


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_value_comes_out_as_it_went_in(name: str) -> None:
    parts = urlsplit(link("/group", name=name))
    assert parts.path == "/group"
    assert parse_qs(parts.query, keep_blank_values=True) == {"name": [name]}


def test_what_is_not_given_is_left_out() -> None:
    assert link("/groups", filter="", sort=None) == "/groups"
    assert link("/groups", offset=0) == "/groups?offset=0"
