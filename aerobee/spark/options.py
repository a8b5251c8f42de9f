"""The options of the data sources: what `load()` and `save()` make of them.

A mapping of texts (Spark gives the names in lower case) → ReadOptions, WriteOptions, StoreOptions,
LagOptions. Everything wrong is refused here, before anything is asked of a broker.
`python -m aerobee.spark.options` renews the tables in docs/spark/options.md.
"""

from __future__ import annotations

import os
import re
import sys
import zlib
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from aerobee.errors import ConfigurationError
from aerobee.spark.offsets import (
    EARLIEST,
    LATEST,
    At,
    Committed,
    Earliest,
    Latest,
    Position,
    Queue,
    Since,
)
from aerobee.spark.option_table import TABLE, Option
from aerobee.spark.option_values import addresses

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "LagOptions",
    "Option",
    "ReadOptions",
    "StoreOptions",
    "WriteOptions",
    "lag_options",
    "read_options",
    "reference",
    "store_options",
    "write_options",
]

WITHOUT: Final = ("accessKey", "secretKey", "credentialsFile", "tls", "tlsCaFile")
"""Known only to be refused: silently ignored, they would look like safety."""
PUSH_FILTERS: Final = "pushfilters"
NOT_OURS: Final = frozenset({"path", "checkpointlocation", "queryname", "serialization.format"})
"""What Spark itself puts among the options of a table or a stream."""
ENDINGS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read. Times and sizes have their unit in the name; all fields are plain values."""

    name_servers: tuple[str, ...]
    subscribe: tuple[str, ...] | None
    subscribe_pattern: str | None
    assign: tuple[Queue, ...] | None
    group: str
    group_given: bool
    sub_expression: str
    expression_type: Literal["TAG", "SQL92"]
    starting: Position
    ending: Position
    fallback_offsets: Literal["earliest", "latest"]
    commit_offsets: bool
    state_location: str | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    max_bytes_per_trigger: int | None
    min_partitions: int | None
    max_records_per_partition: int
    fail_on_data_loss: bool
    columns: str | None
    """As given; `columns.chosen` reads it."""
    schema_preset: Literal["aerobee", "rocketmq-spark", "kafka"]
    decompress: bool
    batch_rows: int
    batch_bytes: int
    pull_batch_size: int
    pull_timeout_ms: int
    pull_window: int
    read_ahead_bytes: int
    read_from: Literal["master", "slave", "any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How to write."""

    name_servers: tuple[str, ...]
    topic: str | None
    tags: str | None
    order_by: str | None
    producer_group: str
    batch_bytes: int
    batch_rows: int
    window: int
    send_timeout_ms: int
    retries: int
    delivery_timeout_ms: int
    compress: Literal["zlib", "zstd", "lz4"] | None
    compress_over: int
    on_error: Literal["fail"]
    dedupe: Literal["none", "fence"]
    sink_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Which part of a store directory to read, and as what. Timestamps are ms since the epoch."""

    path: str
    topics: tuple[str, ...]
    """Empty for all."""
    exclude_system: bool
    starting_physical_offset: int | None
    ending_physical_offset: int | None
    starting_timestamp: int | None
    ending_timestamp: int | None
    sealed_only: bool
    split_bytes: int
    via: Literal["commitlog", "consumequeue"]
    verify_crc: bool
    on_corrupt: Literal["drop", "fail"]
    mode: Literal["read", "audit", "segments"]
    broker_name: str | None
    columns: str | None
    """As given; `columns.chosen` reads it."""
    batch_rows: int
    decompress: bool
    fail_on_data_loss: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LagOptions:
    """Whose progress to look at; empty for all."""

    name_servers: tuple[str, ...]
    groups: tuple[str, ...]
    topics: tuple[str, ...]


# ── Reading ──


def read_options(raw: Mapping[str, str], stream: bool) -> ReadOptions:
    """What to read. A batch ignores the options that only streams have, and the other way round.

    Raises: ConfigurationError that names the option.
    """
    given = _given(raw, "batch stream")
    if stream and (endings := [name for name in ENDINGS if name in given]):
        raise ConfigurationError(f"option {endings[0]}: a stream has no end; use it with read")
    found = [name for name in SUBSCRIPTIONS if name in given]
    if len(found) != 1:
        told = f"not {' and '.join(found)} together" if found else "none is given"
        raise ConfigurationError(
            f"options: exactly one of {', '.join(SUBSCRIPTIONS)} says what to read; {told}"
        )
    fields = _fields(_filled(given, "batch stream"))
    fields["name_servers"] = _name_servers(given)
    fields["starting"] = _starting(given, fields, stream)
    fields["ending"] = _ending(given, fields)
    _check_times(fields["starting"], fields["ending"])
    fields["group_given"] = "group" in given
    if not fields["group_given"]:
        fields["group"] = _made_up_group(fields)
    if fields["commit_offsets"] is None:
        fields["commit_offsets"] = fields["group_given"]
    least, most = fields["min_offsets_per_trigger"], fields["max_offsets_per_trigger"]
    if least is not None and most is not None and least > most:
        raise ConfigurationError(
            f"option minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, {most}"
        )
    return ReadOptions(**_of(ReadOptions, fields))


def write_options(raw: Mapping[str, str]) -> WriteOptions:
    """How to write. Raises: ConfigurationError that names the option."""
    given = _given(raw, "write")
    fields = _fields(_filled(given, "write"))
    fields["name_servers"] = _name_servers(given)
    if fields["topic"] is not None:
        fields["topic"], *others = fields["topic"]
        if others:
            raise ConfigurationError("option topic: rows go to one topic; use the column for more")
    if fields["dedupe"] == "fence" and fields["sink_id"] is None:
        raise ConfigurationError("option dedupe: fence needs sinkId, a name for this sink")
    if fields["compress"] == "none":
        fields["compress"] = None
    return WriteOptions(**_of(WriteOptions, fields))


def store_options(raw: Mapping[str, str]) -> StoreOptions:
    """Which part of a store directory. Raises: ConfigurationError that names the option."""
    given = _given(raw, "store")
    if "path" not in given:
        raise ConfigurationError("option path: name the store directory, as in load(path)")
    fields = _fields(_filled(given, "store"))
    for kind in ("PhysicalOffset", "Timestamp"):
        first, last = given.get(f"starting{kind}"), given.get(f"ending{kind}")
        if first is not None and last is not None and first > last:
            raise ConfigurationError(
                f"options: starting{kind} {first} lies after ending{kind} {last}"
            )
    fields["topics"] = fields["topics"] or ()
    return StoreOptions(**_of(StoreOptions, fields))


def lag_options(raw: Mapping[str, str]) -> LagOptions:
    """Whose progress. Raises: ConfigurationError that names the option."""
    given = _given(raw, "lag")
    fields = _fields(_filled(given, "lag"))
    fields["name_servers"] = _name_servers(given)
    fields["groups"] = fields["groups"] or ()
    fields["topics"] = fields["topics"] or ()
    return LagOptions(**_of(LagOptions, fields))


def _uses(option: Option, uses: str) -> bool:
    return not set(uses.split()).isdisjoint(option.uses.split())


def _given(raw: Mapping[str, str], uses: str) -> dict[str, Any]:
    """Parsed values by the options' own names. Raises: ConfigurationError."""
    known: dict[str, Option] = {}
    for option in TABLE:
        if _uses(option, uses):
            known |= {name.lower(): option for name in (option.name, *option.aliases)}
    given: dict[str, Any] = {}
    said: dict[str, str] = {}
    for key, text in raw.items():
        word = key.lower()
        if word not in known:
            _refuse(word, key, known)
            continue
        option = known[word]
        if option.name in given and said[option.name] != text:
            raise ConfigurationError(
                f"option {option.name}: given twice, also as {' or '.join(option.aliases)}"
            )
        said[option.name] = text
        given[option.name] = option.parse(option.name, text)
    return given


def _refuse(word: str, key: str, known: Mapping[str, Option]) -> None:
    """Refuse a name that is no option here, unless Spark put it there for itself."""
    if refused := next((name for name in WITHOUT if name.lower() == word), None):
        raise ConfigurationError(
            f"option {refused}: this version has neither access keys nor TLS; leave it out, and "
            "reach the cluster over a network that you trust"
        )
    if word == PUSH_FILTERS:
        raise ConfigurationError(
            "option pushFilters: there is none, because Spark keeps the filters of one query for "
            "the next ones of the same DataFrame or view, which gives wrong rows. Say by options "
            "what is read: subscribe, assign, startingTimestamp, offsets, subExpression"
        )
    if word in NOT_OURS:
        return
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    hint = f"; did you mean {_spelled(close[0], known[close[0]])}?" if close else ""
    raise ConfigurationError(f"option {key}: there is no such option here{hint}")


def _spelled(word: str, option: Option) -> str:
    return next(name for name in (option.name, *option.aliases) if name.lower() == word)


def _filled(given: Mapping[str, Any], uses: str) -> dict[str, Any]:
    """The values with the defaults where none is given; None without a default."""
    filled: dict[str, Any] = {}
    for option in TABLE:
        if _uses(option, uses):
            unset = option.default is None
            default = None if unset else option.parse(option.name, option.default or "")
            filled[option.name] = given.get(option.name, default)
    return filled


def _fields(filled: Mapping[str, Any]) -> dict[str, Any]:
    """By the names of fields: maxTriggerDelay is max_trigger_delay_s."""
    fields = {
        re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name): value
        for name, value in filled.items()
    }
    fields["max_trigger_delay_s"] = fields.get("max_trigger_delay")
    return fields


def _of(kind: type[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in kind.__dataclass_fields__}


def _name_servers(given: Mapping[str, Any]) -> tuple[str, ...]:
    found: tuple[str, ...] | None = given.get("nameServer")
    if found is None:
        listed = os.environ.get("NAMESRV_ADDR", "")
        if not listed.strip():
            raise ConfigurationError(
                "option nameServer: give the name servers, as in "
                '.option("nameServer", "host1:9876;host2:9876")'
            )
        found = addresses("NAMESRV_ADDR", listed)
    return found


def _made_up_group(fields: Mapping[str, Any]) -> str:
    """The same name for the same topics of the same cluster, query after query."""
    assign = fields["assign"]
    what = fields["subscribe"] or fields["subscribe_pattern"] or sorted({q.topic for q in assign})
    about = (
        f"{';'.join(fields['name_servers'])} {what if isinstance(what, str) else ','.join(what)}"
    )
    return f"spark_{zlib.crc32(about.encode()):08x}"


# ── Positions ──


def _starting(given: Mapping[str, Any], fields: Mapping[str, Any], stream: bool) -> Position:
    since = _since(given, "starting")
    if since is not None:
        return replace(since, otherwise=fields["starting_offsets_by_timestamp_strategy"])
    default = Latest() if stream else Earliest()
    position = given.get("startingOffsets", default)
    if position == "committed":
        if "group" not in given:
            raise ConfigurationError("option startingOffsets: committed needs the option group")
        latest = fields["fallback_offsets"] == "latest"
        return Committed(Latest() if latest else Earliest())
    if not stream and (isinstance(position, Latest) or _has(position, LATEST)):
        raise ConfigurationError(
            "option startingOffsets: a batch that begins at latest (-1) would read nothing"
        )
    _check_assigned("startingOffsets", position, fields)
    return _as_position(position)


def _ending(given: Mapping[str, Any], fields: Mapping[str, Any]) -> Position:
    since = _since(given, "ending")
    if since is not None:
        return replace(since, otherwise="latest")
    position = given.get("endingOffsets", Latest())
    if not isinstance(position, Latest | At) or _has(position, EARLIEST):
        raise ConfigurationError(
            "option endingOffsets: a batch ends at latest (-1) or at given offsets, not before"
        )
    _check_assigned("endingOffsets", position, fields)
    return _as_position(position)


def _check_times(starting: Position, ending: Position) -> None:
    """Refuse a batch whose end lies before its start."""
    if isinstance(starting, Since) and isinstance(ending, Since):
        first, last = starting.ms, ending.ms
        if first is not None and last is not None and first > last:
            raise ConfigurationError(
                f"options: startingTimestamp {first} lies after endingTimestamp {last}"
            )


def _as_position(position: Any) -> Position:
    assert isinstance(position, Earliest | Latest | Committed | At | Since)
    return position


def _since(given: Mapping[str, Any], which: str) -> Since | None:
    """The times given, the plain one above the others."""
    if (ms := given.get(f"{which}Timestamp")) is not None:
        return Since(ms)
    found: Since | None = given.get(f"{which}OffsetsByTimestamp")
    return found


def _has(position: object, mark: int) -> bool:
    return isinstance(position, At) and mark in position.offsets.values()


def _check_assigned(name: str, position: object, fields: Mapping[str, Any]) -> None:
    """With `assign` it can be told at once which offsets are missing or too many."""
    assign = fields["assign"]
    if not isinstance(position, At) or assign is None:
        return
    if wrong := set(assign) ^ set(position.offsets):
        one = min(wrong)
        verb = "misses" if one in assign else "has an offset for a queue outside of assign:"
        raise ConfigurationError(f"option {name}: {verb} {one}")


# ── On paper ──

PAGE = Path(__file__).parents[2] / "docs" / "spark" / "options.md"
BEGIN = "<!-- options: printed by python -m aerobee.spark.options -->"
END = "<!-- end of options -->"
SECTIONS: Final = (
    ("Reading with `aerobee`", "batch stream"),
    ("Writing with `aerobee`", "write"),
    ("Reading a store directory with `aerobee.store`", "store"),
    ("Lag with `aerobee.lag`", "lag"),
)


def reference() -> str:
    """The tables of docs/spark/options.md, with the marks between which they stand."""
    parts = [BEGIN]
    for title, uses in SECTIONS:
        wide = " use |" if " " in uses else ""
        parts += ["", f"### {title}", "", f"| option | default |{wide} meaning |"]
        parts.append("|---" * (4 if wide else 3) + "|")
        parts += [_row(option, uses) for option in TABLE if _uses(option, uses)]
    refused = ", ".join(f"`{name}`" for name in WITHOUT)
    parts += ["", f"{refused} are refused: this version has neither access keys nor TLS.", "", END]
    return "\n".join(parts)


def _row(option: Option, uses: str) -> str:
    cells = [", ".join(f"`{name}`" for name in (option.name, *option.aliases))]
    cells.append("" if option.default is None else f"`{option.default}`")
    if " " in uses:
        cells.append(", ".join(word for word in uses.split() if word in option.uses.split()))
    cells.append(option.text.replace("|", "\\|"))
    return f"| {' | '.join(cells)} |"


def renewed(page: str) -> str:
    """The page with its tables as they should be. Raises: ValueError without the marks."""
    before, after = page.index(BEGIN), page.index(END) + len(END)
    return page[:before] + reference() + page[after:]


def main() -> None:
    """Write docs/spark/options.md anew, if its tables are stale."""
    page = PAGE.read_text(encoding="utf-8")
    if (new := renewed(page)) != page:
        PAGE.write_text(new, encoding="utf-8")
        sys.stdout.write(f"written: {PAGE}\n")


if __name__ == "__main__":
    main()
