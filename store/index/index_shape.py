"""How many slots and entries an index file has, told from the file itself.

Nothing in the file says so, and the settings may have changed since it was made. But the head
counts the entries, the newest of them is the last thing in the file that is not zero, and from
there on each takes 20 bytes up to the end. The computed shape is believed only if the first and the
newest entry, and the slots of both, stand where it puts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.store.format.index import INDEX_ENTRY, INDEX_HEAD, INDEX_SLOT, IndexHead, IndexShape
from aerobee.store.format.sparse import used_end

if TYPE_CHECKING:
    from aerobee.store.files.disk import Handle
    from aerobee.store.format.index import IndexEntry

_NO_ENTRY: Final = bytes(INDEX_ENTRY.size)


def shape_of(handle: Handle, head: IndexHead, wanted: IndexShape) -> IndexShape | None:
    """The shape of the file with that head; None when no shape fits what is in it.

    `wanted` is the answer for a file without entries that is not longer. Raises: OSError.
    """
    size = handle.size()
    if head.index_count <= 1:
        return wanted if size <= wanted.size else None
    entries = head.index_count + (size - used_end(handle, 0, size)) // INDEX_ENTRY.size
    slots, rest = divmod(size - INDEX_HEAD.size - entries * INDEX_ENTRY.size, INDEX_SLOT.size)
    shape = IndexShape(slots, entries)
    return shape if slots > 0 and not rest and _fits(handle, head, shape) else None


def _fits(handle: Handle, head: IndexHead, shape: IndexShape) -> bool:
    """Whether the entries that the head names, and their slots, stand where the shape says."""
    last = head.index_count - 1
    if not 1 <= last < shape.entries:
        return False
    before = handle.pread(INDEX_ENTRY.size, shape.entry_position(0))
    oldest, newest = _entry(handle, shape, 1), _entry(handle, shape, last)
    return (
        before == _NO_ENTRY
        and oldest is not None
        and newest is not None
        and oldest.physical_offset == head.begin_physical_offset
        and newest.physical_offset == head.end_physical_offset
        and oldest.previous == 0
        and 0 <= newest.previous < last
        and _slot(handle, shape, newest) == last
        and 1 <= _slot(handle, shape, oldest) <= last
    )


def _entry(handle: Handle, shape: IndexShape, number: int) -> IndexEntry | None:
    data = handle.pread(INDEX_ENTRY.size, shape.entry_position(number))
    return INDEX_ENTRY.read(data) if len(data) == INDEX_ENTRY.size else None


def _slot(handle: Handle, shape: IndexShape, entry: IndexEntry) -> int:
    if entry.key_hash < 0:
        return -1
    data = handle.pread(INDEX_SLOT.size, shape.slot_position(entry.key_hash % shape.slots))
    return INDEX_SLOT.read(data).newest if len(data) == INDEX_SLOT.size else -1
