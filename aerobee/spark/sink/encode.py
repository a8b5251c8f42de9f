"""Encodes rows as send requests: Arrow record batches in, bodies of 320 and 310 out. Pure.

    batch → checked rows (topic, body, property string, queue of each) → items → shipments

Invariant: no body becomes a Python object of its own. Arrow joins the record header, the body and
the property string of every row into one array, whose data buffer is a sequence of batch items as
brokers expect them; the body of a batch request is a slice of it. Rows that cannot share a request
(another topic or queue, a delay, another compression) are separated first; rows of a queue keep
their order. Source: spark §5.6, remoting §4.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aerobee.client.compression import pack
from aerobee.client.message import check_topic
from aerobee.client.steps.producer_batch import WAITS, ProducerBatch
from aerobee.client.steps.sending import hashed
from aerobee.errors import ConfigurationError
from aerobee.spark.rows.buffers import byte_lengths, byte_offsets, packed
from aerobee.spark.sink.properties import PropertyTexts, check_utf8, milliseconds
from aerobee.store.format.batch import BATCH_HEAD
from aerobee.store.format.properties import PROPERTIES_BYTES_MAX
from aerobee.store.format.record import LENGTH16

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from aerobee.client.compression import Compression
    from aerobee.client.send_result import MessageQueue

    Numbers = npt.NDArray[np.int64]

BODY_BYTES_MAX = 4 << 20
"""The largest body that a broker accepts with the default maxMessageSize."""
PIECE_BYTES = 32 << 20
"""The bytes of bodies that are encoded at a time, to bound the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEncoding:
    """How rows are encoded and batched. `stamp` begins the AB_SINK property of every row."""

    topic: str | None = None
    tags: str | None = None
    batch_bytes: int = 1 << 20
    batch_rows: int = 256
    compress: Compression | None = None
    compress_over: int = 4096
    stamp: str | None = None
    namespace: str | None = None


class Shipment(NamedTuple):
    """One request to send: to `queue`; else to any queue of `broker`; else to any queue.

    `body_bytes` counts the bodies of the rows only. `born_ms` is 0 for the time of sending.
    """

    batch: ProducerBatch
    queue: MessageQueue | None
    broker: str | None
    body_bytes: int
    born_ms: int = 0


class Target(NamedTuple):
    """The destination of rows; a queue or broker of None is chosen later."""

    topic: str
    queue: MessageQueue | None = None
    broker: str | None = None


@dataclass(slots=True)
class Rows:
    """Checked rows, column by column. `targets[codes[i]]` is the destination of row i."""

    bodies: Any
    sizes: Numbers
    properties: Any
    ids: Sequence[str]
    flags: Numbers
    sys_flags: Numbers
    born_ms: Numbers
    alone: npt.NDArray[np.bool_]
    codes: Numbers
    targets: Sequence[Target]

    def part(self, start: int, end: int) -> Rows:
        """The rows from `start` to before `end`."""
        here = slice(start, end)
        return Rows(
            self.bodies.slice(start, end - start),
            self.sizes[here],
            self.properties.slice(start, end - start),
            self.ids[here],
            self.flags[here],
            self.sys_flags[here],
            self.born_ms[here],
            self.alone[here],
            self.codes[here],
            self.targets,
        )


class Encoder:
    """Encodes the rows of one task, batch by batch. `row` counts the rows of earlier batches.

    `places` has the index of each sink column (`sink_columns.places`), `new_ids` makes message ids,
    `queues` returns the writable queues of a topic, in the order that all clients use. It also
    gets the broker that a row names, for which it may wait.
    """

    def __init__(
        self,
        places: Mapping[str, int],
        packing: RowEncoding,
        *,
        new_ids: Callable[[int], list[str]],
        queues: Callable[[str, str | None], Sequence[MessageQueue]],
    ) -> None:
        self.places = places
        self.packing = packing
        self.new_ids = new_ids
        self.queues = queues
        self.row = 0
        self._texts = PropertyTexts(packing.tags, packing.stamp, packing.namespace)
        self._topics: set[str] = set()

    def shipments(self, batch: Any) -> Iterator[Shipment]:
        """The requests that store the rows of a batch. Raises: ConfigurationError, naming a row."""
        if not batch.num_rows:
            return
        rows = self._rows(batch)
        self.row += batch.num_rows
        for start, end in pieces(rows.sizes, PIECE_BYTES):
            piece = rows if end - start == batch.num_rows else rows.part(start, end)
            yield from shipped(piece, self.packing.batch_rows, self.packing.batch_bytes)

    # ── Columns, checked ──

    def _rows(self, batch: Any) -> Rows:
        count = batch.num_rows
        columns = {name: batch.column(place) for name, place in self.places.items()}
        columns = {n: c for n, c in columns.items() if not pa.types.is_null(c.type)}
        for name in columns.keys() - {"body"}:
            check_utf8(name, columns[name], lambda row: f"row {self.row + row} of the task")
        topics = self._topic_of_each(columns.get("topic"), count)

        def place(row: int) -> str:
            topic = topics if isinstance(topics, str) else topics[row]
            return f"row {self.row + row} of the task, to topic {topic}"

        bodies, sizes, sys_flags = self._bodies(columns["body"], place)
        ids = self._ids(columns.get("msgId"), count)
        properties, alone = self._texts.of(columns, ids, self.row, place)
        too_long = byte_lengths(properties) > PROPERTIES_BYTES_MAX
        if too_long.any():
            row = int(too_long.argmax())
            raise ConfigurationError(
                f"{place(row)}: the properties of message {ids[row]} take "
                f"{byte_lengths(properties)[row]} bytes, at most {PROPERTIES_BYTES_MAX} fit"
            )
        codes, targets = self._targets(columns, topics, count, place)
        return Rows(
            bodies=bodies,
            sizes=sizes,
            properties=properties,
            ids=ids,
            flags=numbers("flag", columns, count),
            sys_flags=sys_flags,
            born_ms=numbers("bornTimestamp", columns, count),
            alone=alone,
            codes=codes,
            targets=targets,
        )

    def _topic_of_each(self, column: Any, count: int) -> str | list[str]:
        """The topic of all rows, or a list with the topic of each. Raises: ConfigurationError."""
        if self.packing.topic is not None:
            return self.packing.topic
        if column is None or column.null_count:
            row = 0 if column is None else pc.index(pc.is_null(column), True).as_py()
            raise ConfigurationError(f"row {self.row + row} of the task has no topic")
        topics: list[str] = column.to_pylist()
        for topic in set(topics) - self._topics:
            check_topic(topic)
            self._topics.add(topic)
        return topics

    def _bodies(self, column: Any, place: Callable[[int], str]) -> tuple[Any, Numbers, Numbers]:
        """The bodies as they will be stored, their sizes, and their bits of sysFlag."""
        bodies = column if pa.types.is_binary(column.type) else column.cast(pa.binary())
        sizes = byte_lengths(bodies)
        empty = sizes == 0
        if bodies.null_count:
            empty |= np.asarray(bodies.is_null())
        if empty.any():
            row = int(empty.argmax())
            raise ConfigurationError(f"{place(row)}: the body is empty; brokers store no such")
        sys_flags = np.zeros(len(sizes), np.int64)
        packing = self.packing
        if packing.compress is not None and (sizes > packing.compress_over).any():
            bodies = self._compressed(bodies, sizes, sys_flags)
            sizes = byte_lengths(bodies)
        if sizes.max() > BODY_BYTES_MAX:
            row = int(sizes.argmax())
            raise ConfigurationError(
                f"{place(row)}: the body has {sizes[row]} bytes, more than the {BODY_BYTES_MAX} "
                "that brokers take"
            )
        return bodies, sizes, sys_flags

    def _compressed(self, bodies: Any, sizes: Numbers, sys_flags: Numbers) -> Any:
        """Compress the bodies that shrink by it, and set their bits in `sys_flags`."""
        method, over = self.packing.compress, self.packing.compress_over
        shrunk: list[bytes | None] = [None] * len(sizes)
        for row in np.flatnonzero(sizes > over).tolist():
            body, bits = pack(bytes(bodies[row].as_buffer()), method, 0)
            if bits:
                shrunk[row], sys_flags[row] = body, bits
        return pc.coalesce(pa.array(shrunk, pa.binary()), bodies)

    def _ids(self, column: Any, count: int) -> list[str]:
        """The message id of each row: the one in the column, or a new one."""
        made = self.new_ids(count)
        if column is None:
            return made
        return [own or new for own, new in zip(column.to_pylist(), made, strict=True)]

    # ── Where to ──

    def _targets(
        self,
        columns: Mapping[str, Any],
        topics: str | list[str],
        count: int,
        place: Callable[[int], str],
    ) -> tuple[Numbers, list[Target]]:
        """The destination of each row, as an index into a list. Raises: ConfigurationError."""
        named = [columns.get(name) for name in ("brokerName", "queueId", "shardingKey")]
        if isinstance(topics, str) and not any(column is not None for column in named):
            return np.zeros(count, np.int64), [Target(topics)]
        brokers, queue_ids, keys = (
            [None] * count if column is None else column.to_pylist() for column in named
        )
        if isinstance(topics, str):
            topics = [topics] * count
        wishes: dict[tuple[str, str | None, int | None, Any], int] = {}
        codes: dict[Target, int] = {}
        chosen = np.empty(count, np.int64)
        for row, wish in enumerate(zip(topics, brokers, queue_ids, keys, strict=True)):
            code = wishes.get(wish)
            if code is None:
                target = self._target(*wish, row, place)
                code = wishes[wish] = codes.setdefault(target, len(codes))
            chosen[row] = code
        return chosen, list(codes)

    def _target(
        self,
        topic: str,
        broker: str | None,
        queue_id: int | None,
        key: str | int | None,
        row: int,
        place: Callable[[int], str],
    ) -> Target:
        """The destination of one row: an explicit queue, else by key, among a broker's queues."""
        broker = broker or None
        if queue_id is None and broker is None and key in (None, ""):
            return Target(topic)
        queues = self.queues(topic, broker)
        named = [q for q in queues if broker in (None, q.broker_name)]
        if queue_id is None and named:
            if key in (None, ""):
                return Target(topic, broker=broker)
            return Target(topic, named[hashed(str(key), len(named))])
        exact = [q for q in named if q.queue_id == queue_id]
        if len(exact) == 1:
            return Target(topic, exact[0])
        there = ", ".join(f"{q.broker_name}/{q.queue_id}" for q in queues)
        wanted = f"{broker or 'any broker'}/{'any' if queue_id is None else queue_id}"
        wrong = "is on several brokers: say which in brokerName" if exact else "cannot be written"
        raise ConfigurationError(f"{place(row)}: queue {wanted} {wrong}; there are {there}")


# ── Rows, put together ──


def pieces(sizes: Numbers, limit_bytes: int) -> Iterator[tuple[int, int]]:
    """Split rows into ranges of at most `limit_bytes`, with at least one row each."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + limit_bytes, "right")))
        yield start, end
        start = end


def shipped(rows: Rows, batch_rows: int, batch_bytes: int) -> Iterator[Shipment]:
    """Group the rows into requests of at most `batch_rows` rows and `batch_bytes` bytes."""
    order = arranged(rows)
    items = batch_items(rows)
    if order is not None:
        items = items.take(pa.array(order))
    starts = byte_offsets(items)
    data = memoryview(items.buffers()[2])
    places = order.tolist() if order is not None else range(len(rows.ids))
    for first, last in runs(rows, order):
        start = first
        while start < last - 1:
            room = int(np.searchsorted(starts, starts[start] + batch_bytes, "right")) - 1
            end = max(start + 1, min(last, start + batch_rows, room))
            if end - start == 1:
                yield single(rows, places[start])
            else:
                here = places[start:end]
                yield batched(rows, here, bytes(data[starts[start] : starts[end]]))
            start = end
        if start < last:
            yield single(rows, places[start])


def arranged(rows: Rows) -> npt.NDArray[np.int64] | None:
    """Order the rows so that those of one request are neighbours; None if they are already.

    Within an explicitly chosen queue rows keep their order, whatever their sysFlag and born time.
    """
    one_kind = not (rows.alone.any() or rows.sys_flags.any() or rows.born_ms.any())
    if one_kind and len(rows.targets) == 1:
        return None
    fixed = np.array([target.queue is not None for target in rows.targets])[rows.codes]
    kinds = (np.where(fixed, 0, rows.born_ms), np.where(fixed, 0, rows.sys_flags))
    order: npt.NDArray[np.int64] = np.lexsort((*kinds, rows.alone, rows.codes))
    return order


def runs(rows: Rows, order: npt.NDArray[np.int64] | None) -> Iterator[tuple[int, int]]:
    """Split arranged rows into ranges that may share a request."""
    count = len(rows.ids)
    if order is None:
        yield 0, count
        return
    cut = rows.alone[order][1:]
    for column in (rows.codes, rows.sys_flags, rows.born_ms):
        cut = cut | (np.diff(column[order]) != 0)
    edges = [0, *(np.flatnonzero(cut) + 1).tolist(), count]
    yield from pairwise(edges)


def batch_items(rows: Rows) -> Any:
    """Encode each row as one message of a batch body, all in one array."""
    count = len(rows.ids)
    lengths = byte_lengths(rows.properties)
    fixed = BATCH_HEAD.size + LENGTH16.size
    heads = np.zeros(count, HEAD)
    heads["size"] = fixed + rows.sizes + lengths
    heads["flag"] = rows.flags
    heads["body_length"] = rows.sizes
    tails = lengths.astype(">i2")
    return pc.binary_join_element_wise(
        packed(heads),
        rows.bodies,
        packed(tails),
        rows.properties.cast(pa.binary()),
        b"",
    )


HEAD = np.dtype([(name, ">i4") for name in ("size", "magic", "body_crc", "flag", "body_length")])
assert HEAD.itemsize == BATCH_HEAD.size


def single(rows: Rows, row: int) -> Shipment:
    """Encode one row as a request of its own."""
    target = rows.targets[rows.codes[row]]
    batch = ProducerBatch(
        target.topic,
        [rows.ids[row]],
        rows.properties[row].as_py(),
        bytes(rows.bodies[row].as_buffer()),
        int(rows.sys_flags[row]),
        int(rows.flags[row]),
    )
    size, born_ms = int(rows.sizes[row]), int(rows.born_ms[row])
    return Shipment(batch, target.queue, target.broker, size, born_ms)


def batched(rows: Rows, places: Sequence[int], body: bytes) -> Shipment:
    """Encode several rows as one request; the broker writes its sysFlag into each message."""
    first = places[0]
    target = rows.targets[rows.codes[first]]
    if isinstance(places, range):
        here = slice(places.start, places.stop)
        ids, size = rows.ids[here], rows.sizes[here].sum()
    else:
        ids, size = [rows.ids[row] for row in places], rows.sizes[places].sum()
    batch = ProducerBatch(target.topic, ids, WAITS, body, int(rows.sys_flags[first]), as_batch=True)
    born_ms = int(rows.born_ms[first])
    return Shipment(batch, target.queue, target.broker, int(size), born_ms)


def numbers(name: str, columns: Mapping[str, Any], count: int) -> Numbers:
    """A column of integers, or of times in ms, with nulls as 0. Raises: ConfigurationError."""
    column = columns.get(name)
    if column is None:
        return np.zeros(count, np.int64)
    if pa.types.is_timestamp(column.type):
        column = milliseconds(column)
    else:
        try:
            column = column.cast(pa.int32())
        except pa.ArrowInvalid as error:
            raise ConfigurationError(f"column {name}: {error}") from None
    return np.asarray(pc.fill_null(column, 0)).astype(np.int64)
