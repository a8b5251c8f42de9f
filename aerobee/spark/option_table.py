"""The options of the data sources as a table: names, uses, texts, defaults. No functions.

`options` reads it, and so does docs/spark/options.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aerobee.spark import option_values as values

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TABLE", "Option"]

MiB = 1 << 20
LARGEST_BATCH = 1 << 30
"""A batch of Arrow holds less than 2 GiB, with its other columns."""
LARGEST_BODY = 4 * MiB


class Option(NamedTuple):
    """One option. `uses`: words of batch, stream, write, store, lag; `default` is a text, too."""

    name: str
    uses: str
    parse: Callable[[str, str], Any]
    default: str | None
    text: str
    aliases: tuple[str, ...] = ()


READ = "batch stream"
CLUSTER = "batch stream write lag"
_number = values.integer(1)
_count = values.integer(1, 2**31 - 1)

TABLE: Final = (
    Option(
        "nameServer", CLUSTER, values.addresses, None,
        "Name servers, `host:port;host:port`; required, unless `NAMESRV_ADDR` is set in the "
        "environment of the driver.",
        ("bootstrap",),
    ),
    Option(
        "subscribe", READ, values.topics, None,
        "Topics, comma between; exactly one of `subscribe`, `subscribePattern` and `assign`. "
        "`%RETRY%group`, `%DLQ%group` and system topics may be named. One that is missing or may "
        "not be read is an error.",
        ("topic",),
    ),
    Option(
        "subscribePattern", READ, values.pattern, None,
        "A regular expression for whole topic names. System topics never match; retry and "
        "dead-letter topics only if the pattern begins with `%RETRY%` or `%DLQ%`.",
    ),
    Option(
        "assign", READ, values.assignment, None,
        'These queues and no others: `{"orders": {"broker-a": [0, 1]}}`.',
    ),
    Option(
        "group", READ, values.group, None,
        "Consumer group named in pulls and commits. Reading with it takes nothing away from other "
        "members. Without it: `spark_` and 8 hex digits of name servers and topics.",
    ),
    Option(
        "subExpression", READ, values.text, "*",
        "Which messages: `TagA||TagB`, or a condition with `expressionType=SQL92`.",
        ("tags",),
    ),
    Option(
        "expressionType", READ, values.choice("TAG", "SQL92"), "TAG",
        "`TAG`, or `SQL92` for conditions over properties.",
    ),
    Option(
        "startingOffsets", READ, values.offsets, None,
        "`earliest`, `latest`, `committed` (where `group` stands) or JSON; see Offsets. A stream "
        "begins at `latest` and a batch at `earliest` unless told; a batch may not begin at "
        "`latest`.",
    ),
    Option(
        "startingTimestamp", READ, values.time_ms, None,
        "The first message stored at that time or later: milliseconds since the epoch or ISO-8601 "
        "with a zone. Counts more than the next two.",
    ),
    Option(
        "startingOffsetsByTimestamp", READ, values.times, None,
        'Such a time for each topic, `{"orders": 1700000000000}`, or queue. Counts more than '
        "`startingOffsets`.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy", READ, values.choice("error", "latest"), "error",
        "Where no message is that new: `error`, or `latest` for the end of the queue.",
    ),
    Option(
        "endingOffsets", READ, values.offsets, "latest",
        "Where a batch ends, exclusive: `latest` or JSON. Refused by streams.",
    ),
    Option(
        "endingTimestamp", READ, values.time_ms, None,
        "A batch ends before the first message stored at that time or later. Refused by streams.",
    ),
    Option(
        "endingOffsetsByTimestamp", READ, values.times, None,
        "Such a time for each topic or queue. Refused by streams.",
    ),
    Option(
        "fallbackOffsets", READ, values.choice("earliest", "latest"), "earliest",
        "Where `committed` begins in queues for which the broker has nothing.",
    ),
    Option(
        "commitOffsets", "stream", values.boolean, None,
        "Tell the broker how far the query is, so that its tools show the lag. `true` when "
        "`group` is given.",
    ),
    Option(
        "stateLocation", "stream", values.text, None,
        "Directory (`file:`, `s3:`, `hdfs:`) that keeps where the first batch began; see Offsets.",
    ),
    Option(
        "maxOffsetsPerTrigger", "stream", _number, None,
        "About how many offsets a batch has, shared out by what waits in each queue.",
    ),
    Option(
        "minOffsetsPerTrigger", "stream", _number, None,
        "Wait for that many, but at most `maxTriggerDelay`.",
    ),
    Option(
        "maxTriggerDelay", "stream", values.duration_s, "15m",
        "Such as `500ms`, `30s`, `15m`, `1h`.",
    ),
    Option(
        "maxBytesPerTrigger", "stream", values.size_bytes(1, 1 << 50), None,
        "As `maxOffsetsPerTrigger`, by the mean size of the messages; such as `64m`.",
    ),
    Option(
        "minPartitions", READ, _count, None,
        "At least about so many tasks: long ranges are cut when there are fewer queues to read.",
    ),
    Option(
        "maxRecordsPerPartition", READ, _number, "1000000",
        "No task reads more than that.",
    ),
    Option(
        "failOnDataLoss", "batch stream store", values.boolean, "true",
        "Fail when messages are not there any more; `false` logs them and goes on.",
    ),
    Option(
        "columns", "batch stream store", values.text, None,
        "Which columns, comma between; else the default set.",
    ),
    Option(
        "schemaPreset", READ, values.choice("aerobee", "rocketmq-spark", "kafka"), "aerobee",
        "Column names as other sources have them: `rocketmq-spark` or `kafka`.",
    ),
    Option(
        "decompress", "batch stream store", values.boolean, "true",
        "Unpack compressed bodies.",
    ),
    Option(
        "batchRows", "batch stream store", values.integer(1, 10_000_000), "10000",
        "Rows per Arrow batch.",
    ),
    Option(
        "batchBytes", READ, values.size_bytes(1, LARGEST_BATCH), "16m",
        "Bytes per Arrow batch, about, packed and unpacked.",
    ),
    Option(
        "pullBatchSize", READ, values.integer(1, 1_000_000), "1024",
        "Messages asked for in one request.",
    ),
    Option(
        "pullTimeoutMs", READ, values.integer(1, 3_600_000), "3000",
        "How long one request may take; a task that gets nothing for five times as long fails.",
    ),
    Option(
        "pullWindow", READ, values.integer(1, 1024), "8",
        "Requests on their way at once, per task.",
    ),
    Option(
        "readAheadBytes", READ, values.size_bytes(1, LARGEST_BATCH), "16m",
        "Bytes that a task has received or asked for beyond its batch, about; a broker answers "
        "with one message at least.",
    ),
    Option(
        "readFrom", READ, values.choice("master", "slave", "any"), "master",
        "Whom to ask first: `master`, `slave`, or `any`. The others follow if it is silent, "
        "refuses or does not have the messages.",
    ),
    Option(
        "topic", "write", values.topics, None,
        "The topic of all rows; counts more than the column `topic`.",
    ),
    Option("tags", "write", values.text, None, "The tag of rows that have none."),
    Option(
        "orderBy", "write", values.text, None,
        "Column whose equal values go to the same queue, as the column `shardingKey` does.",
    ),
    Option(
        "producerGroup", "write", values.group, "spark_sink", "Producer group named in sends."
    ),
    Option(
        "batchBytes", "write", values.size_bytes(1, LARGEST_BODY), "1m",
        "Bytes per request, at most 4 MiB; keep it below the broker's `maxMessageSize`.",
    ),
    Option("batchRows", "write", values.integer(1, 10_000), "256", "Messages per request."),
    Option(
        "window", "write", values.integer(1, 1024), "8",
        "Requests on their way at once, per task and broker.",
    ),
    Option(
        "sendTimeoutMs", "write", values.integer(1, 3_600_000), "3000",
        "How long the broker may take to answer one request.",
    ),
    Option(
        "retries", "write", values.integer(0, 100), "2",
        "Further tries of a failed request, at other brokers where the row names none.",
    ),
    Option(
        "deliveryTimeoutMs", "write", values.integer(0, 86_400_000), "120000",
        "How long a request is tried again while its broker, or every name server, is away or not "
        "ready, beyond `retries`: a restart in that time passes.",
    ),
    Option(
        "compress", "write", values.choice("none", "zlib", "zstd", "lz4"), "none",
        "Pack bodies: `none`, `zlib`, `zstd` or `lz4`.",
    ),
    Option(
        "compressOver", "write", values.size_bytes(0, LARGEST_BODY), "4096",
        "Only bodies of more bytes than that.",
    ),
    Option(
        "onError", "write", values.choice("fail"), "fail",
        "`fail`: a message that cannot be stored fails its task.",
    ),
    Option(
        "dedupe", "write", values.choice("none", "fence"), "none",
        "`fence` keeps in the broker which batches a stream has written, so that a restart does "
        "not write them again; needs `sinkId`.",
    ),
    Option(
        "sinkId", "write", values.group, None,
        "Name of this sink, for `fence` and in the property `AB_SINK` of each message.",
    ),
    Option("path", "store", values.text, None, "The store directory, or a copy of it; required."),
    Option("topics", "store lag", values.topics, None, "Only these topics, comma between."),
    Option("groups", "lag", values.names, None, "Only these groups, comma between."),
    Option(
        "excludeSystem", "store", values.boolean, "true",
        "Leave system topics out, and what no consumer can see; topics that `topics` names are "
        "read all the same.",
    ),
    Option(
        "startingPhysicalOffset", "store", values.integer(0), None,
        "Only records from that place in the log on.",
    ),
    Option(
        "endingPhysicalOffset", "store", values.integer(0), None,
        "Only records before that place in the log.",
    ),
    Option(
        "startingTimestamp", "store", values.time_ms, None,
        "Only records stored at that time or later; leaves whole segments unread.",
    ),
    Option(
        "endingTimestamp", "store", values.time_ms, None,
        "Only records stored before that time; leaves whole segments unread.",
    ),
    Option("sealedOnly", "store", values.boolean, "false", "Leave the last segment out."),
    Option(
        "splitBytes", "store", values.size_bytes(64 << 10, 1 << 40), "128m", "Bytes per task."
    ),
    Option(
        "via", "store", values.choice("commitlog", "consumequeue"), "commitlog",
        "`commitlog` reads the log from end to end; `consumequeue` only the chosen topics, in the "
        "order of their queues.",
    ),
    Option("verifyCrc", "store", values.boolean, "false", "Check the CRC of each body."),
    Option(
        "onCorrupt", "store", values.choice("drop", "fail"), "fail",
        "`fail`: a damaged record fails the read, which names it; `drop`: it is left out, logged "
        "and counted.",
    ),
    Option(
        "mode", "store", values.choice("read", "audit", "segments"), "read",
        "`read`: messages; `audit`: faults; `segments`: the files of the log.",
    ),
    Option(
        "brokerName", "store", values.text, None, "What the column `brokerName` holds; else null."
    ),
)  # fmt: skip
"""Every option once per meaning: the same name may mean another thing to another use."""
