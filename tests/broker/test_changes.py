"""What the audit log says of changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.broker.changes import CHARS, change, changes_of
from aerobee.remoting.wire.bodies.auth import UserInfo
from aerobee.remoting.wire.bodies.topic import TopicConfig

TOPIC = TopicConfig(topic_name="orders", attributes={"+a": "x"})


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (TOPIC, TOPIC, ""),
        (None, None, ""),
        (
            TopicConfig(topic_name="orders"),
            TopicConfig(topic_name="orders", perm=4, order=True),
            "orders: order false -> true, perm 6 -> 4",
        ),
        ({"a": {"type": "X"}}, {"a": {"type": "Y"}}, 'orders: a.type "X" -> "Y"'),
        ({"a": {}}, {"a": {"k": 1}}, "orders: a {} -> -, a.k - -> 1"),
        (None, {"b": 2, "a": "1"}, 'orders created: a "1", b 2'),
        ({"a": "1"}, None, 'orders deleted: a "1"'),
        ({"a": None}, {"a": "4"}, 'orders: a - -> "4"'),
        ({"a": "x"}, {"a": 'y", b 1 -> 2'}, 'orders: a "x" -> "y\\", b 1 -> 2"'),
        ({}, {'x 1 -> 2, "y': 3}, 'orders: "x 1 -> 2, \\"y" - -> 3'),
    ],
)
def test_old_and_new_of_what_differs(before: Any, after: Any, said: str) -> None:
    assert change("orders", before, after) == said


def test_that_a_secret_has_changed_is_said_and_not_what_it_is() -> None:
    before = UserInfo(username="u", password="one", user_type="Normal")
    after = UserInfo(username="u", password="two", user_type="Super")
    assert change("u", before, after) == 'u: password hidden, userType "Normal" -> "Super"'
    assert change("g", {"s": {"secretKey": "one"}}, {}) == "g: s.secretKey hidden"


def test_a_right_on_a_topic_that_is_named_like_a_secret_is_told() -> None:
    resource, right = "Custom/Topic:password-resets", "Allow Pub"
    said = change("alice", {}, {resource: right}, hides=False)
    assert said == f'alice: {resource} - -> "{right}"'
    assert change("alice", {resource: right}, {}, hides=False).endswith(f'"{right}" -> -')
    assert change("alice", {}, {resource: right}).endswith("hidden")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=30)
@given(st.text(), st.dictionaries(st.text(), VALUES), st.dictionaries(st.text(), VALUES))
def test_whatever_changes_the_text_is_short_and_without_control_characters(
    name: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    for said in (
        change(name, before, after),
        change(name, None, after),
        changes_of([(name, before, None)] * 100),
    ):
        assert len(said) <= 2 * CHARS
        assert "\n" not in said
        assert "\x1b" not in said


def test_of_many_changes_those_without_room_are_counted_and_not_looked_at() -> None:
    wide = {f"f{n:04}": 1 for n in range(10_000)}
    assert change("g", {}, wide).endswith("…")
    things = [(f"topic-{n}", {"perm": 6}, {"perm": 4}) for n in range(1_000)]
    said = changes_of(things)
    first, *_, last = said.split("; ")
    assert first == "topic-0: perm 6 -> 4"
    assert last == f"and {1_000 - said.count('perm')} more"
