"""Where the data of a file with holes end, whatever the system says of its holes."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format import sparse
from aerobee.store.format.sparse import data_ranges, used_end

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 4


class Memory:
    """A file in memory, of blocks that are holes or data."""

    def __init__(self, data: bytes, holes: frozenset[int]) -> None:
        self.data = data
        self.holes = holes

    def pread(self, size: int, position: int) -> bytes:
        return self.data[position : position + size]

    def data_ranges(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        return data_ranges(self._next_data, self._next_hole, begin, end)

    def close(self) -> None:
        """Nothing to give back."""

    def _next_data(self, at: int) -> int:
        for place in range(at, len(self.data)):
            if place // BLOCK not in self.holes:
                return place
        raise OSError(errno.ENXIO, "no more data")

    def _next_hole(self, at: int) -> int:
        there = range(at, len(self.data))
        return next((place for place in there if place // BLOCK in self.holes), len(self.data))


def refused(_at: int) -> int:
    raise OSError(errno.EOPNOTSUPP, "not here")


@given(
    st.lists(st.sampled_from([bytes(BLOCK), b"abcd", b"\0b\0\0", None]), max_size=12),
    st.integers(0, 50),
    st.integers(0, 50),
)
def test_the_end_is_behind_the_last_byte_that_is_not_zero(
    blocks: list[bytes | None], begin: int, end: int
) -> None:
    data = b"".join(block or bytes(BLOCK) for block in blocks)
    holes = frozenset(number for number, block in enumerate(blocks) if block is None)
    wanted = len(data[begin:end].rstrip(b"\0"))
    file = Memory(data, holes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse, "READ_BYTES", 3)
        assert used_end(file, begin, end) == begin + wanted


def test_where_nobody_can_tell_all_is_data_and_other_errors_go_on() -> None:
    assert list(data_ranges(refused, refused, 3, 9)) == [(3, 9)]

    def broken(_at: int) -> int:
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        list(data_ranges(broken, broken, 3, 9))
