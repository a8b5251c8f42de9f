"""Reads a chunk of stored records as columns: numpy the fixed heads, Arrow the variable parts.

No object is made per row; the few cases that need one (a compressed body, text that is not UTF-8)
make it for their rows only. Lengths are checked before anything is read by them.
"""

from __future__ import annotations

import ipaddress
import logging
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aerobee.client.compression import COMPRESSED, TYPE_MASK, TYPE_NAMES, UNPACKED_MAX, unpack
from aerobee.errors import CompressionError, RecordDamagedError
from aerobee.spark.rows.properties import Properties
from aerobee.store.format import record
from aerobee.store.format.walk import fault_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

BYTES_MAX = 1 << 30
"""The most bytes of one Arrow array of bodies, well below its limit of 2 GiB."""
PIECE = 64 << 10
SIZE, MAGIC = "size", "magic"
V1 = np.array([record.MAGIC_V1], np.uint32).view(np.int32)[0]
V2 = np.array([record.MAGIC_V2], np.uint32).view(np.int32)[0]
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_000
"""The years 1 to 9999; times outside of them become the nearest bound."""
DAMAGED = "the body is damaged: it has another CRC than when it was stored"
HEX = np.array([f"{byte:02X}".encode() for byte in range(256)], "S2").view(np.uint16)


def _dtype(layout: Any) -> np.dtype[Any]:
    """The fields of a record's head as a numpy type: big-endian, hosts as raw bytes."""
    places = [*layout.offset.values(), layout.size]
    widths = [after - at for at, after in pairwise(places)]
    formats = [
        f"V{width}" if name.endswith("_host") else f">i{width}"
        for name, width in zip(layout.offset, widths, strict=True)
    ]
    return np.dtype({"names": list(layout.offset), "formats": formats, "offsets": places[:-1]})


HEADS = {family: _dtype(layout) for family, layout in record.HEADS.items()}
"""By the two address-family bits of the sysFlag."""


log = logging.getLogger("aerobee.spark")


class Bodies(Enum):
    """The form of bodies in rows."""

    STORED = "as they are stored"
    DECOMPRESSED = "decompressed; one that cannot be is an error"
    READABLE = "decompressed; one that cannot be as it is stored, and null if it is damaged"

    @classmethod
    def of(cls, decompress: bool, on_unreadable: str) -> Bodies:
        """The form that two options of a read name."""
        if not decompress:
            return cls.STORED
        return cls.READABLE if on_unreadable == "keep" else cls.DECOMPRESSED


class ChunkTooLarge(Exception):
    """The decompressed bodies of these rows exceed one batch; those of the first `rows` do not."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


_physical_offset = record.HEAD.pick("physical_offset")


def damaged(view: memoryview, at: int) -> RecordDamagedError:
    """The error for bytes that should be a record: their position, and what is wrong with them."""
    left = len(view) - at
    if not 0 <= at < len(view):
        return RecordDamagedError(f"no whole record at byte {at} of a buffer of {len(view)} bytes")
    place = _physical_offset(view, at)[0] if left >= record.HEAD.size else 0
    why = fault_at(view, at, place).detail
    return RecordDamagedError(
        f"no whole record at byte {at} of a buffer of {len(view)} bytes: {why}"
    )


class Rows:
    """The records at the positions `starts` (ascending) in `view`.

    Raises: RecordDamagedError if one of them is incomplete or overlaps the next.
    """

    def __init__(self, view: memoryview, starts: NDArray[np.int64]) -> None:
        self.view = view
        self.starts = starts
        self.count = len(starts)
        self._heads: list[tuple[NDArray[np.int64] | None, NDArray[np.void]]] = []
        self._read_heads()
        self._cut()

    def number(self, name: str, kind: Any = np.int64) -> NDArray[Any]:
        """One number of each head, in native byte order."""
        if len(self._heads) == 1:
            return self._heads[0][1][name].astype(kind)
        made = np.empty(self.count, kind)
        for rows, heads in self._heads:
            made[rows] = heads[name]
        return made

    def instants(self, name: str) -> Any:
        """A time of each head, converted from ms to µs."""
        ms = np.clip(self.number(name), FIRST_MS, LAST_MS)
        return pa.array(ms * 1000).view(pa.timestamp("us", tz="UTC"))

    def topics(self) -> Any:
        """The topics; bytes that are not UTF-8 become replacement characters."""
        raw = self._take(2)
        try:
            return raw.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([text.decode("utf-8", "replace") for text in raw.to_pylist()])

    @cached_property
    def properties(self) -> Properties:
        """The properties of each row."""
        return Properties(self._take(4))

    def bodies(self, form: Bodies, room: int) -> Any:
        """Bodies in this form, decompressed up to about `room` bytes; one row always fits.

        Raises: CompressionError, ChunkTooLarge.
        """
        stored = self._take(0)
        if form is Bodies.STORED:
            return stored
        flags, crcs = self.number("sys_flag"), self.number("body_crc")
        packed = np.flatnonzero(flags & COMPRESSED)
        if not len(packed):
            return stored
        bodies: list[bytes | None] = []
        for row in packed.tolist():
            packed_body = stored[row].as_buffer()
            is_whole = crc32(packed_body) & record.CRC_MASK == crcs[row]
            try:
                body = self._unpacked(row, packed_body, int(flags[row]), is_whole)
            except CompressionError as error:
                if form is Bodies.DECOMPRESSED:
                    raise
                log.warning("%s; it is read as %s", error, "it is stored" if is_whole else "null")
                body = packed_body.to_pybytes() if is_whole else None
            room -= len(body or b"")
            if room < 0 and self.count > 1:
                raise ChunkTooLarge(max(1, row))
            bodies.append(body)
        mask = pa.array((flags & COMPRESSED).astype(np.bool_))
        return pc.replace_with_mask(stored, mask, pa.array(bodies, pa.binary()))

    def _unpacked(self, row: int, body: Any, sys_flag: int, is_whole: bool) -> bytes | None:
        """The decompressed body of a row. Raises: CompressionError, which names the message."""
        try:
            if not is_whole:
                raise CompressionError(DAMAGED)
            return unpacked(body, sys_flag)
        except CompressionError as error:
            raise CompressionError(f"{self._place(row)}: {error}") from error

    def hosts(self, name: str) -> Any:
        """Hosts as `address:port`, IPv6 in brackets."""
        parts = []
        for rows, heads in self._heads:
            width = heads.dtype[name].itemsize
            raw = np.ascontiguousarray(heads[name])
            packed = pa.Array.from_buffers(
                pa.binary(width), len(raw), [None, pa.py_buffer(raw.view(np.uint8))]
            ).dictionary_encode()
            texts = pa.array([_host(host) for host in packed.dictionary.to_pylist()], pa.string())
            parts.append((rows, texts.take(packed.indices)))
        return self._merged(parts)

    def offset_ids(self) -> Any:
        """Store host and physical offset as upper-case hex digits: 32, or 56 with IPv6."""
        parts = []
        for rows, heads in self._heads:
            width = heads.dtype["store_host"].itemsize
            raw = np.empty((len(heads), width + 8), np.uint8)
            raw[:, :width] = _bytes_of(heads["store_host"], width)
            raw[:, width:] = _bytes_of(heads["physical_offset"], 8)
            places = np.arange(len(heads) + 1, dtype=np.int32) * np.int32(2 * (width + 8))
            texts = pa.Array.from_buffers(
                pa.string(), len(heads), [None, pa.py_buffer(places), pa.py_buffer(HEX[raw])]
            )
            parts.append((rows, texts))
        return self._merged(parts)

    def _read_heads(self) -> None:
        """Read the heads by address family; usually all are of one family, and one array."""
        if self.starts[-1] + record.HEAD.size > len(self.view):
            raise self._first_bad(self.starts + record.HEAD.size > len(self.view))
        first = self._gather(0, self.starts)
        families = first["sys_flag"].astype(np.int64) & record.HOST_FLAGS
        if not families.any():
            self._heads.append((None, first))
            return
        for family in np.unique(families).tolist():
            rows = np.flatnonzero(families == family)
            starts = self.starts[rows]
            beyond = starts + HEADS[family].itemsize > len(self.view)
            if beyond.any():
                raise damaged(self.view, int(starts[beyond][0]))
            self._heads.append((rows, self._gather(family, starts)))
        if len(self._heads) == 1:
            self._heads = [(None, self._heads[0][1])]

    def _gather(self, family: int, starts: NDArray[np.int64]) -> NDArray[np.void]:
        """Copy the heads at these positions; as plain bytes, which numpy copies fastest."""
        width = HEADS[family].itemsize
        plain = np.ndarray((len(self.view) - width + 1,), f"V{width}", self.view, strides=(1,))
        return plain[starts].view(HEADS[family])

    def _cut(self) -> None:
        """Locate body, topic and properties: 6 slots of an Arrow array over the same bytes."""
        starts, view = self.starts, np.frombuffer(self.view, np.uint8)
        magics, lengths = self.number(MAGIC, np.int32), self.number("body_length")
        ends = starts + self.number(SIZE)
        widths: Any = self._heads[0][1].itemsize
        if len(self._heads) > 1:
            widths = np.empty(self.count, np.int64)
            for rows, heads in self._heads:
                widths[rows] = heads.itemsize
        bodies = starts + widths
        topic_ats = bodies + lengths
        long = magics == V2
        bad = (ends > len(view)) | (lengths < 0) | (topic_ats + 3 > ends)
        bad |= ~(long | (magics == V1))
        if bad.any():
            raise self._first_bad(bad)
        names = view[topic_ats].astype(np.int64)
        bad = (names < 1) | (names > record.TOPIC_BYTES_MAX_V1)
        topics = topic_ats + 1
        if long.any():
            names[long] = names[long] << 8 | view[topics[long]]
            bad &= ~long
            topics = topics + long
        topic_ends = topics + names
        bad |= topic_ends + 2 > ends
        if bad.any():
            raise self._first_bad(bad)
        sizes = view[topic_ends].astype(np.int64) << 8 | view[topic_ends + 1]
        bad = (topic_ends + 2 + sizes != ends) | (sizes > 0x7FFF)
        bad[:-1] |= ends[:-1] > starts[1:]
        if bad.any():
            raise self._first_bad(bad)
        places = np.empty(6 * self.count + 1, np.int32)
        table = places[:-1].reshape(self.count, 6)
        base = starts[0]
        for at, column in enumerate((bodies, topic_ats, topics, topic_ends, topic_ends + 2, ends)):
            np.subtract(column, base, out=table[:, at], casting="unsafe")
        places[-1] = table[-1, 5]
        self._slots = pa.Array.from_buffers(
            pa.binary(), 6 * self.count, [None, pa.py_buffer(places), pa.py_buffer(view[base:])]
        )

    def _take(self, slot: int) -> Any:
        """Copy slot 0, 2 or 4 of each row: all bodies, topics or properties at once."""
        return self._slots.take(pa.array(np.arange(slot, 6 * self.count, 6, dtype=np.int32)))

    def _merged(self, parts: list[tuple[NDArray[np.int64] | None, Any]]) -> Any:
        """Merge the parts of the address families in the order of the rows."""
        if len(parts) == 1:
            return parts[0][1]
        order = np.empty(self.count, np.int64)
        order[np.concatenate([rows for rows, _ in parts if rows is not None])] = np.arange(
            self.count
        )
        return pa.concat_arrays([texts for _, texts in parts]).take(pa.array(order))

    def _first_bad(self, bad: NDArray[np.bool_]) -> RecordDamagedError:
        at = int(np.flatnonzero(bad)[0])
        start = int(self.starts[at])
        error = damaged(self.view, start)
        if at + 1 < self.count and str(error).endswith("a whole record"):
            return RecordDamagedError(f"the record at byte {start} reaches into the next one")
        return error

    def _place(self, row: int) -> str:
        """A description of a row for errors."""
        queue_id, offset = self.number("queue_id")[row], self.number("queue_offset")[row]
        return f"the message of topic {self.topics()[row]} in queue {queue_id} at offset {offset}"


def _bytes_of(column: NDArray[Any], width: int) -> NDArray[np.uint8]:
    """A column of heads as a matrix: the stored bytes of each row."""
    return np.ascontiguousarray(column).view(np.uint8).reshape(-1, width)


def _host(packed: bytes) -> str:
    address = ipaddress.ip_address(packed[:-4])
    port = int.from_bytes(packed[-4:], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def unpacked(body: Any, sys_flag: int) -> bytes:
    """Decompress a body; LZ4 and zstd by Arrow, so that workers need no further package.

    Raises: CompressionError.
    """
    method = TYPE_NAMES.get(sys_flag & TYPE_MASK)
    if method not in ("lz4", "zstd"):
        return unpack(memoryview(body), sys_flag)
    pieces, room = [], UNPACKED_MAX
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), method) as stream:
            # Arrow allocates the whole requested size, so ask for a little at a time.
            while room >= 0 and (piece := stream.read(PIECE)):
                pieces.append(piece)
                room -= len(piece)
    except (pa.ArrowInvalid, OSError) as error:
        raise CompressionError(f"the body does not unpack as {method}: {error}") from error
    if room < 0:
        raise CompressionError(f"the body unpacks to more than {UNPACKED_MAX} bytes")
    return b"".join(pieces)
