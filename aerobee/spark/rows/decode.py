"""Decodes stored records to Arrow record batches: a pull response or a part of a log, as columns.

The input is a buffer of whole records (bytes, a view, a mapped file); the output batches share no
memory with it. No Spark here, no socket, no file. An incomplete record is an error that names its
byte; rows are never dropped silently.
"""

from __future__ import annotations

import json
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aerobee.errors import ConfigurationError, RecordDamagedError
from aerobee.spark.rows.buffers import value_bytes
from aerobee.spark.rows.columns import (
    AEROBEE,
    KAFKA_TIMESTAMP_TYPE,
    PRESET_DDL,
    arrow_schema,
    sources_of,
)
from aerobee.spark.rows.records import BYTES_MAX, Bodies, ChunkTooLarge, Rows, damaged
from aerobee.store.format import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from aerobee.store.format.layout import Buffer

BATCH_ROWS = 10_000
BATCH_BYTES = 32 << 20
WALK_BYTES = 32 << 20
"""Limits the list of record positions of one walk."""
BEYOND = 1 << 40
"""The next position of a record of size 0: behind the end of any buffer, so that a walk ends."""
_size = struct.Struct(">I").unpack_from


class Decoder:
    """Decodes buffers of whole records to record batches with `columns`, in that order.

    `broker_name` fills the column of that name (null without it). `tags` keeps only messages with
    exactly one of these tags: brokers compare hashes. A batch has at most `batch_rows` rows and
    little more than `batch_bytes` of records, and of decompressed bodies.
    Raises: ConfigurationError for an unknown column.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        broker_name: str | None = None,
        bodies: Bodies = Bodies.DECOMPRESSED,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        tags: frozenset[str] | None = None,
        preset: str = AEROBEE,
    ) -> None:
        if not columns:
            raise ConfigurationError("option columns: none is named")
        if batch_rows < 1:
            raise ConfigurationError(f"option batchRows: {batch_rows}, at least 1 row fits a batch")
        if not 1 <= batch_bytes <= BYTES_MAX:
            raise ConfigurationError(f"option batchBytes: {batch_bytes}, at most {BYTES_MAX}")
        self.columns = tuple(columns)
        self.broker_name = broker_name
        self.bodies = bodies
        self.batch_rows = batch_rows
        self.batch_bytes = batch_bytes
        self.tags = None if tags is None else pa.array(sorted(tags), pa.string())
        self.preset = preset
        self.schema = arrow_schema(self.columns, preset)
        self._builders = [
            (BUILDERS[source], _converter(name, preset))
            for name, source in zip(self.columns, sources_of(columns, preset), strict=True)
        ]

    def batches(
        self, buffer: Buffer, starts: Sequence[int] | NDArray[np.int64] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Decode the records of the buffer, or only those that begin at `starts` (ascending).

        Without `starts` a blank ends the buffer. Raises: RecordDamagedError, CompressionError.
        """
        view = memoryview(buffer).cast("B")
        if starts is None:
            for run in _walk(view, 0, len(view)):
                yield from self._by_rows(view, run)
            return
        places = np.asarray(starts, np.int64)
        if (np.diff(places) <= 0).any():
            raise RecordDamagedError("the places of the records to read do not ascend")
        yield from self._by_rows(view, places)

    def _by_rows(self, view: memoryview, starts: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(starts), self.batch_rows):
            yield from self._pieces(view, starts[at : at + self.batch_rows])

    def _pieces(self, view: memoryview, starts: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Usually one batch; several if the records are large or far apart."""
        first, last = int(starts[0]), int(starts[-1])
        if first < 0 or last + record.FIXED_BYTES > len(view):
            raise damaged(view, last if first >= 0 else first)
        if last + _size(view, last)[0] - first <= self.batch_bytes:
            yield from self._batch(view, starts)
            return
        sizes = np.ndarray((len(view) - 3,), ">i4", view, strides=(1,))[starts]
        totals = np.cumsum(np.maximum(sizes, 0), dtype=np.int64)
        at = done = 0
        while at < len(starts):
            by_bytes = int(np.searchsorted(totals, done + self.batch_bytes, "right"))
            by_span = int(np.searchsorted(starts, starts[at] + BYTES_MAX))
            after = max(min(by_bytes, by_span), at + 1)
            yield from self._batch(view, starts[at:after])
            at, done = after, int(totals[after - 1])

    def _batch(self, view: memoryview, starts: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        rows = Rows(view, starts)
        if self.tags is not None:
            matches = pc.is_in(rows.properties.value_of(b"TAGS"), value_set=self.tags)
            keep = matches.to_numpy(zero_copy_only=False)
            if not keep.all():
                starts = starts[keep]
                if not len(starts):
                    return
                rows = Rows(view, starts)
        try:
            arrays = [convert(build(rows, self)) for build, convert in self._builders]
        except ChunkTooLarge as error:
            for at in range(0, len(starts), error.rows):
                yield from self._batch(view, starts[at : at + error.rows])
            return
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def starts_of(buffer: Buffer, at: int = 0, end: int | None = None) -> list[int]:
    """The positions of the records between two positions of a buffer; a blank ends them.

    Reads the sizes only. Raises: RecordDamagedError if they do not lead to `end`.
    """
    view = memoryview(buffer).cast("B")
    stop = len(view) if end is None else min(end, len(view))
    return [start for run in _walk(view, at, stop) for start in run.tolist()]


def _walk(view: memoryview, at: int, end: int) -> Iterator[NDArray[np.int64]]:
    """The positions of whole records, WALK_BYTES at a time. Raises: RecordDamagedError."""
    size_at, view = _size, view[:end]
    while at < end:
        stop = min(end, at + WALK_BYTES)
        places: list[int] = []
        keep = places.append
        try:
            while at < stop:
                keep(at)
                at += size_at(view, at)[0] or BEYOND
        except struct.error:
            at = BEYOND
        keep(at)
        starts = np.array(places)
        bad = np.diff(starts) < record.FIXED_BYTES
        bad[-1] |= at > end
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            if not _is_blank(view, places[first]):
                raise damaged(view, places[first])
            starts, at = starts[: first + 1], end
        elif _is_blank(view, places[-2]):
            starts, at = starts[:-1], end
        if len(starts) > 1:
            yield starts[:-1]


def _is_blank(view: memoryview, at: int) -> bool:
    magic = record.START.offset["magic"]
    return view[at + magic : at + record.BLANK_BYTES] == BLANK


CONTROL_END, QUOTE, BACKSLASH = 0x20, ord('"'), ord("\\")
BLANK = record.BLANK_MAGIC.to_bytes(4, "big")


@lru_cache(maxsize=8)
def _constant(text: str | None, rows: int) -> Any:
    if text is None:
        return pa.nulls(rows, pa.string())
    return pa.repeat(pa.scalar(text), rows)


def _converter(name: str, preset: str) -> Callable[[Any], Any]:
    """The function that converts a source column to a column of a preset."""
    if (preset, name) not in PRESET_DDL:
        return lambda array: array
    return CONVERTERS[preset, name]


def _json(properties: Any) -> Any:
    """Each row as a JSON object, as `json.dumps` writes it; by Arrow if nothing needs escapes."""
    names, values = properties.keys, properties.items
    if not len(names) or _is_escaped(names) or _is_escaped(values):
        texts = [json.dumps(dict(row), ensure_ascii=False) for row in properties.to_pylist()]
        return pa.array(texts, pa.string())
    pairs = pc.binary_join_element_wise('"', names, '": "', values, '"', "")
    joined = pc.binary_join(pa.ListArray.from_arrays(properties.offsets, pairs), ", ")
    return pc.binary_join_element_wise("{", joined, "}", "")


def _is_escaped(texts: Any) -> bool:
    """Whether any of the texts needs escapes in JSON."""
    data = value_bytes(texts)
    return bool(((data < CONTROL_END) | (data == QUOTE) | (data == BACKSLASH)).any())


def _headers(properties: Any) -> Any:
    entries = pa.StructArray.from_arrays(
        [properties.keys, properties.items.view(pa.binary())], ["key", "value"]
    )
    listed = pa.ListArray.from_arrays(properties.offsets, entries)
    return listed.cast(arrow_schema(["headers"], "kafka").field(0).type)


CONVERTERS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("rocketmq-spark", "properties"): _json,
    ("kafka", "key"): lambda keys: keys.view(pa.binary()),
    ("kafka", "timestampType"): lambda times: pa.array(
        np.full(len(times), KAFKA_TIMESTAMP_TYPE, np.int32)
    ),
    ("kafka", "headers"): _headers,
}
"""By preset and column, as PRESET_DDL."""


BUILDERS: dict[str, Callable[[Rows, Decoder], Any]] = {
    "topic": lambda rows, _: rows.topics(),
    "brokerName": lambda rows, decoder: _constant(decoder.broker_name, rows.count),
    "queueId": lambda rows, _: pa.array(rows.number("queue_id", np.int32)),
    "queueOffset": lambda rows, _: pa.array(rows.number("queue_offset")),
    "keys": lambda rows, _: rows.properties.value_of(b"KEYS"),
    "tags": lambda rows, _: rows.properties.value_of(b"TAGS"),
    "body": lambda rows, decoder: rows.bodies(decoder.bodies, decoder.batch_bytes),
    "bornTimestamp": lambda rows, _: rows.instants("born_timestamp"),
    "storeTimestamp": lambda rows, _: rows.instants("store_timestamp"),
    "properties": lambda rows, _: rows.properties.map(),
    "msgId": lambda rows, _: rows.properties.value_of(b"UNIQ_KEY"),
    "offsetMsgId": lambda rows, _: rows.offset_ids(),
    "commitLogOffset": lambda rows, _: pa.array(rows.number("physical_offset")),
    "flag": lambda rows, _: pa.array(rows.number("flag", np.int32)),
    "sysFlag": lambda rows, _: pa.array(rows.number("sys_flag", np.int32)),
    "reconsumeTimes": lambda rows, _: pa.array(rows.number("reconsume_times", np.int32)),
    "bodyCRC": lambda rows, _: pa.array(rows.number("body_crc", np.int32)),
    "preparedTransactionOffset": lambda rows, _: pa.array(
        rows.number("prepared_transaction_offset")
    ),
    "bornHost": lambda rows, _: rows.hosts("born_host"),
    "storeHost": lambda rows, _: rows.hosts("store_host"),
    "storeSize": lambda rows, _: pa.array(rows.number("size", np.int32)),
}
"""By column: the function that makes it from the rows of a chunk."""
