"""The order settings of a name server: read in steps, by the same rules as at once."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.bodies import kv_table
from aerobee.remoting.wire.bodies.kv_table import AT_ONCE, KVTable

if TYPE_CHECKING:
    from collections.abc import Mapping


def keys(table: Mapping[str, str], *, ascii_only: bool, indent: int | None) -> list[str]:
    body = json.dumps({"table": table}, ensure_ascii=ascii_only, indent=indent).encode()
    return list(chain(*KVTable.keys(body)))


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8"))),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_the_keys_are_those_of_the_table_however_it_is_written(
    table: dict[str, str], ascii_only: bool, indent: int | None
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_table, "SMALL_BYTES", 0)
        assert keys(table, ascii_only=ascii_only, indent=indent) == list(table)


def test_a_hundred_thousand_entries_are_read_a_few_at_a_time() -> None:
    table = {f"topic-{number:06}": "broker-a:8" for number in range(100_000)}
    steps = list(KVTable.keys(json.dumps({"table": table}).encode()))
    assert max(map(len, steps)) == AT_ONCE
    assert list(chain(*steps)) == list(table)


@pytest.mark.parametrize(
    "body",
    [b'{"table":{"a":1}}', b'{"table":{"a":"b"', b'{"a":{}}', b"[]", b'{"table":{"\xff":""}}'],
)
def test_what_is_no_table_of_texts_is_refused(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    monkeypatch.setattr(kv_table, "SMALL_BYTES", 0)
    with pytest.raises(BodyError):
        list(KVTable.keys(body))
