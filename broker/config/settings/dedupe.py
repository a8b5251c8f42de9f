"""`dedupe`: topics in which a message that was sent twice is stored once.

YAML: a map topic → `{by: UNIQ_KEY, window: 10m}`; `by` is UNIQ_KEY, KEYS or any property.
Text form: `orders=UNIQ_KEY@10m;…`. Source: configuration §2.5.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.config.files.entries import Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.broker.config.files.entries import Tree

RULE = re.compile(r"\s*([%|a-zA-Z0-9_-]+)\s*=\s*([^\s@;=]+)\s*@\s*(\d{1,9})([smh])\s*", re.ASCII)
SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
WINDOW_S_MAX: Final = 86_400
"""The window is read again after each start."""


class DedupeRule(NamedTuple):
    """Two messages to `topic` with the same property `by` within `window_s` are one."""

    topic: str
    by: str
    window_s: int


def parse(text: str) -> tuple[DedupeRule, ...]:
    """The rules of the text form. Raises: ValueError with a sentence."""
    rules = {each.topic: each for part in text.split(";") if part.strip() for each in [rule(part)]}
    return tuple(rules.values())


def rule(text: str) -> DedupeRule:
    """One rule, `topic=property@window`."""
    match = RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text.strip()} is not topic=property@window, such as orders=KEYS@10m")
    window_s = int(match[3]) * SECONDS[match[4]]
    if not 0 < window_s <= WINDOW_S_MAX:
        raise ValueError(f"the window of {match[1]} must be 1s to {WINDOW_S_MAX // 3600}h")
    return DedupeRule(match[1], match[2], window_s)


def normalized(text: str) -> str:
    """The text form in one spelling, checked."""
    return ";".join(f"{each.topic}={each.by}@{each.window_s}s" for each in parse(text))


def from_mapping(tree: Mapping[str, Tree]) -> str:
    """The YAML map as text. Raises: ValueError with a sentence."""
    return ";".join(_from_item(topic, item) for topic, item in tree.items())


def _from_item(topic: str, item: Tree) -> str:
    if not isinstance(item, dict) or set(item) - {"by", "window"} or "window" not in item:
        raise ValueError(f"{topic}: by and window are expected, nothing else")
    by, window = item.get("by", Scalar("UNIQ_KEY", "str")), item["window"]
    if not isinstance(by, Scalar) or not isinstance(window, Scalar):
        raise ValueError(f"{topic}: by and window are texts")
    return f"{topic}={by.text}@{window.text}"
