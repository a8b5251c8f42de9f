"""Converts Arrow buffers to numpy arrays and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]


def byte_offsets(array: Any) -> Numbers:
    """The byte offset of each element of a string or binary array, and the end of the last one."""
    if not len(array):
        return np.zeros(1, np.int64)
    view = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
    return view.astype(np.int64)


def byte_lengths(array: Any) -> Numbers:
    """The size in bytes of each element of a string or binary array."""
    return np.diff(byte_offsets(array))


def value_bytes(array: Any) -> npt.NDArray[np.uint8]:
    """The bytes of all elements of a string or binary array, without a copy."""
    data = array.buffers()[2]
    if data is None:
        return np.zeros(0, np.uint8)
    starts = byte_offsets(array)
    return np.frombuffer(data, np.uint8)[starts[0] : starts[-1]]


def packed(values: Any) -> Any:
    """Convert a numpy array of fixed-size elements to a binary array of the same bytes."""
    size = values.dtype.itemsize
    starts = np.arange(0, size * len(values) + 1, size, dtype=np.int32)
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)
