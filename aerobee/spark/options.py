"""The options of the data sources, as `load()` and `save()` parse them.

A mapping of texts (Spark gives the names in lower case) → ReadOptions, WriteOptions, StoreOptions,
LagOptions. Every error is found here, before any request to a broker.

Each field is an option, named in camel case, unless it is marked as MADE, that is, derived from
others. A function among the marks of its type parses its text, BYTES and SECONDS take units, STREAM
means that batches ignore it. docs/spark/options.md has tables of the fields:
`python -m tests.pages --write`.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, field, structs

from aerobee.client.steps.producer_batch import BATCH_MESSAGES
from aerobee.errors import ConfigurationError
from aerobee.spark import option_values as values
from aerobee.spark.cluster_options import ClusterOptions, fill_cluster
from aerobee.spark.offsets import (
    EARLIEST,
    LATEST,
    CommittedPosition,
    EarliestPosition,
    ExplicitPosition,
    LatestPosition,
    Position,
    Queue,
    TimePosition,
)
from aerobee.spark.option_values import BYTES, MADE, SECONDS, STREAM, Options, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MiB: Final = 1 << 20
LARGEST_BATCH: Final = 1 << 30
"""The limit of a record batch: below 2 GiB with its other columns."""
LARGEST_BODY: Final = 4 * MiB
LARGEST_NUMBER: Final = 2**31 - 1
LONGEST_MS: Final = 3_600_000

Count = Annotated[int, Meta(ge=1)]
PhysicalOffset = Annotated[int, Meta(ge=0)]
BatchBytes = Annotated[int, Meta(ge=1, le=LARGEST_BATCH), BYTES]
TimeoutMs = Annotated[int, Meta(ge=1, le=LONGEST_MS)]

ENDINGS: Final = {
    "ending_offsets": "endingOffsets",
    "ending_timestamp": "endingTimestamp",
    "ending_offsets_by_timestamp": "endingOffsetsByTimestamp",
}

SUBSCRIPTIONS: Final = {
    "subscribe": "subscribe",
    "subscribe_pattern": "subscribePattern",
    "assign": "assign",
}


class ReadOptions(ClusterOptions, frozen=True, kw_only=True):
    """The options of a read from a cluster."""

    aliases: ClassVar[dict[str, str]] = {
        "bootstrap": "nameServer",
        "topic": "subscribe",
        "tags": "subExpression",
    }

    group_given: Annotated[bool, MADE]
    starting: Annotated[Position, MADE]
    ending: Annotated[Position, MADE]
    subscribe: Annotated[tuple[str, ...] | None, values.topics] = None
    """Topics, comma between; exactly one of `subscribe`, `subscribePattern` and `assign`.
    `%RETRY%group`, `%DLQ%group` and system topics may be named. A topic that is missing or may not
    be read is an error.
    """
    subscribe_pattern: Annotated[str | None, values.pattern] = None
    """A regular expression for whole topic names. System topics never match; retry and dead-letter
    topics only if the pattern begins with `%RETRY%` or `%DLQ%`.
    """
    assign: Annotated[tuple[Queue, ...] | None, values.assignment] = None
    """These queues and no others: `{"orders": {"broker-a": [0, 1]}}`."""
    brokers: Annotated[tuple[str, ...] | int | None, values.brokers] = None
    """The brokers that must be there: names, comma between, or how many. A broker that is down is
    in no route, so without this option its messages are missing in a batch without a word; see
    Brokers that are down.
    """
    group: Annotated[str, values.group]
    """Consumer group named in pulls and commits. Reading with it takes nothing away from other
    members. Without it: `spark_` and 8 hex digits of name servers and topics.
    """
    sub_expression: Annotated[str, values.text] = "*"
    """Which messages: `TagA||TagB`, or a condition with `expressionType=SQL92`."""
    expression_type: Literal["TAG", "SQL92"] = "TAG"
    """`TAG`, or `SQL92` for conditions over properties."""
    starting_offsets: Annotated[
        EarliestPosition | LatestPosition | CommittedPosition | ExplicitPosition | None,
        values.offsets,
    ] = None
    """`earliest`, `latest`, `committed` (where `group` stands) or JSON; see Offsets. A stream
    begins at `latest` and a batch at `earliest` unless told; a batch may not begin at `latest`.
    """
    starting_timestamp: Annotated[int | None, values.time_ms] = None
    """The first message stored at that time or later: milliseconds since the epoch or ISO-8601
    with a zone. Counts more than `startingOffsetsByTimestamp` and `startingOffsets`.
    """
    starting_offsets_by_timestamp: Annotated[TimePosition | None, values.times] = None
    """The time of the first message for each topic, `{"orders": 1700000000000}`, or queue. Counts
    more than `startingOffsets`.
    """
    starting_offsets_by_timestamp_strategy: Literal["error", "latest"] = "error"
    """Where no message is that new: `error`, or `latest` for the end of the queue."""
    ending_offsets: Annotated[
        EarliestPosition | LatestPosition | CommittedPosition | ExplicitPosition, values.offsets
    ] = LatestPosition()
    """Where a batch ends, exclusive: `latest` or JSON. Refused by streams."""
    ending_timestamp: Annotated[int | None, values.time_ms] = None
    """A batch ends before the first message stored at that time or later. Refused by streams."""
    ending_offsets_by_timestamp: Annotated[TimePosition | None, values.times] = None
    """The time of the first message behind a batch, for each topic or queue. Refused by streams."""
    fallback_offsets: Literal["earliest", "latest"] = "earliest"
    """Where `committed` begins in queues without a committed offset."""
    commit_offsets: Annotated[bool, STREAM] = False
    """Commit the progress of the query to the brokers, so that tools show the lag. `true` if
    `group` is given.
    """
    state_location: Annotated[str | None, values.text, STREAM] = None
    """Directory (`file:`, `s3:`, `hdfs:`) that keeps where the first batch began; see Offsets."""
    max_offsets_per_trigger: Annotated[Count | None, STREAM] = None
    """About how many offsets a batch has, shared among the queues by their backlog."""
    min_offsets_per_trigger: Annotated[Count | None, STREAM] = None
    """How many offsets a trigger waits for, but at most `maxTriggerDelay`."""
    max_trigger_delay_s: Annotated[float, SECONDS, STREAM] = field(
        name="maxTriggerDelay", default=900.0
    )
    """How long a trigger waits for `minOffsetsPerTrigger`: `500ms`, `30s`, `15m`, `1h`."""
    max_bytes_per_trigger: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 50), BYTES] | None, STREAM
    ] = None
    """As `maxOffsetsPerTrigger`, by the mean size of the messages; such as `64m`."""
    min_partitions: Annotated[int, Meta(ge=1, le=LARGEST_NUMBER)] | None = None
    """At least about so many tasks: long ranges are cut when there are fewer queues to read."""
    max_records_per_partition: Count = 1_000_000
    """No task reads more than that."""
    fail_on_data_loss: bool = True
    """Fail if messages no longer exist; `false` logs them and continues."""
    columns: Annotated[str | None, values.text] = None
    """Which columns, comma between; else the default set."""
    decompress: bool = True
    """Decompress bodies."""
    on_unreadable: Literal["fail", "keep"] = "fail"
    """`fail`: a body that cannot be decompressed fails the read, and the error names its message;
    `keep`: it is read as it is stored, or as null if it is damaged, and logged.
    """
    batch_rows: Annotated[int, Meta(ge=1, le=10_000_000)] = 10_000
    """Rows per Arrow batch."""
    schema_preset: Literal["aerobee", "rocketmq-spark", "kafka"] = "aerobee"
    """Column names as other sources have them: `rocketmq-spark` or `kafka`."""
    batch_bytes: BatchBytes = 16 * MiB
    """About the bytes per Arrow batch, both compressed and decompressed."""
    pull_batch_size: Annotated[int, Meta(ge=1, le=1_000_000)] = 1024
    """Messages per request."""
    pull_timeout_ms: TimeoutMs = 3_000
    """Timeout of one request; a task without any response for five times as long fails."""
    pull_window: Annotated[int, Meta(ge=1, le=1024)] = 8
    """Requests in flight per task."""
    read_ahead_bytes: BatchBytes = 16 * MiB
    """Bytes that a task has received or asked for beyond its batch, about; a broker answers with
    one message at least.
    """
    read_from: Literal["master", "slave", "any"] = "master"
    """Which broker to read from first: `master`, `slave`, or `any`. The others follow if it does
    not answer, refuses or does not have the messages.
    """


class WriteOptions(ClusterOptions, frozen=True, kw_only=True):
    """The options of a write."""

    topic: Annotated[str | None, values.topic] = None
    """The topic of all rows; counts more than the column `topic`."""
    tags: Annotated[str | None, values.text] = None
    """The tag of rows that have none."""
    order_by: Annotated[str | None, values.text] = None
    """Column whose equal values go to the same queue, as the column `shardingKey` does."""
    producer_group: Annotated[str, values.group] = "spark_sink"
    """Producer group named in sends."""
    batch_bytes: Annotated[int, Meta(ge=1, le=LARGEST_BODY), BYTES] = MiB
    """Bytes per request, at most 4 MiB; keep it below the broker's `maxMessageSize`."""
    batch_rows: Annotated[int, Meta(ge=1, le=BATCH_MESSAGES)] = 256
    """Messages per request, at most 4096: the header of an answer has an id of each."""
    window: Annotated[int, Meta(ge=1, le=1024)] = 8
    """Requests in flight per task and broker."""
    send_timeout_ms: TimeoutMs = 3_000
    """Timeout of one request."""
    retries: Annotated[int, Meta(ge=0, le=100)] = 2
    """Further tries of a failed request, at other brokers where the row names none."""
    delivery_timeout_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 120_000
    """How long a request is retried beyond `retries` while its broker, or every name server, is
    unreachable or not ready, for example during a restart.
    """
    compress: Literal["none", "zlib", "zstd", "lz4"] = "none"
    """Compress bodies: `none`, `zlib`, `zstd` or `lz4`."""
    compress_over: Annotated[int, Meta(ge=0, le=LARGEST_BODY), BYTES] = 4096
    """Only bodies of more bytes than that."""
    on_error: Literal["fail"] = "fail"
    """`fail`: a message that cannot be stored fails its task."""
    dedupe: Literal["none", "fence"] = "none"
    """`fence` stores on the brokers which batches a stream has written, so that a restart does not
    write them again; needs `sinkId`.
    """
    sink_id: Annotated[str | None, values.group] = None
    """Name of this sink, for `fence` and in the property `AB_SINK` of each message."""

    @property
    def codec(self) -> Literal["zlib", "zstd", "lz4"] | None:
        """The compression of bodies, None for none."""
        return None if self.compress == "none" else self.compress


class StoreOptions(Options, frozen=True, kw_only=True):
    """The options of a read from a store directory. Timestamps are ms since the epoch."""

    path: Annotated[str, values.text]
    """The store directory, or a copy of it; required."""
    topics: Annotated[tuple[str, ...], values.topics] = ()
    """Only these topics, comma between."""
    exclude_system: bool = True
    """Leave out system topics, and messages that are invisible to consumers; topics in `topics`
    are read in any case.
    """
    starting_physical_offset: PhysicalOffset | None = None
    """Only records from that physical offset on."""
    ending_physical_offset: PhysicalOffset | None = None
    """Only records before that physical offset."""
    starting_timestamp: Annotated[int | None, values.time_ms] = None
    """Only records stored at that time or later; leaves whole segments unread."""
    ending_timestamp: Annotated[int | None, values.time_ms] = None
    """Only records stored before that time; leaves whole segments unread."""
    sealed_only: bool = False
    """Leave the last segment out."""
    split_bytes: Annotated[int, Meta(ge=64 << 10, le=1 << 40), BYTES] = 128 * MiB
    """Bytes per task."""
    via: Literal["commitlog", "consumequeue"] = "commitlog"
    """`commitlog` reads the log from end to end; `consumequeue` only the chosen topics, in the
    order of their queues.
    """
    verify_crc: bool = False
    """Check the CRC of each body."""
    on_corrupt: Literal["drop", "fail"] = "fail"
    """`fail`: a damaged record fails the read, and the error names it; `drop`: it is left out,
    logged and counted.
    """
    mode: Literal["read", "audit", "segments"] = "read"
    """`read`: messages; `audit`: faults; `segments`: the files of the log."""
    broker_name: Annotated[str | None, values.text] = None
    """The value of the column `brokerName`; null by default."""
    fail_on_data_loss: bool = True
    """Fail if messages no longer exist; `false` logs them and continues."""
    columns: Annotated[str | None, values.text] = None
    """Which columns, comma between; else the default set."""
    decompress: bool = True
    """Decompress bodies."""
    on_unreadable: Literal["fail", "keep"] = "fail"
    """`fail`: a body that cannot be decompressed fails the read, and the error names its message;
    `keep`: it is read as it is stored, or as null if it is damaged, and logged.
    """
    batch_rows: Annotated[int, Meta(ge=1, le=10_000_000)] = 10_000
    """Rows per Arrow batch."""


class LagOptions(ClusterOptions, frozen=True, kw_only=True):
    """The options of a read of consumer lag; an empty selection means all."""

    brokers: Annotated[tuple[str, ...] | int | None, values.brokers] = None
    """The brokers that must be there: names, comma between, or how many."""

    groups: Annotated[tuple[str, ...], values.names] = ()
    """Only these groups, comma between."""
    topics: Annotated[tuple[str, ...], values.topics] = ()
    """Only these topics, comma between."""


def read_options(raw: Mapping[str, str], stream: bool) -> ReadOptions:
    """Parse the options of a read. A batch ignores stream-only options, a stream batch-only ones.

    Raises: ConfigurationError that names the option.
    """
    fields = values_of(ReadOptions, raw)
    if stream and (endings := [name for key, name in ENDINGS.items() if key in fields]):
        raise ConfigurationError(f"option {endings[0]}: a stream has no end; use it with read")
    subscriptions = [name for key, name in SUBSCRIPTIONS.items() if key in fields]
    if len(subscriptions) != 1:
        reason = f"not {' and '.join(subscriptions)} together" if subscriptions else "none is given"
        choices = ", ".join(SUBSCRIPTIONS.values())
        raise ConfigurationError(f"options: exactly one of {choices} says what to read; {reason}")
    fill_cluster(fields)
    group_given = "group" in fields
    fields.setdefault("group", _made_up_group(fields))
    fields.setdefault("commit_offsets", group_given)
    default = LatestPosition() if stream else EarliestPosition()
    options = ReadOptions(
        **fields, group_given=group_given, starting=default, ending=LatestPosition()
    )
    options = structs.replace(options, starting=_starting(options, stream), ending=_ending(options))
    _check_times(options.starting, options.ending)
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise ConfigurationError(
            f"option minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, {most}"
        )
    return options


def write_options(raw: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a write. Raises: ConfigurationError that names the option."""
    fields = values_of(WriteOptions, raw)
    fill_cluster(fields)
    options = WriteOptions(**fields)
    if options.dedupe == "fence" and options.sink_id is None:
        raise ConfigurationError("option dedupe: fence needs sinkId, a name for this sink")
    return options


def store_options(raw: Mapping[str, str]) -> StoreOptions:
    """Parse the options of a store directory. Raises: ConfigurationError that names the option."""
    fields = values_of(StoreOptions, raw)
    if "path" not in fields:
        raise ConfigurationError("option path: name the store directory, as in load(path)")
    for what, name in {"physical_offset": "PhysicalOffset", "timestamp": "Timestamp"}.items():
        first, last = fields.get(f"starting_{what}"), fields.get(f"ending_{what}")
        if first is not None and last is not None and first > last:
            raise ConfigurationError(
                f"options: starting{name} {first} lies after ending{name} {last}"
            )
    return StoreOptions(**fields)


def lag_options(raw: Mapping[str, str]) -> LagOptions:
    """Parse the options of a lag read. Raises: ConfigurationError that names the option."""
    fields = values_of(LagOptions, raw)
    fill_cluster(fields)
    return LagOptions(**fields)


def _made_up_group(fields: Mapping[str, Any]) -> str:
    """A default group: the same name for the same topics of the same cluster in every query."""
    what = fields.get("subscribe") or fields.get("subscribe_pattern")
    what = what or sorted({queue.topic for queue in fields["assign"]})
    about = (
        f"{';'.join(fields['name_servers'])} {what if isinstance(what, str) else ','.join(what)}"
    )
    return f"spark_{zlib.crc32(about.encode()):08x}"


# ── Positions ──


def _starting(options: ReadOptions, stream: bool) -> Position:
    """The start position. `options.starting` is the default."""
    if options.starting_timestamp is not None:
        return TimePosition(
            options.starting_timestamp, otherwise=options.starting_offsets_by_timestamp_strategy
        )
    if options.starting_offsets_by_timestamp is not None:
        return replace(
            options.starting_offsets_by_timestamp,
            otherwise=options.starting_offsets_by_timestamp_strategy,
        )
    position = options.starting_offsets or options.starting
    if isinstance(position, CommittedPosition):
        if not options.group_given:
            raise ConfigurationError("option startingOffsets: committed needs the option group")
        return CommittedPosition(
            LatestPosition() if options.fallback_offsets == "latest" else EarliestPosition()
        )
    if not stream and (isinstance(position, LatestPosition) or _has(position, LATEST)):
        raise ConfigurationError(
            "option startingOffsets: a batch that begins at latest (-1) would read nothing"
        )
    _check_assigned("startingOffsets", position, options)
    return position


def _ending(options: ReadOptions) -> Position:
    """The end position. `latest` if no message is as new as a time."""
    if options.ending_timestamp is not None:
        return TimePosition(options.ending_timestamp, otherwise="latest")
    if options.ending_offsets_by_timestamp is not None:
        return replace(options.ending_offsets_by_timestamp, otherwise="latest")
    position = options.ending_offsets
    if not isinstance(position, LatestPosition | ExplicitPosition) or _has(position, EARLIEST):
        raise ConfigurationError(
            "option endingOffsets: a batch ends at latest (-1) or at given offsets, not before"
        )
    _check_assigned("endingOffsets", position, options)
    return position


def _check_times(starting: Position, ending: Position) -> None:
    """Refuse a batch whose end lies before its start."""
    if isinstance(starting, TimePosition) and isinstance(ending, TimePosition):
        first, last = starting.ms, ending.ms
        if first is not None and last is not None and first > last:
            raise ConfigurationError(
                f"options: startingTimestamp {first} lies after endingTimestamp {last}"
            )


def _has(position: object, mark: int) -> bool:
    return isinstance(position, ExplicitPosition) and mark in (
        *position.offsets.values(),
        *position.topics.values(),
    )


def _check_assigned(name: str, position: Position, options: ReadOptions) -> None:
    """With `assign`, report missing and surplus offsets at once."""
    if not isinstance(position, ExplicitPosition) or options.assign is None:
        return
    missing = {queue for queue in options.assign if position.of(queue) is None}
    if wrong := missing | (set(position.offsets) - set(options.assign)):
        first = min(wrong)
        verb = (
            "misses" if first in options.assign else "has an offset for a queue outside of assign:"
        )
        raise ConfigurationError(f"option {name}: {verb} {first}")
