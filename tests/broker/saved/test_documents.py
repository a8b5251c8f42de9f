from typing import Any

import pytest

from aerobee.broker.saved.documents import mapping, unknown_fields


def test_an_absent_object_is_empty() -> None:
    assert mapping({}, "a") == mapping({"a": None}, "a") == {}
    assert mapping({"a": {"b": 1}}, "a") == {"b": 1}


@pytest.mark.parametrize("value", [[], "", 0, False, [1]])
def test_another_type_is_no_object(value: Any) -> None:
    with pytest.raises(ValueError, match="a is no object"):
        mapping({"a": value}, "a")


def test_what_we_do_not_know_is_kept() -> None:
    assert unknown_fields({"a": 1, "b": 2}, frozenset({"a"})) == {"b": 2}
