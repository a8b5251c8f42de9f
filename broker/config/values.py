"""Parses the text of a value into the value of its setting, or fails with a clear message.

All functions raise ValueError with that message. Source: configuration §2.2, §2.3.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aerobee.broker.config.files.entries import Entry, Form, Scalar, Tree
from aerobee.broker.config.settings import advertised, dedupe, failover, replication
from aerobee.broker.config.settings import auth as auth_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aerobee.broker.config.schema import Key, Value

UNITS = {
    "ms": ("time", 1),
    "s": ("time", 1_000),
    "m": ("time", 60_000),
    "h": ("time", 3_600_000),
    "d": ("time", 86_400_000),
    "B": ("size", 1),
    **dict.fromkeys(("KiB", "K"), ("size", 1 << 10)),
    **dict.fromkeys(("MiB", "M"), ("size", 1 << 20)),
    **dict.fromkeys(("GiB", "G"), ("size", 1 << 30)),
    "%": ("share", 1),
}
YAML_TRUE = frozenset({"true", "yes", "on"})
NUMBER = re.compile(r"([+-]?\d[\d_]*)\s*([A-Za-z%]*)", re.ASCII)
JAVA_NUMBER = re.compile(r"[+-]?\d+", re.ASCII)
ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:;/]+):(\d{1,5})", re.ASCII)
DELAY = re.compile(r"\d{1,9}[smhd]", re.ASCII)
NUMBER_CHARS_MAX = 20
"""Longer ones are too large for Java, which then keeps its default, and may be for int() here."""
FREE_SPACE_MIN = 1 << 20
BROKERS_MAX = 64
AUTO = "auto"
"""One broker per core."""
NUMBERS = frozenset({"brokers", "hours_of_day"})
"""Kinds of texts that YAML resolves to numbers."""


class FreeSpace(NamedTuple):
    """A disk limit given as bytes that must stay free, not as a used share."""

    size_bytes: int


def read(key: Key, entry: Entry) -> Value | FreeSpace:
    """The checked value of `key` in `entry`."""
    text = written_text(key, entry)
    value = from_text(key, text, java=entry.form is Form.PROPERTIES)
    if isinstance(value, FreeSpace):
        return value
    choices = key.choices
    if choices and value not in choices:
        raise ValueError(f"{text} is none of {key.range}")
    try:
        checked: Value = msgspec.convert(value, key.hint)
    except msgspec.ValidationError as error:
        if key.type is str:
            raise ValueError(f"{text!r} has characters that this name may not have") from error
        raise ValueError(f"{text} is out of range ({key.range})") from error
    return checked


def written_text(key: Key, entry: Entry) -> str:
    """The value of an entry as one text; the items of a list are joined."""
    value = entry.value
    if isinstance(value, Scalar):
        return scalar_text(key, value)
    if isinstance(value, dict) and key.declaration.kind == "dedupe":
        return dedupe.from_mapping(value)
    separator = key.declaration.separator
    if not separator or isinstance(value, dict):
        raise ValueError(f"one value is expected ({key.range})")
    return separator.join(item_text(key, item) for item in value)


def item_text(key: Key, item: Tree) -> str:
    """One item of a list as text."""
    if isinstance(item, Scalar):
        return scalar_text(key, item)
    if isinstance(item, dict) and key.declaration.kind == "advertised":
        return advertised.from_mapping(item)
    raise ValueError("a list holds plain values")


def scalar_text(key: Key, scalar: Scalar) -> str:
    """The text of a scalar of a type that suits the setting: names must be strings."""
    text, kind = scalar
    if key.type is bool and kind == "bool":
        return "true" if text.lower() in YAML_TRUE else "false"
    if kind == "str" or (kind == "int" and (key.type is int or key.declaration.kind in NUMBERS)):
        return text
    if kind == "null":
        raise ValueError("a list holds no empty item")
    if key.declaration.kind in NUMBERS:
        return text  # which is refused with what is expected; quoted it would be, too
    if key.type is str or issubclass(key.type, StrEnum):
        raise ValueError(f'a text is expected; quote it: "{text}"')
    raise ValueError(f"{text} is not what is expected here ({key.range})")


def from_text(key: Key, text: str, *, java: bool) -> Value | FreeSpace:
    """The value before its range is checked. `java`: no units, and enums by their exact name."""
    if key.type is bool:
        return boolean(text.strip())
    if key.type is int:
        return whole(text.strip()) if java else number(key, text.strip())
    if issubclass(key.type, StrEnum):
        return text.strip() if java else member_text(key, text.strip())
    if key.declaration.kind == "hours_of_day" and not text.strip():
        raise ValueError("nothing is not an hour (00 to 23)")
    check = KINDS.get(key.declaration.kind)
    needed = key.declaration.kind in NUMBERS
    return check(text.strip()) if check and (needed or text.strip()) else text.strip()


def member_text(key: Key, text: str) -> str:
    """The value of an enum in its own case; other texts as they are."""
    members = {str(choice).lower(): str(choice) for choice in key.choices}
    return members.get(text.lower(), text)


def boolean(text: str) -> bool:
    """Parse `true` or `false`, case-insensitive."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text or 'nothing'} is neither true nor false")
    return text.lower() == "true"


def whole(text: str) -> int:
    """A decimal number without a unit, as Java reads it."""
    if not JAVA_NUMBER.fullmatch(text) or len(text) > NUMBER_CHARS_MAX:
        raise ValueError(f"{text or 'nothing'} is not a whole number (units are for YAML)")
    return int(text)


def number(key: Key, text: str) -> int | FreeSpace:
    """Parse a number in the unit of the key; other units of the same kind are converted."""
    match = NUMBER.fullmatch(text)
    if match is None or len(text) > 30:
        raise ValueError(f"{text or 'nothing'} is not a whole number{unit_hint(key)}")
    count, unit = int(match[1]), match[2]
    if len(match[1].lstrip("+-")) > 1 and match[1].lstrip("+-")[0] == "0":
        raise ValueError(f"{text} begins with 0; write the decimal number without it")
    if not unit:
        return count
    kind, factor = UNITS.get(unit, ("", 0))
    if kind == "size" and key.declaration.unit == "%" and key.declaration.free:
        return free_space(text, count * factor)
    own_kind, own_factor = UNITS.get(key.declaration.unit, ("no unit", 1))
    if kind != own_kind:
        raise ValueError(f"{text} has the wrong unit{unit_hint(key)}")
    if count * factor % own_factor:
        raise ValueError(f"{text} is no whole number of {key.declaration.unit}")
    return count * factor // own_factor


def unit_hint(key: Key) -> str:
    """The units that the key accepts, as the end of a sentence."""
    if not key.declaration.unit:
        return " (a bare number is expected)"
    kind = UNITS[key.declaration.unit][0]
    units = ", ".join(unit for unit, (of, _) in UNITS.items() if of == kind)
    return f" (a bare number is {key.declaration.unit}; units: {units})"


def free_space(text: str, size_bytes: int) -> FreeSpace:
    """A disk limit as the space to keep free."""
    if size_bytes < FREE_SPACE_MIN:
        raise ValueError(f"{text} is too little space to keep free (at least 1 MiB)")
    return FreeSpace(size_bytes)


def hours_of_day(text: str) -> str:
    """Check hours and write them as two digits each, joined by `;`."""
    hours = [hour.strip() for hour in text.split(";") if hour.strip()]
    for hour in hours:
        if not re.fullmatch(r"\d{1,2}", hour, re.ASCII) or int(hour) > 23:
            raise ValueError(f"{hour} is not an hour (00 to 23)")
    return ";".join(f"{int(hour):02}" for hour in hours)


def delays(text: str) -> str:
    """Check delay levels, each a number and one of s, m, h, d."""
    for delay in text.split():
        if not DELAY.fullmatch(delay):
            raise ValueError(f"{delay} is not a delay, such as 10s, 5m, 2h, 1d")
    return " ".join(text.split())


def addresses(text: str) -> str:
    """Check `host:port` pairs, and join them by `;`."""
    pairs = [pair.strip() for pair in text.split(";") if pair.strip()]
    for pair in pairs:
        match = ADDRESS.fullmatch(pair)
        if match is None or not 0 < int(match[1]) < 65_536:
            raise ValueError(f"{pair} is not host:port")
    return ";".join(pairs)


def address(text: str) -> str:
    """Check one `host:port`, or nothing."""
    if ";" in text:
        raise ValueError(f"{text} is more than one address")
    return addresses(text)


def brokers(text: str) -> str:
    """Check a number of brokers."""
    count = text.lower()
    number = int(count) if re.fullmatch(r"[1-9]\d?", count, re.ASCII) else 0
    if count != AUTO and not 0 < number <= BROKERS_MAX:
        shown = text or "nothing"
        raise ValueError(f"{shown} is no number of brokers: 1 to {BROKERS_MAX}, or {AUTO}")
    return count


def path(text: str) -> str:
    """The path with `~` as a plain name, as in RocketMQ, so that no reader expands it."""
    return f"./{text}" if text.startswith("~") else text


KINDS: Mapping[str, Callable[[str], str]] = {
    "hours_of_day": hours_of_day,
    "delays": delays,
    "address": address,
    "addresses": addresses,
    "brokers": brokers,
    "path": path,
    "advertised": advertised.normalized,
    "dedupe": dedupe.normalized,
    "etcd_endpoints": failover.endpoints,
    "failover_members": failover.members,
    "peers": replication.peers,
    "request_codes": auth_config.request_codes,
    "session": auth_config.session,
    "user": auth_config.user,
}
"""Kind of a text setting → the function that checks and normalises it."""


def rocketmq_takes(key: Key, text: str) -> str:
    """The value that a RocketMQ broker silently reads from a text that is refused here."""
    if key.type is bool:
        return "false"
    if key.type is int and JAVA_NUMBER.fullmatch(text) and len(text) <= NUMBER_CHARS_MAX:
        count = int(text)
        low, high = key.declaration.ge, key.declaration.le
        return str(min(max(count, low), high) if key.declaration.clamp and low and high else count)
    if key.type is str:
        return text.strip()
    return f"its default {text_of(key.default)}"


def text_of(value: Value) -> str:
    """The value as text, as RocketMQ writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
