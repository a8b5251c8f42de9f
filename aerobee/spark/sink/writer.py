"""The writers of the sink: the code that Spark's save() and writeStream run in driver and tasks.

    driver: options and columns checked → tasks: rows → encode → sending → acknowledged → log

Invariant: a task succeeds only when every row of it is acknowledged. Spark may run it again, and
then its rows are in the topic twice; `dedupe=fence` skips batches that a stream has written.
Nothing is undone: a topic cannot be rolled back or overwritten. Objects here hold plain data,
because Spark pickles them. Source: spark §5.6, §5.7.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from aerobee.errors import ConfigurationError
from aerobee.spark.options import write_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

    from aerobee.spark.options import WriteOptions
    from aerobee.spark.sink.commit_marker import CommitMarker
    from aerobee.spark.sink.encode import RowEncoding

log = logging.getLogger("aerobee.spark")

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
"""The local property with the id of a query, in tasks of a micro-batch and in foreachBatch."""
ROWS_AT_ONCE = 1_000
BYTES_AT_ONCE = 16 << 20
"""An Arrow batch has so many rows, or about so many bytes, where Spark passes rows."""
LONG_TYPES = str, bytes, bytearray
"""Types whose values count as bytes; made once, as each value of each row is compared."""
IDS_PER_MS = 50_000
"""The rate of new message ids; an id has a counter of 65,536 values."""


@dataclass(frozen=True, slots=True)
class Task:
    """The task in which this code runs: its partition, and its micro-batch if it has one."""

    partition: int = 0
    batch_id: int | None = None
    query_id: str | None = None

    @classmethod
    def current(cls) -> Task:
        """The task of this worker process; partition 0 outside of Spark."""
        context = TaskContext.get()
        if context is None:
            return cls()
        batch_id = context.getLocalProperty(BATCH_ID)
        query_id = context.getLocalProperty(QUERY_ID)
        number = int(batch_id) if batch_id is not None else None
        return cls(context.partitionId(), number, query_id)


@dataclass(frozen=True, slots=True)
class SinkCommit(WriterCommitMessage):
    """The result of one task. `per_queue` maps `topic/broker/queue` to its first and last offset.

    `sent` counts messages, `bytes` their bodies. `skipped` counts the rows of a batch that had been
    written before; None for any other.
    """

    task: Task
    sent: int = 0
    bytes: int = 0
    first_msg_id: str | None = None
    last_msg_id: str | None = None
    per_queue: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    skipped: int | None = None


class WriterBase:
    """The common part of all writers: the write of one task, and the log of the whole write."""

    def __init__(self, options: WriteOptions, schema: pa.Schema) -> None:
        from aerobee.spark.sink.columns import places
        from aerobee.spark.sink.kafka import KafkaConversion

        self.options = options
        self.schema = schema
        self.places = places(
            KafkaConversion(schema).schema, topic=options.topic, order_by=options.order_by
        )

    def write_batches(self, batches: Iterator[pa.RecordBatch], task: Task) -> SinkCommit:
        """Send all rows and wait until brokers acknowledge them. Raises: AerobeeError."""
        from aerobee.spark.brokers import cluster_of
        from aerobee.spark.logs import set_up
        from aerobee.spark.sink.encode import Encoder
        from aerobee.spark.sink.kafka import KafkaConversion
        from aerobee.spark.sink.sending import Delivery, DeliverySettings

        set_up()
        options = self.options
        cluster = cluster_of(options.name_servers, options.access)
        marker = self._marker(task)
        if marker is not None and marker.passed(task.batch_id or 0):
            log.warning("batch %s is in topic %s already", task.batch_id, marker.topic)
            # Spark requires that a task reads all of its rows.
            return SinkCommit(task, skipped=sum(batch.num_rows for batch in batches))
        sending = DeliverySettings(
            group=options.producer_group,
            window=options.window,
            timeout_s=options.send_timeout_ms / 1000,
            retries=options.retries,
            delivery_timeout_s=options.delivery_timeout_ms / 1000,
        )
        with Delivery(cluster, sending) as delivery:
            encoder = Encoder(
                self.places,
                self._packing(task),
                new_ids=id_maker(options.name_servers[0]),
                queues=delivery.queues,
            )
            kafka = KafkaConversion(self.schema)
            for batch in batches:
                for shipment in encoder.shipments(kafka.batch(batch)):
                    delivery.send(shipment)
            report = delivery.finish()
        return SinkCommit(
            task,
            sent=report.sent,
            bytes=report.body_bytes,
            first_msg_id=report.first_id,
            last_msg_id=report.last_id,
            per_queue={str(queue): offsets for queue, offsets in report.offsets.items()},
        )

    def _packing(self, task: Task) -> RowEncoding:
        from aerobee.spark.sink.encode import RowEncoding

        options = self.options
        stamp = None
        if options.sink_id is not None:
            stamp = f"{options.sink_id}:{task.batch_id or 0}:{task.partition}"
        return RowEncoding(
            topic=options.topic,
            tags=options.tags,
            batch_bytes=options.batch_bytes,
            batch_rows=options.batch_rows,
            compress=options.codec,
            compress_over=options.compress_over,
            stamp=stamp,
            namespace=options.namespace,
        )

    def _marker(self, task: Task) -> CommitMarker | None:
        """The commit marker, if `dedupe` asks for it. Raises: ConfigurationError in a batch."""
        from aerobee.spark.brokers import cluster_of
        from aerobee.spark.sink.commit_marker import CommitMarker, group_of

        if self.options.dedupe != "fence":
            return None
        if task.batch_id is None:
            raise ConfigurationError(
                "dedupe=fence needs the batch number of a stream: use writeStream, or write in "
                "foreachBatch"
            )
        group = group_of(self.options.sink_id or "", task.query_id)
        return CommitMarker(
            cluster_of(self.options.name_servers, self.options.access),
            self.options.topic or "",
            group,
            self.options.delivery_timeout_ms / 1000,
        )

    def committed(self, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
        """Store the commit marker after all tasks have succeeded, and log what was stored.

        Raises: ConfigurationError if the batch that was passed over is not the one written.
        """
        from aerobee.spark.logs import set_up

        set_up()
        done = commits(messages)
        if done and (marker := self._marker(done[0].task)) is not None:
            batch_id = done[0].task.batch_id or 0
            rows = sum(commit.sent + (commit.skipped or 0) for commit in done)
            if all(commit.skipped is not None for commit in done):
                marker.check(batch_id, rows)
            else:
                marker.store(batch_id, rows)
        log.info(
            "%s: %d messages, %d bytes of bodies, in %d tasks (%d had written theirs before)",
            what,
            sum(commit.sent for commit in done),
            sum(commit.bytes for commit in done),
            len(done),
            sum(commit.skipped is not None for commit in done),
        )

    def log_abort(self, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
        """Log what was stored although the write failed."""
        from aerobee.spark.logs import set_up

        set_up()
        done = commits(messages)
        log.warning(
            "%s failed; what is acknowledged stays in the topic: %d messages of %d tasks that "
            "ended well, and those that failed tasks had sent. Queues: %s",
            what,
            sum(commit.sent for commit in done),
            len(done),
            {queue: offsets for commit in done for queue, offsets in commit.per_queue.items()},
        )


class ArrowWriter(WriterBase, DataSourceArrowWriter):
    """The writer of a batch write."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
        return self.write_batches(iterator, Task.current())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.committed(messages, "write")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.log_abort(messages, "write")


class StreamRowWriter(WriterBase, DataSourceStreamWriter):
    """The writer of a stream for Spark 4.0, which passes rows."""

    def write(self, iterator: Iterator[Row]) -> SinkCommit:
        return self.write_batches(batches_of(iterator, self.schema), Task.current())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's)
        self.committed(messages, f"batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's)
        self.log_abort(messages, f"batch {batchId}")


if hasattr(datasource, "DataSourceStreamArrowWriter"):

    class StreamArrowWriter(WriterBase, datasource.DataSourceStreamArrowWriter):
        """The writer of a stream since Spark 4.1, which passes Arrow batches."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
            return self.write_batches(iterator, Task.current())

        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's)
            self.committed(messages, f"batch {batchId}")

        def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's)
            self.log_abort(messages, f"batch {batchId}")


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of a batch. Raises: ConfigurationError for invalid options or columns."""
    if overwrite:
        raise ConfigurationError("a topic cannot be overwritten: write with .mode('append')")
    return ArrowWriter(checked(options), row_schema(schema))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamWriter:
    """The writer of a stream. Raises: ConfigurationError for invalid options or columns.

    `overwrite` means output mode complete: the whole result is sent each time, as to any topic.
    """
    made = (
        StreamArrowWriter if hasattr(datasource, "DataSourceStreamArrowWriter") else StreamRowWriter
    )
    return made(checked(options), row_schema(schema))


def checked(options: Mapping[str, str]) -> WriteOptions:
    """Parse and check the options of a write. Raises: ConfigurationError."""
    from aerobee.client import compression
    from aerobee.client.message import check_text, check_topic
    from aerobee.spark.sink.commit_marker import group_of

    parsed = write_options(options)
    compression.check(parsed.codec)
    check_text("option tags", parsed.tags or "")
    if "||" in (parsed.tags or ""):
        raise ConfigurationError(
            f"option tags: {parsed.tags!r} is not the tag of one message; || separates those of a "
            "subscription"
        )
    if parsed.topic is not None:
        check_topic(parsed.topic)
    if parsed.dedupe == "fence":
        group_of(parsed.sink_id or "", None)
        if parsed.topic is None:
            raise ConfigurationError(
                "dedupe=fence needs the option topic: it keeps its marks there"
            )
    return parsed


def row_schema(schema: StructType) -> pa.Schema:
    """A table's schema in Arrow. Raises: ConfigurationError for a type that no message has."""
    from aerobee.spark.sink.columns import arrow_schema

    return arrow_schema((field.name, field.dataType.simpleString()) for field in schema.fields)


def commits(messages: Sequence[WriterCommitMessage | None]) -> list[SinkCommit]:
    """The results of the tasks that have succeeded."""
    return [message for message in messages if isinstance(message, SinkCommit)]


def id_maker(name_server: str) -> Callable[[int], list[str]]:
    """A function that returns new message ids for this task."""
    from aerobee.client.factory import own_address, uniq_ids

    made = uniq_ids(own_address(name_server), os.getpid(), Random())

    def new_ids(count: int) -> list[str]:
        now_ms = time.time_ns() // 1_000_000
        ids: list[str] = []
        while len(ids) < count:
            ids += made.many(now_ms, min(IDS_PER_MS, count - len(ids)))
            now_ms += 1
        return ids

    return new_ids


def batches_of(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Convert the rows that Spark passes to record batches."""
    import pyarrow as pa

    def batch() -> pa.RecordBatch:
        columns = [
            pa.array([arrow_value(row[at]) for row in chunk], kind)
            for at, kind in enumerate(schema.types)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    chunk: list[Row] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += sum(len(value) for value in row if isinstance(value, LONG_TYPES))
        if len(chunk) >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield batch()
            chunk.clear()
            size = 0
    if chunk:
        yield batch()


def arrow_value(value: Any) -> Any:
    """Convert a value of a row for Arrow; Spark passes timestamps as naive local times."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return list(value.items()) if isinstance(value, dict) else value
