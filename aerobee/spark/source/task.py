"""Runs a read task: the ranges of its partition in, Arrow record batches out.

For batch reads, streams and `aerobee.arrow` alike. Responses of a broker, with 32 messages or with
thousands, are joined to buffers of about `batchRows` records before they are decoded, because every
batch has a fixed cost in Spark. Connections are kept for the next task of the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from aerobee.client.namespaces import plain
from aerobee.errors import RecordDamagedError
from aerobee.spark.brokers import cluster_of
from aerobee.spark.rows.decode import Decoder
from aerobee.spark.rows.records import Bodies
from aerobee.spark.source.fetcher import Chunk, PullSettings, pulled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aerobee.spark.options import ReadOptions
    from aerobee.spark.source.plan import Range


def record_batches(
    ranges: Sequence[Range], options: ReadOptions, names: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Read the messages of the ranges, one range after the other, each in the order of its offsets.

    `names` are columns of the schema preset. Raises: as `fetcher.pulled` and `Decoder`.
    """
    cluster = cluster_of(options.name_servers, options.access)
    how = pulling(options)
    for what in ranges:
        decoder = Decoder(
            names,
            broker_name=what.broker,
            bodies=Bodies.of(options.decompress, options.on_unreadable),
            batch_rows=options.batch_rows,
            batch_bytes=options.batch_bytes,
            tags=tags_of(options),
            preset=options.schema_preset,
        )
        chunks = pulled(what, how, cluster.channel)
        for first, buffer, starts in gathered(chunks, options.batch_rows, options.batch_bytes):
            try:
                for batch in decoder.batches(buffer, starts):
                    yield with_plain_topics(batch, options.namespace)
            except RecordDamagedError as error:
                place = f"{what.queue}, messages from offset {first} on"
                raise RecordDamagedError(f"{place}: {error}") from error
            # Free this buffer before the next one is filled.
            del buffer, starts


def with_plain_topics(batch: pa.RecordBatch, namespace: str | None) -> pa.RecordBatch:
    """The batch with plain names in its column `topic`: records have them in full."""
    at = batch.schema.get_field_index("topic")
    if namespace is None or at < 0 or not batch.num_rows:
        return batch
    # All records of a queue are of one topic.
    name = plain(batch.column(at)[0].as_py(), namespace)
    topics = pa.repeat(pa.scalar(name, batch.schema.field(at).type), batch.num_rows)
    return batch.set_column(at, batch.schema.field(at), topics)


def pulling(options: ReadOptions) -> PullSettings:
    """The settings of pulls that the options ask for."""
    return PullSettings(
        group=options.group,
        expression=options.sub_expression,
        expression_type=options.expression_type,
        batch_size=options.pull_batch_size,
        window=options.pull_window,
        timeout_ms=options.pull_timeout_ms,
        read_ahead_bytes=options.read_ahead_bytes,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def tags_of(options: ReadOptions) -> frozenset[str] | None:
    """The tags of an expression, for exact matching: brokers compare hashes, which can collide."""
    if options.expression_type != "TAG" or options.sub_expression == "*":
        return None
    return frozenset(filter(None, map(str.strip, options.sub_expression.split("||"))))


def gathered(chunks: Iterable[Chunk], rows: int, size_bytes: int) -> Iterator[Chunk]:
    """Join chunks: about `rows` records or `size_bytes` in each, at least one record."""
    held: list[Chunk] = []
    count = held_bytes = 0
    for chunk in chunks:
        if held and (
            count + len(chunk.starts) > rows or held_bytes + len(chunk.buffer) > size_bytes
        ):
            yield _joined(held)
            count = held_bytes = 0
        held.append(chunk)
        count += len(chunk.starts)
        held_bytes += len(chunk.buffer)
        del chunk
    if held:
        yield _joined(held)


def _joined(chunks: list[Chunk]) -> Chunk:
    """Join chunks into one, and drop the references to the inputs."""
    if len(chunks) == 1:
        return chunks.pop()
    starts: list[int] = []
    base = 0
    for chunk in chunks:
        starts += [at + base for at in chunk.starts] if base else chunk.starts
        base += len(chunk.buffer)
    first, whole = chunks[0].first_offset, b"".join(chunk.buffer for chunk in chunks)
    chunks.clear()
    return Chunk(first, whole, starts)
