"""The file of definitions: what is read of it, what is refused, and what it asks for."""

import json
from typing import Any

import pytest

from aerobee.cli.definitions_file import BYTES_MAX, KINDS, Definitions, differences, read
from aerobee.errors import ConfigurationError

EIGHT: dict[str, Any] = {"readQueueNums": 8, "perm": 6, "attributes": {"a": "1"}}


def of(**kinds: Any) -> Definitions:
    return read(json.dumps({"aerobee_definitions": 1, **kinds}).encode())


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (b"", "no JSON of definitions"),
        (b"[]", "no JSON of definitions"),
        (b'{"topics": {}}', "has no member aerobee_definitions"),
        (b'{"aerobee_definitions": 2}', "has version 2 of definitions, this Aerobee reads 1"),
        (b'{"aerobee_definitions": true}', "no JSON of definitions"),
        (b'{"aerobee_definitions": 1, "topic": {}}', "unknown field `topic`"),
        (b'{"aerobee_definitions": 1, "topics": {"T": []}}', "$.topics[...]"),
        (b'{"aerobee_definitions": 1, "topics": {"T": {"b": 5}}}', "$.topics[...][...]"),
        (b'{"aerobee_definitions": 1, "made_by": "\xff"}', "no JSON of definitions"),
        (b"[" * 100_000, "no JSON of definitions"),
        (b'{"aerobee_definitions": 1, "topics": ' + b'{"a":' * 100_000, "no JSON of definitions"),
        (b" " * (BYTES_MAX + 1), f"longer than {BYTES_MAX} bytes"),
    ],
    ids=range(12),
)
def test_a_file_that_is_none_is_refused_by_name(document: bytes, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(document)
    assert said in str(caught.value)


def test_what_is_there_as_it_should_be_is_no_difference() -> None:
    there = of(topics={"T": {"b": EIGHT | {"order": False, "attributes": {"a": "1", "b": "2"}}}})
    assert not list(differences(of(topics={"T": {"b": EIGHT}}), there, ["b"], KINDS))
    wanted = of(policies={"u": {"b": {"Topic:t Custom": {"actions": ["Sub", "Pub"]}}}})
    has = of(policies={"u": {"b": {"Topic:t Custom": {"actions": ["Pub", "Sub"]}}}})
    assert not list(differences(wanted, has, ["b"], KINDS))


def test_a_difference_names_what_was_before() -> None:
    wanted = of(topics={"T": {"b": EIGHT}, "U": {"b": EIGHT}})
    there = of(topics={"T": {"b": EIGHT | {"perm": 4}}})
    changed, new = differences(wanted, there, ["b"], KINDS)
    assert (changed.name, changed.settings) == ("T", ["perm: 4 → 6"])
    assert (new.name, new.before, new.settings[0]) == ("U", None, "readQueueNums: 8")
    assert not list(differences(wanted, there, ["b"], ["groups"]))


def test_settings_go_to_brokers_of_the_same_name_else_to_all_if_they_agree() -> None:
    same = of(groups={"G": {"a": {"retryMaxTimes": 3}, "b": {"retryMaxTimes": 3}}})
    empty = of()
    assert [one.broker for one in differences(same, empty, ["b", "c"], KINDS)] == ["b"]
    assert [one.broker for one in differences(same, empty, ["x", "y"], KINDS)] == ["x", "y"]
    other = of(groups={"G": {"a": {"retryMaxTimes": 3}, "b": {"retryMaxTimes": 4}}})
    with pytest.raises(ConfigurationError, match=r"groups G: its settings differ .*\(x\)"):
        list(differences(other, empty, ["x"], KINDS))
