"""Parses the property strings of many rows to Arrow maps and values, without an object per row.

The input is the strings `name 0x01 value 0x02 …` as one Arrow binary array. numpy splits the rows
whose 0x01 and 0x02 alternate and that are UTF-8 (all that clients write); the few others go through
`store.format.properties`, which defines the meaning of a string.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aerobee.store.format import properties

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.integer[Any]]
    Mask: TypeAlias = NDArray[np.bool_]

HIDDEN = b"__CRC32#"
"""The prefix of a checksum that some brokers append; it is no property of the message."""
ENTRIES_MAX = 32
"""Rows with more entries are parsed one by one, because duplicates are searched in pairs."""
WORD = 8
IS, END = 1, 2
ALTERNATING = np.frombuffer(bytes((IS, END)), np.uint16)[0]
MASKS = np.array([(1 << 8 * length) - 1 for length in range(WORD + 1)], np.uint64)
"""The mask of the bytes of a little-endian word that belong to a name of each length."""
MIX = np.uint64(0x9E37_79B9_7F4A_7C15)
MAP = pa.map_(pa.string(), pa.string())


def as_numpy(strings: Any) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Offsets (one more than rows) and bytes of a binary or string array that is not a slice."""
    assert strings.offset == 0
    _, offsets, data = strings.buffers()
    bounds = np.frombuffer(offsets, np.int32)[: len(strings) + 1]
    if data is None:
        return bounds, np.empty(0, np.uint8)
    return bounds, np.frombuffer(data, np.uint8)[: bounds[-1]]


class Properties:
    """The properties of `len(strings)` rows; `strings` is an Arrow binary array without nulls."""

    def __init__(self, strings: Any) -> None:
        self.rows = len(strings)
        self.odd: dict[int, dict[str, str]] = {}
        """Rows that numpy cannot split, parsed one by one."""
        strings = _closed(strings)
        bounds, data = as_numpy(strings)
        marks = np.flatnonzero(data <= END)
        if not _regular(strings, data, marks):
            mask = _irregular(bounds, data, marks) | _not_utf8(strings)
            self._read_one_by_one(strings, mask)
            strings = pc.if_else(pa.array(mask), pa.scalar(b""), strings)
            bounds, data = as_numpy(strings)
            marks = np.flatnonzero(data <= END)
        self._strings, self._bounds, self._data = strings, bounds, data
        # Of each entry: the positions of its name, of its 0x01, and of the 0x02 after the value.
        self._names, self._ends = marks[0::2].astype(np.int32), marks[1::2].astype(np.int32)
        self._starts = np.zeros(len(self._ends), np.int32)
        # A row begins at the end of the row before it, and so does a name.
        np.add(self._ends[:-1], 1, out=self._starts[1:])
        self._lengths = self._names - self._starts

    def value_of(self, name: bytes) -> Any:
        """The value of one property in each row, null if it is absent. Name: ≤ 8 bytes."""
        slots = self._named(name)
        names, ends = self._names[slots], self._ends[slots]
        filled = ends - names > 1
        if not filled.all():
            names, ends = names[filled], ends[filled]
        places = np.empty(2 * len(ends) + 1, np.int32)
        np.add(names, 1, out=places[0:-1:2])
        places[1::2] = ends
        places[-1] = len(self._data)
        values = _slots(places, self._data).take(self._picked(ends))
        if not self.odd:
            return values
        mask = np.zeros(self.rows, np.bool_)
        mask[list(self.odd)] = True
        others = [self.odd[row].get(name.decode()) for row in sorted(self.odd)]
        return pc.replace_with_mask(values, pa.array(mask), pa.array(others, pa.string()))

    def map(self) -> Any:
        """All properties of each row except HIDDEN, as a map array."""
        firsts = self._firsts
        entries = np.arange(0, 4 * len(self._ends), 4, dtype=np.int32)
        dropped = self._dropped()
        if dropped is not None:
            entries = entries[~dropped]
            firsts = np.concatenate(([0], np.cumsum(~dropped)))[firsts]
        places = np.empty(4 * len(self._ends) + 1, np.int32)
        table = places[:-1].reshape(-1, 4)
        table[:, 0] = self._starts
        table[:, 1] = self._names
        table[:, 2] = self._names + 1
        table[:, 3] = self._ends
        places[-1] = len(self._data)
        slots = _slots(places, self._data)
        made = pa.MapArray.from_arrays(
            pa.array(firsts.astype(np.int32)),
            slots.take(pa.array(entries)),
            slots.take(pa.array(entries + 2)),
        )
        if not self.odd:
            return made
        rows = sorted(self.odd)
        hidden = HIDDEN.decode()
        others = [[kv for kv in self.odd[row].items() if kv[0] != hidden] for row in rows]
        order = np.arange(self.rows)
        order[rows] = np.arange(self.rows, self.rows + len(rows))
        return pa.concat_arrays([made, pa.array(others, MAP)]).take(pa.array(order))

    def _read_one_by_one(self, strings: Any, mask: Mask) -> None:
        for row in np.flatnonzero(mask).tolist():
            self.odd[row] = properties.decode(strings[row].as_py())

    @cached_property
    def _firsts(self) -> Ints:
        """The first entry of each row, and the end of the last."""
        return np.searchsorted(self._ends, self._bounds)

    @cached_property
    def _row_of(self) -> Ints:
        """The row of each entry."""
        return np.repeat(np.arange(self.rows), np.diff(self._firsts))

    @cached_property
    def _padded(self) -> NDArray[np.uint8]:
        """The bytes, with a padding word at both ends."""
        padded = np.zeros(len(self._data) + 2 * WORD, np.uint8)
        padded[WORD:-WORD] = self._data
        return padded

    def _words_at(self, places: Any) -> NDArray[np.uint64]:
        """The little-endian words at these positions of the padded bytes."""
        count = len(self._padded) - 2 * WORD + 1
        words = np.ndarray((count,), "<u8", self._padded.data, offset=WORD, strides=(1,))
        picked: NDArray[np.uint64] = words[places]
        return picked

    @cached_property
    def _words(self) -> NDArray[np.uint64]:
        """The first 8 bytes of each name; shorter names are followed by other bytes."""
        return self._words_at(self._starts)

    def _named(self, name: bytes) -> Ints:
        """The entries with this name."""
        assert len(name) <= WORD
        # No name holds a 0x01, so a comparison that includes it excludes longer names.
        whole = (name + b"\x01")[:WORD]
        same = (self._words & MASKS[len(whole)]) == np.frombuffer(whole.ljust(WORD, b"\0"), "<u8")[
            0
        ]
        slots = np.flatnonzero(same)
        if len(name) == WORD:
            slots = slots[self._lengths[slots] == WORD]
        return slots

    def _picked(self, ends: Ints) -> Any:
        """The slot of each row's value, or null; of several the last one. `ends` is ascending."""
        count, bounds = len(ends), self._bounds
        if count == self.rows and ((ends < bounds[1:]) & (ends >= bounds[:-1])).all():
            return pa.array(np.arange(0, 2 * count, 2, dtype=np.int32))
        # numpy keeps the last value written to an index.
        picked = np.full(self.rows, -1, np.int64)
        picked[np.searchsorted(bounds, ends, "right") - 1] = np.arange(0, 2 * count, 2)
        return pa.array(picked, mask=picked < 0)

    def _dropped(self) -> Mask | None:
        """Entries that are not part of the map, and all of rows with possible duplicates."""
        dropped: Mask | None = None
        sizes = self._ends - self._names
        if len(sizes) and (self._lengths.min() == 0 or sizes.min() == 1):
            dropped = (self._lengths == 0) | (sizes == 1)
        hidden = self._named(HIDDEN)
        doubled = self._rows_with_equal_names(dropped)
        if len(hidden) or doubled is not None:
            dropped = np.zeros(len(sizes), np.bool_) if dropped is None else dropped
            dropped[hidden] = True
        if doubled is not None:
            assert dropped is not None
            self._read_one_by_one(self._strings, doubled)
            dropped |= doubled[self._row_of]
        return dropped

    def _rows_with_equal_names(self, dropped: Mask | None) -> Mask | None:
        """Rows that may have duplicate names, or too many to check; most of them have none."""
        counts = np.diff(self._firsts)
        most = int(counts.max(initial=0))
        doubled = counts > ENTRIES_MAX if most > ENTRIES_MAX else None
        marks = self._words & MASKS[np.minimum(self._lengths, WORD)]
        long = np.flatnonzero(self._lengths > WORD)
        if len(long):
            marks[long] ^= self._words_at(self._names[long] - WORD) * MIX
            marks[long] ^= self._lengths[long].astype(np.uint64)
        for apart in range(1, min(most, ENTRIES_MAX)):
            same = marks[apart:] == marks[:-apart]
            if same.any():
                at = np.flatnonzero(same)
                rows = self._row_of
                at = at[rows[at] == rows[at + apart]]
                if len(at):
                    doubled = np.zeros(self.rows, np.bool_) if doubled is None else doubled
                    doubled[rows[at]] = True
        return doubled


def _slots(places: NDArray[np.int32], data: NDArray[np.uint8]) -> Any:
    """The bytes between adjacent positions as strings; they are known to be UTF-8."""
    return pa.Array.from_buffers(
        pa.string(), len(places) - 1, [None, pa.py_buffer(places), pa.py_buffer(data)]
    )


def _closed(strings: Any) -> Any:
    """Append a missing 0x02 to strings that are not empty: some clients leave it out."""
    bounds, data = as_numpy(strings)
    filled = bounds[1:] > bounds[:-1]
    if filled.all():
        is_open = data[bounds[1:] - 1] != END
    else:
        is_open = np.zeros(len(filled), np.bool_)
        is_open[filled] = data[bounds[1:][filled] - 1] != END
    if not is_open.any():
        return strings
    tails = pc.if_else(pa.array(is_open), pa.scalar(bytes((END,))), pa.scalar(b""))
    return pc.binary_join_element_wise(strings, tails, pa.scalar(b""))


def _regular(strings: Any, data: NDArray[np.uint8], marks: Ints) -> bool:
    """Whether every row, each ending with 0x02, has valid entries only, and all bytes are UTF-8."""
    if len(marks) % 2 or not (data[marks].view(np.uint16) == ALTERNATING).all():
        return False
    try:
        strings.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _irregular(bounds: Any, data: NDArray[np.uint8], marks: Ints) -> Mask:
    """Rows with anything but entries; UTF-8 is not checked."""
    firsts = np.searchsorted(marks, bounds.astype(np.int64))
    counts = np.diff(firsts)
    rows = np.repeat(np.arange(len(counts)), counts)
    wanted = IS + (np.arange(len(marks)) - firsts[rows]) % 2
    mask: Mask = counts % 2 == 1
    mask[rows[data[marks] != wanted]] = True
    return mask


def _not_utf8(strings: Any) -> Mask:
    mask = np.zeros(len(strings), np.bool_)
    try:
        strings.cast(pa.string())
    except pa.ArrowInvalid:
        for row, value in enumerate(strings.to_pylist()):
            try:
                value.decode()
            except UnicodeDecodeError:
                mask[row] = True
    return mask
