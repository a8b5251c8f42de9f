"""Index file: head, slots, entries, and the hash of a key.

`40 + 4·slots + 20·entries` bytes. Source: store format §1.4 (IndexFile, IndexHeader).
"""

from __future__ import annotations

from typing import NamedTuple

from store.format.layout import Layout, i32, i64
from store.format.tags import java_hash

__all__ = [
    "INDEX_ENTRY",
    "INDEX_HEAD",
    "INDEX_SLOT",
    "IndexEntry",
    "IndexHead",
    "IndexSlot",
    "file_bytes",
    "index_key",
    "key_hash",
]


class IndexHead(NamedTuple):
    """Times and places of the first and last message.

    `index_count` starts at 1, entry 0 is unused.
    """

    begin_timestamp: i64 = 0
    end_timestamp: i64 = 0
    begin_physical_offset: i64 = 0
    end_physical_offset: i64 = 0
    hash_slot_count: i32 = 0
    index_count: i32 = 1


class IndexSlot(NamedTuple):
    """Number of the newest entry with this hash, 0 for none."""

    newest: i32


class IndexEntry(NamedTuple):
    """One key of one message; `time_diff_s` counts from the head's begin time, in seconds."""

    key_hash: i32
    physical_offset: i64
    time_diff_s: i32
    previous: i32


INDEX_HEAD = Layout(IndexHead, size=40)
INDEX_SLOT = Layout(IndexSlot, size=4)
INDEX_ENTRY = Layout(IndexEntry, size=20)


def index_key(topic: str, key: str) -> str:
    """What is hashed for a key of a message."""
    return f"{topic}#{key}"


def key_hash(key: str) -> int:
    """Absolute Java hash; the one number without an absolute value in 32 bits counts as 0."""
    value = abs(java_hash(key))
    return 0 if value == 0x8000_0000 else value


def file_bytes(slots: int, entries: int) -> int:
    """Length of an index file."""
    return INDEX_HEAD.size + slots * INDEX_SLOT.size + entries * INDEX_ENTRY.size
