"""Index file: head, slots, entries; which keys a message has, and the hash of each.

`40 + 4·slots + 20·entries` bytes. Source: store format §1.4 (IndexFile, IndexHeader, IndexService).
"""

from __future__ import annotations

from operator import mul
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from aerobee.store.format.layout import Layout, i32, i64
from aerobee.store.format.properties import value_of
from aerobee.store.format.system_names import REVIVE_LOG_PREFIX, WHEEL_TOPIC
from aerobee.store.format.tags import java_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

TIME_DIFF_MAX: Final = 0x7FFF_FFFF


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


class IndexShape(NamedTuple):
    """How many slots and entries a file has; nothing in the file says so."""

    slots: int
    entries: int

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return INDEX_HEAD.size + self.slots * INDEX_SLOT.size + self.entries * INDEX_ENTRY.size

    def slot_position(self, slot: int) -> int:
        """Where a slot begins in the file."""
        return INDEX_HEAD.size + slot * INDEX_SLOT.size

    def entry_position(self, number: int) -> int:
        """Where an entry begins in the file."""
        return self.slot_position(self.slots) + number * INDEX_ENTRY.size


def file_bytes(slots: int, entries: int) -> int:
    """Length of an index file."""
    return IndexShape(slots, entries).size


def index_key(topic: str, key: str) -> str:
    """The text that is hashed for a key of a message."""
    return f"{topic}#{key}"


def positive(value: int) -> int:
    """A hash as entries hold it: absolute; the one number that has no absolute value counts as 0.

    `value` is taken for 32 bits, signed or not.
    """
    value &= 0xFFFF_FFFF
    if value > 0x8000_0000:
        return 0x1_0000_0000 - value
    return 0 if value == 0x8000_0000 else value


def key_hash(key: str) -> int:
    """The hash of a whole key, topic included."""
    return positive(java_hash(key))


# ── Keys of a message ──

_UNIQUE: Final = b"UNIQ_KEY\x01"
_UNIQUE_BYTES: Final = len(_UNIQUE)
_KEYS: Final = b"KEYS\x01"
_OF_POPS: Final = (b"@ck", b"@ack")
"""How the unique keys of check points and acknowledgements end."""
_OWN_TOPICS: Final = (WHEEL_TOPIC, REVIVE_LOG_PREFIX)


def keys_of(properties: bytes) -> list[bytes]:
    """The keys by which a message is found: its UNIQ_KEY, then the pieces of its KEYS. Hot."""
    unique = _value(properties, _UNIQUE)
    keys = [unique] if unique else []
    if _KEYS in properties:
        keys += [key for key in _value(properties, _KEYS).split(b" ") if key]
    return keys


def _value(properties: bytes, name: bytes) -> bytes:
    """The value of a property, b"" for none; `name` ends with the 0x01."""
    at = properties.rfind(name)
    if at < 0:
        return b""
    begin = at + len(name)
    end = properties.find(b"\x02", begin)
    value = properties[begin:end] if end >= 0 else properties[begin:]
    if not value or (at and properties[at - 1] != 2):
        # Empty, or the end of another name: an earlier one may count.
        return (value_of(properties, name[:-1]) or "").encode("utf-8", "replace")
    return value


# ── Hashes of many keys ──

_NEXT: Final = 2
_ID: Final = Struct("23s3s3s3sB")
"""A client's message id, 32 letters, and what stands behind it."""
_id_at = _ID.unpack_from
_ID_BYTES: Final = 32
"""An id is hashed in four pieces: 23 letters, which are host, process and the quarter of an hour,
and the other 9 by threes. Digits have 4,096 threes at most, so mostly all four have come before.
"""
_END: Final = Struct("3s3s3s")
_END_BYTES: Final = 9
_SHIFT: Final = 31**3
_end_of = _END.unpack_from
_MEMORY_MAX: Final = 8_192
"""Pieces of one kind that are remembered."""
_POWERS_MAX: Final = 128
_Piece = TypeVar("_Piece")


def _powers() -> Iterator[tuple[int, ...]]:
    """31^(n−1) … 31, 1 modulo 2^32, for n = 0, 1, 2, …"""
    row: tuple[int, ...] = ()
    for _ in range(_POWERS_MAX + 1):
        yield row
        row = (row[0] * 31 & 0xFFFF_FFFF if row else 1, *row)


_WEIGHTS: Final = tuple(_powers())


_POWERS: Final = tuple(int(pow(31, n, 1 << 32)) for n in range(_POWERS_MAX + 1))
_ID_BACK: Final = int(pow(31, -_ID_BYTES, 1 << 32))
"""Takes back what moved a hash by the letters of an id."""


def _power(exponent: int) -> int:
    return _POWERS[exponent] if exponent <= _POWERS_MAX else int(pow(31, exponent, 1 << 32))


def _polynomial(text: bytes) -> int:
    """Java's hash of ASCII text, up to a multiple of 2^32."""
    if len(text) > _POWERS_MAX:
        return java_hash(text.decode("ascii"))
    return sum(map(mul, text, _WEIGHTS[len(text)]))


class KeyHasher:
    """Hashes of `topic#key`, at a fraction of the cost of hashing each letter.

    hash(a + b) = hash(a)·31^len(b) + hash(b). Message ids are host and process in front, the same
    for many messages, then times and counters in digits. Memory is bounded by forgetting.
    """

    __slots__ = ("_fronts", "_threes", "_topics")

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}
        """Hash of `topic#`, moved by the 32 letters of an id."""
        # Of ASCII pieces only: a key whose pieces are all found needs no other look. Topics are not
        # part of them, so that many topics and many clients do not multiply.
        self._fronts: dict[bytes, int] = {}
        """Hash of the front of an id, moved by the letters that follow."""
        self._threes: dict[bytes, int] = {}

    def hashes(self, topic: str, properties: bytes) -> list[int]:
        """One hash per key of a message, in the order of `keys_of`."""
        keys: list[tuple[int, int, int]] = []
        self.collect(keys, topic, properties, 0, 0)
        return [key_hash for key_hash, _, _ in keys]

    def collect(
        self,
        keys: list[tuple[int, int, int]],
        topic: str,
        properties: bytes,
        physical_offset: int,
        stored: int,
    ) -> None:
        """Append (hash, physical offset, store timestamp) per key, in the order of `keys_of`. Hot.

        A unique key of 32 letters, of which all pieces have come before, is put together here.
        """
        at = properties.rfind(_UNIQUE)
        if at >= 0:
            try:
                front, a, b, c, behind = _id_at(properties, at + _UNIQUE_BYTES)
                threes = self._threes
                value = (
                    (threes[a] * _SHIFT + threes[b]) * _SHIFT
                    + threes[c]
                    + self._fronts[front]
                    + self._topics[topic]
                ) & 0xFFFF_FFFF
                if behind != _NEXT or (at and properties[at - 1] != _NEXT):
                    value = -1
            except (KeyError, StructError):
                value = -1
            if value < 0:
                # New, of another length, the last property, or no UNIQ_KEY at all.
                key = _value(properties, _UNIQUE)
                # Nobody looks for the broker's own records of pops by their keys.
                if key and not (key.endswith(_OF_POPS) and topic.startswith(_OWN_TOPICS)):
                    value = self.learn(topic, key)
            if value >= 0:
                value = value if value < 0x8000_0000 else positive(value)
                keys.append((value, physical_offset, stored))
        if properties.find(_KEYS) >= 0:
            for key in _value(properties, _KEYS).split(b" "):
                if key:
                    value = positive(self.learn(topic, key))
                    keys.append((value, physical_offset, stored))

    def learn(self, topic: str, key: bytes) -> int:
        """The hash of any key, unsigned; what it learns makes the next one like it quick."""
        if not key.isascii():
            return java_hash(f"{topic}#{key.decode('utf-8', 'replace')}") & 0xFFFF_FFFF
        prefix = self._topics.get(topic)
        if prefix is None:
            prefix = _remember(self._topics, topic, java_hash(topic + "#") * _power(_ID_BYTES))
        size = len(key)
        if size == _ID_BYTES:
            front = key[:-_END_BYTES]
            if front not in self._fronts:
                _remember(self._fronts, front, _polynomial(front) * _power(_END_BYTES))
            for three in _end_of(key, len(front)):
                if three not in self._threes:
                    _remember(self._threes, three, _polynomial(three))
            return prefix + _polynomial(key) & 0xFFFF_FFFF
        return prefix * _ID_BACK * _power(size) + _polynomial(key) & 0xFFFF_FFFF


def _remember(memory: dict[_Piece, int], piece: _Piece, value: int) -> int:
    if len(memory) >= _MEMORY_MAX:
        memory.clear()
    memory[piece] = value = value & 0xFFFF_FFFF
    return value
