from typing import Any

import pytest

from aerobee.broker.saved.documents import KeptFields, mapping, unknown_fields
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig


def test_an_absent_object_is_empty() -> None:
    assert mapping({}, "a") == mapping({"a": None}, "a") == {}
    assert mapping({"a": {"b": 1}}, "a") == {"b": 1}


@pytest.mark.parametrize("value", [[], "", 0, False, [1]])
def test_another_type_is_no_object(value: Any) -> None:
    with pytest.raises(ValueError, match="a is no object"):
        mapping({"a": value}, "a")


def test_what_we_do_not_know_is_kept() -> None:
    assert unknown_fields({"a": 1, "b": 2}, frozenset({"a"})) == {"b": 2}


def test_kept_fields_are_merged_once_into_each_entry_and_go_with_it() -> None:
    old, new = SubscriptionGroupConfig(group_name="g"), SubscriptionGroupConfig(group_name="g2")
    kept = KeptFields()
    kept.put("g", {"newer": [1]}, old)
    kept.put("plain", {}, new)
    first = kept.table({"g": old, "plain": new})
    assert first["g"]["newer"] == [1]
    assert first["g"]["groupName"] == "g"
    assert first["plain"] is new
    assert kept.table({"g": old})["g"] is first["g"]
    changed = kept.table({"g": new})["g"]
    assert (changed["newer"], changed["groupName"]) == ([1], "g2")
    kept.drop("g")
    kept.drop("g")
    assert kept.table({"g": old}) == {"g": old}
