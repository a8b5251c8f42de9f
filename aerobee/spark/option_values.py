"""Parses the texts of options to values. Pure.

`values_of` reads the fields of a class of `options`; a value whose rules a type with bounds cannot
express is parsed by a function that takes the option's name, for errors, and its text. Errors are
ConfigurationErrors that name the option and what it expects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from types import NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta, Struct

from aerobee.client.message import GROUP_MAX, TOPIC_MAX, check_name
from aerobee.client.settings.client import name_servers
from aerobee.errors import ConfigurationError
from aerobee.spark.access import Secret
from aerobee.spark.offsets import (
    EARLIEST,
    LARGEST_QUEUE,
    LATEST,
    CommittedPosition,
    EarliestPosition,
    ExplicitPosition,
    LatestPosition,
    Queue,
    TimePosition,
    from_json,
)
from aerobee.whole_number import epoch_ms

Parse: TypeAlias = Callable[[str, str], Any]
"""Option name, text → value."""

BYTES: Final = "bytes"
SECONDS: Final = "seconds"
STREAM: Final = "stream"
MADE: Final = "made"
"""Marks a field that is derived from others."""

SWITCH: Final = {"yes": "true", "on": "true", "no": "false", "off": "false"}
"""Words that Spark's users write and msgspec does not know."""
UNITS: Final[dict[str, dict[str, float]]] = {
    BYTES: {
        f"{unit}{ending}": factor
        for unit, factor in {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}.items()
        for ending in ("", "b", "ib")
    },
    SECONDS: {"": 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0},
}
LARGEST: Final = 2**63 - 1
BROKERS_MAX: Final = 10_000

PUSH_FILTERS: Final = "pushfilters"
NOT_OURS: Final = frozenset({"path", "checkpointlocation", "queryname", "serialization.format"})
"""Options that Spark itself adds to those of a table or a stream."""


# ── Fields ──


class Options(Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of options: plain values for the tasks. Times and sizes have a unit in the name."""

    aliases: ClassVar[dict[str, str]] = {}
    """Further names of options."""


class OptionDeclaration(NamedTuple):
    """One option, as its field declares it."""

    field: str
    names: tuple[str, ...]
    """The name of the option first, then its aliases."""
    hint: Any
    default: Any

    @property
    def stream_only(self) -> bool:
        """Whether a batch ignores the option."""
        return STREAM in get_args(self.hint)


@cache
def declared(cls: type[Options]) -> tuple[OptionDeclaration, ...]:
    """The options of a class, in the order of its fields."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        OptionDeclaration(
            field.name,
            (
                field.encode_name,
                *(alias for alias, name in cls.aliases.items() if name == field.encode_name),
            ),
            hints[field.name],
            None if field.default is msgspec.NODEFAULT else field.default,
        )
        for field in msgspec.structs.fields(cls)
        if MADE not in get_args(hints[field.name])
    )


def values_of(cls: type[Options], raw: Mapping[str, str]) -> dict[str, Any]:
    """Parse texts to the values of a class's fields. Raises: ConfigurationError."""
    known = {name.lower(): option for option in declared(cls) for name in option.names}
    fields: dict[str, Any] = {}
    values: dict[str, str] = {}
    for key, written in raw.items():
        option = known.get(key.lower())
        if option is None:
            _refuse(key, known)
            continue
        name, *aliases = option.names
        if values.setdefault(name, written) != written:
            raise ConfigurationError(f"option {name}: given twice, also as {' or '.join(aliases)}")
        fields[option.field] = value(name, written, option.hint)
    return fields


def _refuse(key: str, known: Mapping[str, OptionDeclaration]) -> None:
    """Refuse a name that is not an option here, unless Spark itself has added it."""
    word = key.lower()
    if word == PUSH_FILTERS:
        raise ConfigurationError(
            "option pushFilters: there is none, because Spark keeps the filters of one query for "
            "the next ones of the same DataFrame or view, which gives wrong rows. Say by options "
            "what is read: subscribe, assign, startingTimestamp, offsets, subExpression"
        )
    if word in NOT_OURS:
        return
    hint = ""
    if close := get_close_matches(word, known, n=1, cutoff=0.6):
        spelled = {name.lower(): name for name in known[close[0]].names}
        hint = f"; did you mean {spelled[close[0]]}?"
    raise ConfigurationError(f"option {key}: there is no such option here{hint}")


def value(name: str, raw: str, hint: Any) -> Any:
    """Parse a text for a field of that type. Raises: ConfigurationError."""
    kind, *marks = _parts(hint)
    if read := next((mark for mark in marks if callable(mark)), None):
        return read(name, raw)
    unit = next((UNITS[mark] for mark in marks if mark in (BYTES, SECONDS)), None)
    try:
        return msgspec.convert(_plain(raw.strip(), kind, unit), hint, strict=False)
    except (ValueError, msgspec.ValidationError):
        bounds = next((mark for mark in marks if isinstance(mark, Meta)), Meta())
        raise wrong(name, raw, _wanted(kind, unit, bounds)) from None


def _parts(hint: Any) -> tuple[Any, ...]:
    """The type and all marks of a type that may be annotated and optional."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        return (*_parts(inner), *marks)
    if NoneType in get_args(hint):
        return _parts(get_args(hint)[0])
    return (hint,)


def _plain(word: str, kind: Any, unit: Mapping[str, float] | None) -> Any:
    """The input of msgspec: a number, a word of the type, or the text as it is."""
    if unit is not None:
        match = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", word.lower())
        if match is None or match[2] not in unit:
            raise ValueError(word)
        return int(match[1]) * unit[match[2]]
    if kind is bool:
        return SWITCH.get(word.lower(), word)
    if get_origin(kind) is Literal:
        return {str(literal).lower(): literal for literal in get_args(kind)}.get(word.lower(), word)
    if not re.fullmatch(r"-?[0-9]{1,19}", word) or int(word) > LARGEST:
        raise ValueError(word)
    return int(word)


def _wanted(kind: Any, unit: Mapping[str, float] | None, bounds: Meta) -> str:
    """A description of what a field of that type accepts."""
    if unit is UNITS[BYTES]:
        return f"a size of {bounds.ge} to {bounds.le} bytes, such as 32m"
    if unit is UNITS[SECONDS]:
        return "a duration such as 500ms, 30s, 15m or 1h"
    if kind is bool:
        return "true or false"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return f"a whole number, {bounds.ge} " + (f"to {bounds.le}" if bounds.le else "or more")


def wrong(name: str, raw: str, wanted: str) -> ConfigurationError:
    """The error for an option with an invalid text."""
    return ConfigurationError(f"option {name}: {raw[:200]!r} is not {wanted}")


# ── Parsers of special forms ──


def text(name: str, raw: str) -> str:
    """Any non-empty text."""
    if not raw.strip():
        raise wrong(name, raw, "a text of at least one character")
    return raw.strip()


def secret(name: str, raw: str) -> Secret:
    """Any non-empty text, as a value that is not shown."""
    return Secret(text(name, raw))


def time_ms(name: str, raw: str) -> int:
    """Milliseconds since the epoch, from a number or an ISO-8601 time with a zone."""
    word = raw.strip()
    if re.fullmatch(r"[0-9]{1,15}", word):
        try:
            return epoch_ms(word) or 0
        except ValueError as error:
            raise ConfigurationError(f"option {name}: {word}: {error}") from None
    try:
        at = datetime.fromisoformat(word)
    except ValueError:
        raise wrong(name, raw, "milliseconds since the epoch or an ISO-8601 time") from None
    if at.tzinfo is None:
        raise wrong(name, raw, "a time with a zone; add Z for UTC, or an offset such as +08:00")
    return max(0, int(at.timestamp() * 1000))


def names(name: str, raw: str) -> tuple[str, ...]:
    """Names separated by commas, without duplicates."""
    words = tuple(dict.fromkeys(word.strip() for word in raw.split(",") if word.strip()))
    if not words:
        raise wrong(name, raw, "a name or a comma list of names")
    return words


def brokers(name: str, raw: str) -> tuple[str, ...] | int:
    """Names of brokers separated by commas, or how many."""
    word = raw.strip()
    if not word.isascii() or not word.isdigit():
        return names(name, raw)
    if not 1 <= int(word) <= BROKERS_MAX:
        raise wrong(name, raw, f"a number from 1 to {BROKERS_MAX}, or a comma list of names")
    return int(word)


def topics(name: str, raw: str) -> tuple[str, ...]:
    """Topics separated by commas."""
    named = names(name, raw)
    for topic in named:
        _check_name(name, "topic", topic, TOPIC_MAX)
    return named


def topic(name: str, raw: str) -> str:
    """One topic."""
    topic, *others = topics(name, raw)
    if others:
        raise ConfigurationError(f"option {name}: rows go to one topic; use the column for more")
    return topic


def group(name: str, raw: str) -> str:
    """The name of a consumer or producer group."""
    _check_name(name, "group", raw.strip(), GROUP_MAX)
    return raw.strip()


def namespace(name: str, raw: str) -> str:
    """A namespace of 4.x clients."""
    word = raw.strip()
    _check_name(name, "namespace", word, TOPIC_MAX)
    if "%" in word:
        raise wrong(name, raw, "a name without %, which ends it within the names of topics")
    return word


def _check_name(option: str, kind: str, name: str, longest: int) -> None:
    try:
        check_name(kind, name, longest)
    except ConfigurationError as error:
        raise ConfigurationError(f"option {option}: {error}") from None


def addresses(name: str, raw: str) -> tuple[str, ...]:
    """Addresses as `host:port`, several with `;` or `,`."""
    try:
        return name_servers(text(name, raw))
    except ConfigurationError as error:
        raise ConfigurationError(f"option {name}: {error}") from None


def pattern(name: str, raw: str) -> str:
    """A regular expression for whole topic names."""
    try:
        re.compile(text(name, raw))
    except (re.error, OverflowError, RecursionError) as error:
        raise wrong(name, raw, f"a regular expression ({error})") from None
    return raw.strip()


def assignment(name: str, raw: str) -> tuple[Queue, ...]:
    """Queues of {"topic": {"broker": [0, 1]}}, sorted."""
    shape = 'an object such as {"orders": {"broker-a": [0, 1]}}'
    queues: set[Queue] = set()
    for topic, brokers in _object(name, raw, shape).items():
        _check_name(name, "topic", topic, TOPIC_MAX)
        if not isinstance(brokers, dict):
            raise wrong(name, raw, shape)
        for broker, numbers in brokers.items():
            if not isinstance(numbers, list) or not all(map(_is_queue, numbers)):
                raise ConfigurationError(
                    f"option {name}, topic {topic}, broker {broker}: a list of queue numbers is "
                    f"needed, not {numbers!r}"
                )
            queues |= {Queue(topic, broker, number) for number in numbers}
    if not queues:
        raise wrong(name, raw, shape)
    return tuple(sorted(queues))


def offsets(
    name: str, raw: str
) -> EarliestPosition | LatestPosition | CommittedPosition | ExplicitPosition:
    """A position: earliest, latest, committed or JSON."""
    word = raw.strip()
    match word.lower():
        case "earliest":
            return EarliestPosition()
        case "latest":
            return LatestPosition()
        case "committed":
            return CommittedPosition()
    if not word.startswith("{"):
        wanted = 'earliest, latest, committed or {"topic": {"broker": {"0": 23}}}'
        raise wrong(name, raw, wanted)
    words: dict[object, int] = {"earliest": EARLIEST, "latest": LATEST} | {
        mark: mark for mark in (EARLIEST, LATEST)
    }
    shape = 'an object such as {"orders": {"broker-a": {"0": 23}}} or {"orders": "earliest"}'
    by_topic: dict[str, int] = {}
    by_queue: dict[Queue, int] = {}
    for topic, value in _object(name, word, shape).items():
        if isinstance(value, str | int) and value in words:
            by_topic[topic] = words[value]
        else:
            by_queue |= from_json(json.dumps({topic: value}), f"option {name}", lowest=-2)
    return ExplicitPosition(dict(sorted(by_queue.items())), by_topic)


def times(name: str, raw: str) -> TimePosition:
    """Times of {"topic": ms or ISO-8601} or, by queue, {"topic": {"broker": {"0": ms}}}."""
    shape = 'an object such as {"orders": 1700000000000} or {"orders": {"broker-a": {"0": 17}}}'
    by_topic: dict[str, int] = {}
    by_queue: dict[Queue, int] = {}
    for topic, value in _object(name, raw, shape).items():
        if isinstance(value, dict):
            nested = json.dumps({topic: value})
            for queue, at in from_json(nested, f"option {name}").items():
                by_queue[queue] = time_ms(f"{name}, {queue}", str(at))
        elif isinstance(value, str) or _is_count(value):
            by_topic[topic] = time_ms(f"{name}, topic {topic}", str(value))
        else:
            raise wrong(name, raw, shape)
    if not by_topic and not by_queue:
        raise wrong(name, raw, shape)
    return TimePosition(topics=by_topic, queues=by_queue)


def _object(name: str, raw: str, shape: str) -> dict[str, Any]:
    try:
        table = json.loads(raw, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise wrong(name, raw, f"{shape} ({error})") from None
    if not isinstance(table, dict):
        raise wrong(name, raw, shape)
    return table


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys, of which one would be dropped silently."""
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands twice")
    return table


def _is_queue(value: object) -> bool:
    return isinstance(value, int) and _is_count(value) and value <= LARGEST_QUEUE


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
