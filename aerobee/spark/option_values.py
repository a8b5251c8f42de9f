"""The texts of options as values. Pure.

Each parser takes the option's name, for errors, and its text; it raises ConfigurationError, which
says what the option wants.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

from aerobee.config import name_servers
from aerobee.errors import ConfigurationError
from aerobee.message import GROUP_MAX, TOPIC_MAX, check_name
from aerobee.spark.offsets import LARGEST_QUEUE, At, Earliest, Latest, Queue, Since, from_json

__all__ = [
    "Parse",
    "addresses",
    "assignment",
    "boolean",
    "choice",
    "duration_s",
    "group",
    "integer",
    "names",
    "offsets",
    "pattern",
    "size_bytes",
    "text",
    "time_ms",
    "times",
    "topics",
]

Parse: TypeAlias = Callable[[str, str], Any]
"""Option name, text → value."""

TRUE = {"true", "1", "yes", "on"}
FALSE = {"false", "0", "no", "off"}
BYTES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SECONDS = {"": 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
LARGEST = 2**63 - 1


def wrong(name: str, given: str, wanted: str) -> ConfigurationError:
    """The error for an option that was given something else than it wants."""
    return ConfigurationError(f"option {name}: {given[:200]!r} is not {wanted}")


def text(name: str, given: str) -> str:
    """Any text but none."""
    if not given.strip():
        raise wrong(name, given, "a text of at least one character")
    return given.strip()


def boolean(name: str, given: str) -> bool:
    """True or false, in any case."""
    word = given.strip().lower()
    if word not in TRUE | FALSE:
        raise wrong(name, given, "true or false")
    return word in TRUE


def integer(lowest: int, highest: int = LARGEST) -> Parse:
    """A parser of whole numbers in these bounds, both included."""

    def parse(name: str, given: str) -> int:
        word = given.strip()
        if not re.fullmatch(r"-?[0-9]{1,19}", word) or not lowest <= int(word) <= highest:
            upto = "" if highest == LARGEST else f" to {highest}"
            more = " or more" if highest == LARGEST else ""
            raise wrong(name, given, f"a whole number, {lowest}{more}{upto}")
        return int(word)

    return parse


def size_bytes(lowest: int, highest: int) -> Parse:
    """A parser of sizes in bytes; k, m and g (also kb, KiB, …) count in powers of 1024."""

    def parse(name: str, given: str) -> int:
        found = re.fullmatch(r"([0-9]{1,15})\s*([kmg]?)(?:i?b)?", given.strip().lower())
        size = int(found[1]) * BYTES[found[2]] if found else -1
        if not lowest <= size <= highest:
            raise wrong(name, given, f"a size of {lowest} to {highest} bytes, such as 32m")
        return size

    return parse


def duration_s(name: str, given: str) -> float:
    """Seconds of a duration such as 500ms, 30s, 15m, 1h; a plain number is milliseconds."""
    found = re.fullmatch(r"([0-9]{1,12})\s*([a-z]*)", given.strip().lower())
    if not found or found[2] not in SECONDS:
        raise wrong(name, given, "a duration such as 500ms, 30s, 15m or 1h")
    return int(found[1]) * SECONDS[found[2]]


def time_ms(name: str, given: str) -> int:
    """Milliseconds since the epoch, of such a number or of an ISO-8601 time with a zone."""
    word = given.strip()
    if re.fullmatch(r"[0-9]{1,15}", word):
        return int(word)
    try:
        at = datetime.fromisoformat(word)
    except ValueError:
        raise wrong(name, given, "milliseconds since the epoch or an ISO-8601 time") from None
    if at.tzinfo is None:
        raise wrong(name, given, "a time with a zone; add Z for UTC, or an offset such as +08:00")
    return max(0, int(at.timestamp() * 1000))


def choice(*words: str) -> Parse:
    """A parser of one of these words, in any case."""
    by_lower = {word.lower(): word for word in words}

    def parse(name: str, given: str) -> str:
        try:
            return by_lower[given.strip().lower()]
        except KeyError:
            raise wrong(name, given, f"one of {', '.join(words)}") from None

    return parse


def names(name: str, given: str) -> tuple[str, ...]:
    """A comma list, each name once."""
    found = tuple(dict.fromkeys(word.strip() for word in given.split(",") if word.strip()))
    if not found:
        raise wrong(name, given, "a name or a comma list of names")
    return found


def topics(name: str, given: str) -> tuple[str, ...]:
    """A comma list of topics."""
    found = names(name, given)
    for topic in found:
        _check_name(name, "topic", topic, TOPIC_MAX)
    return found


def group(name: str, given: str) -> str:
    """The name of a consumer or producer group."""
    _check_name(name, "group", given.strip(), GROUP_MAX)
    return given.strip()


def _check_name(option: str, kind: str, name: str, longest: int) -> None:
    try:
        check_name(kind, name, longest)
    except ConfigurationError as error:
        raise ConfigurationError(f"option {option}: {error}") from None


def addresses(name: str, given: str) -> tuple[str, ...]:
    """Addresses as `host:port`, several with `;` or `,`."""
    try:
        return name_servers(text(name, given))
    except ConfigurationError as error:
        raise ConfigurationError(f"option {name}: {error}") from None


def pattern(name: str, given: str) -> str:
    """A regular expression for whole topic names."""
    try:
        re.compile(text(name, given))
    except (re.error, OverflowError, RecursionError) as error:
        raise wrong(name, given, f"a regular expression ({error})") from None
    return given.strip()


def assignment(name: str, given: str) -> tuple[Queue, ...]:
    """Queues of {"topic": {"broker": [0, 1]}}, sorted."""
    shape = 'an object such as {"orders": {"broker-a": [0, 1]}}'
    found: set[Queue] = set()
    for topic, brokers in _object(name, given, shape).items():
        _check_name(name, "topic", topic, TOPIC_MAX)
        if not isinstance(brokers, dict):
            raise wrong(name, given, shape)
        for broker, numbers in brokers.items():
            if not isinstance(numbers, list) or not all(map(_is_queue, numbers)):
                raise ConfigurationError(
                    f"option {name}, topic {topic}, broker {broker}: a list of queue numbers is "
                    f"needed, not {numbers!r}"
                )
            found |= {Queue(topic, broker, number) for number in numbers}
    if not found:
        raise wrong(name, given, shape)
    return tuple(sorted(found))


def offsets(name: str, given: str) -> Earliest | Latest | At | str:
    """A position: earliest, latest, JSON; `committed` is left to who knows of the fallback."""
    word = given.strip()
    match word.lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case "committed":
            return "committed"
    if not word.startswith("{"):
        wanted = 'earliest, latest, committed or {"topic": {"broker": {"0": 23}}}'
        raise wrong(name, given, wanted)
    return At(from_json(word, f"option {name}", lowest=-2))


def times(name: str, given: str) -> Since:
    """Times of {"topic": ms or ISO-8601} or, by queue, {"topic": {"broker": {"0": ms}}}."""
    shape = 'an object such as {"orders": 1700000000000} or {"orders": {"broker-a": {"0": 17}}}'
    by_topic: dict[str, int] = {}
    by_queue: dict[Queue, int] = {}
    for topic, value in _object(name, given, shape).items():
        if isinstance(value, dict):
            nested = json.dumps({topic: value})
            by_queue |= from_json(nested, f"option {name}")
        elif isinstance(value, str) or _is_count(value):
            by_topic[topic] = time_ms(f"{name}, topic {topic}", str(value))
        else:
            raise wrong(name, given, shape)
    if not by_topic and not by_queue:
        raise wrong(name, given, shape)
    return Since(topics=by_topic, queues=by_queue)


def _object(name: str, given: str, shape: str) -> dict[str, Any]:
    try:
        found = json.loads(given, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise wrong(name, given, f"{shape} ({error})") from None
    if not isinstance(found, dict):
        raise wrong(name, given, shape)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a name that stands twice, one would be left out without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands twice")
    return found


def _is_queue(value: object) -> bool:
    return isinstance(value, int) and _is_count(value) and value <= LARGEST_QUEUE


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
