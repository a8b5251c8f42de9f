"""Attributes of topics and groups: their declarations, and edits of those of one.

An edit line is `+key=value,+key=value,-key`. A new topic takes only additions. Two values are
declared so that they can be refused as unsupported, not as unknown. Source: semantics §4.4
(TopicAttributes, AttributeUtil).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.errors import AttributesIllegal
from aerobee.remoting.wire.bodies.group import PRIORITY_FACTOR
from aerobee.remoting.wire.bodies.topic import MAX_BYTES, MAX_RATE, MESSAGE_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

QUEUE_TYPE: Final = "queue.type"
CLEANUP_POLICY: Final = "cleanup.policy"
RESERVE_TIME: Final = "reserve.time"
LIMIT_MAX: Final = 1 << 40
"""The largest limit of messages, or of bytes, per second."""
ALWAYS: Final = 100
NUMBER: Final = re.compile("[0-9]{1,13}")
SIGNED: Final = re.compile("[+-]?[0-9]{1,18}", re.ASCII)


class Attribute(NamedTuple):
    """An attribute: its legal values, whether a topic may change it, unsupported values."""

    values: frozenset[str]
    changeable: bool
    unserved: frozenset[str] = frozenset()
    most: int = 0
    """The largest value of an attribute that is a number; 0: it is one of `values`."""
    zero_removes: bool = True


ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    QUEUE_TYPE: Attribute(frozenset({"SimpleCQ", "BatchCQ"}), False, frozenset({"BatchCQ"})),
    CLEANUP_POLICY: Attribute(
        frozenset({"DELETE", "COMPACTION"}), False, frozenset({"COMPACTION"})
    ),
    MESSAGE_TYPE: Attribute(
        frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED"}),
        True,
    ),
    MAX_RATE: Attribute(frozenset(), True, most=LIMIT_MAX),
    MAX_BYTES: Attribute(frozenset(), True, most=LIMIT_MAX),
}
GROUP_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    MAX_RATE: ATTRIBUTES[MAX_RATE],
    MAX_BYTES: ATTRIBUTES[MAX_BYTES],
    PRIORITY_FACTOR: Attribute(frozenset(), True, most=ALWAYS, zero_removes=False),
}
"""The attributes of a group that can be edited; the limits are on what it receives."""


def limit_of(attributes: Mapping[str, str], key: str) -> int:
    """The limit that an attribute sets; 0: none, or a text that is no number."""
    text = attributes.get(key)
    return int(text) if text is not None and NUMBER.fullmatch(text) else 0


def factor_of(attributes: Mapping[str, str]) -> int:
    """How many of a hundred pops of a group read in the order of priorities: all of them, unless
    its attribute says otherwise. The attribute that another broker stored may be any text.
    """
    text = attributes.get(PRIORITY_FACTOR)
    return int(text) if text is not None and SIGNED.fullmatch(text) else ALWAYS


def parse_edits(line: str | None) -> dict[str, str]:
    """An edit line → signed key → value, `""` for removals. Raises: AttributesIllegal."""
    edits: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in (line or "").split(","))):
        key, equals, value = item.partition("=")
        if bool(equals) != (key[:1] == "+") or (not equals and key[:1] != "-") or len(key) < 2:
            raise AttributesIllegal(f"attribute edit [{item}] is neither +key=value nor -key")
        if any(other[1:] == key[1:] for other in edits):
            raise AttributesIllegal(f"attribute [{key[1:]}] stands twice in the edit")
        edits[key] = value
    return edits


def signed_edits(attributes: Mapping[str, str]) -> dict[str, str]:
    """Parse a table of signed keys. Raises: AttributesIllegal."""
    return parse_edits(
        ",".join(f"{key}={value}" if key[:1] == "+" else key for key, value in attributes.items())
    )


def edited(
    current: Mapping[str, str],
    edits: Mapping[str, str],
    *,
    creating: bool,
    declared: Mapping[str, Attribute] = ATTRIBUTES,
) -> dict[str, str]:
    """The attributes after `edits`; `current` is unchanged. Raises: AttributesIllegal."""
    result = dict(current)
    for signed, value in edits.items():
        key = signed[1:]
        if signed[0] == "-":
            check_removal(key, current, creating, declared)
            del result[key]
        else:
            check_addition(key, value, creating, declared)
            result[key] = value
            if declared[key].most and declared[key].zero_removes and not int(value):
                del result[key]
    return result


def edited_of_group(current: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """The attributes of a group after an update: signed keys edit them, as those of a topic; others
    are stored as they come, in place of all; none leaves them. Raises: AttributesIllegal.
    """
    edits = {key: value for key, value in changes.items() if key[:1] in ("+", "-")}
    plain = {key: value for key, value in changes.items() if key not in edits}
    return edited(plain or current, signed_edits(edits), creating=False, declared=GROUP_ATTRIBUTES)


def check_addition(key: str, value: str, creating: bool, declared: Mapping[str, Attribute]) -> None:
    """Check that a value is known, may be changed and is supported. Raises: AttributesIllegal."""
    attribute = known(key, declared)
    if not creating and not attribute.changeable:
        raise AttributesIllegal(f"attribute [{key}] cannot be changed")
    if attribute.most:
        if not NUMBER.fullmatch(value) or int(value) > attribute.most:
            raise AttributesIllegal(
                f"attribute [{key}] cannot be [{value}], only a number from 0 to {attribute.most}"
            )
        return
    if value not in attribute.values:
        choice = ", ".join(sorted(attribute.values))
        raise AttributesIllegal(f"attribute [{key}] cannot be [{value}], only one of {choice}")
    if value in attribute.unserved:
        raise AttributesIllegal(f"{key}={value} is not supported by this broker")


def check_removal(
    key: str, current: Mapping[str, str], creating: bool, declared: Mapping[str, Attribute]
) -> None:
    """Check that a key exists and may be removed. Raises: AttributesIllegal."""
    if creating:
        raise AttributesIllegal(f"a new topic has no attribute [{key}] to remove")
    if not known(key, declared).changeable:
        raise AttributesIllegal(f"attribute [{key}] cannot be changed")
    if key not in current:
        raise AttributesIllegal(f"there is no attribute [{key}] to remove")


def known(key: str, declared: Mapping[str, Attribute]) -> Attribute:
    """The attribute of that key.

    Raises: AttributesIllegal for a key that does not exist or that needs tiered storage.
    """
    if key == RESERVE_TIME:
        raise AttributesIllegal(f"{key} is not supported by this broker: it has no tiered store")
    attribute = declared.get(key)
    if attribute is None:
        raise AttributesIllegal(f"attribute [{key}] does not exist")
    return attribute
