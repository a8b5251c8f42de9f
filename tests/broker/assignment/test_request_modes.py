"""Modes by topic and group."""

from __future__ import annotations

import msgspec
import pytest

from aerobee.broker.assignment.request_modes import RequestModeTable
from aerobee.broker.errors import LimitReached
from aerobee.remoting.wire.bodies.pop import RequestModeRequest


def wanted(topic: str = "t", group: str = "g", mode: str = "POP") -> RequestModeRequest:
    return RequestModeRequest(topic=topic, consumer_group=group, mode=mode)


def test_a_change_asks_for_a_save_and_what_is_saved_is_read_again() -> None:
    saves: list[int] = []
    table = RequestModeTable(on_change=lambda: saves.append(1))
    table.set(wanted())
    table.set(wanted(group="h", mode="PULL"))
    assert len(saves) == 2
    document = msgspec.json.decode(msgspec.json.encode(table.document()))
    again = RequestModeTable(on_change=lambda: None)
    again.load({**document, "later": 1})
    assert again.modes == table.modes
    assert again.document()["later"] == 1
    assert again.get("t", "nobody") is None


def test_the_table_has_a_limit_and_what_is_known_can_still_change() -> None:
    table = RequestModeTable(on_change=lambda: None, max_entries=1)
    table.set(wanted())
    with pytest.raises(LimitReached):
        table.set(wanted(group="h"))
    table.set(wanted(mode="PULL"))
    known = table.get("t", "g")
    assert known is not None
    assert known.mode == "PULL"


def test_a_file_that_is_none_changes_nothing() -> None:
    table = RequestModeTable(on_change=lambda: None)
    table.set(wanted())
    before = dict(table.modes)
    with pytest.raises((ValueError, TypeError, AttributeError)):
        table.load({"messageRequestModeMap": {"t": {"g": []}}})
    assert table.modes == before
