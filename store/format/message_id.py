"""Ids of messages: where a message is (offset id), and what a client calls it (UNIQ_KEY).

Source: remoting §4.5 (MessageDecoder.createMessageId, MessageClientIDSetter).
"""

from __future__ import annotations

from struct import Struct, pack
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_OFFSET = Struct(">q")
_UNIQ_TAIL = Struct(">HIIH")
_PORT_MAX = 0xFFFF


def offset_id(store_host: bytes, physical_offset: int) -> str:
    """32 upper-case hex digits (56 with an IPv6 host): address, i32 port, physical offset."""
    return (store_host + _OFFSET.pack(physical_offset)).hex().upper()


def offset_ids(store_host: bytes, physical_offsets: Sequence[int]) -> str:
    """The ids of many messages, with commas between. Hot."""
    host = store_host.hex().upper()
    offsets = pack(f">{len(physical_offsets)}q", *physical_offsets).hex(",", _OFFSET.size).upper()
    return host + offsets.replace(",", f",{host}")


def read_offset_id(message_id: str) -> tuple[bytes, int]:
    """Host (8 or 20 bytes) and physical offset.

    Raises: ValueError for anything but 32 or 56 hex digits, and for those that name no port. So
    all ids of clients are refused but those of processes with a number divisible by 65,536.
    """
    if len(message_id) not in (32, 56):
        raise ValueError(f"message id {message_id[:60]!r} has neither 32 nor 56 digits")
    raw = bytes.fromhex(message_id)
    if len(raw) * 2 != len(message_id):
        raise ValueError(f"message id {message_id!r} has spaces in it")
    host, (offset,) = raw[:-8], _OFFSET.unpack_from(raw, len(raw) - 8)
    if int.from_bytes(host[-4:], "big") > _PORT_MAX:
        raise ValueError(f"message id {message_id!r} names no port: it is one of a client")
    return host, offset


def uniq_id(address: bytes, process_id: int, salt: int, month_ms: int, counter: int) -> str:
    """A UNIQ_KEY as clients make it: 32 hex digits (56 with an IPv6 address).

    `address` is packed (4 or 16 bytes), `salt` stands where Java has its class loader's hash,
    `month_ms` counts from the start of the month.
    """
    tail = _UNIQ_TAIL.pack(process_id & 0xFFFF, salt & 0xFFFFFFFF, month_ms, counter & 0xFFFF)
    return (address + tail).hex().upper()


class UniqId(NamedTuple):
    """The content of a UNIQ_KEY: packed address, the low 16 bits of the process id, ms of the
    month.
    """

    address: bytes
    process_id: int
    month_ms: int


def read_uniq_id(message_id: str) -> UniqId:
    """The parts of a UNIQ_KEY. Raises: ValueError for anything but 32 or 56 hex digits."""
    if len(message_id) not in (32, 56):
        raise ValueError(f"message id {message_id[:60]!r} has neither 32 nor 56 digits")
    raw = bytes.fromhex(message_id)
    if len(raw) * 2 != len(message_id):
        raise ValueError(f"message id {message_id!r} has spaces in it")
    process_id, _, month_ms, _ = _UNIQ_TAIL.unpack(raw[-_UNIQ_TAIL.size :])
    return UniqId(raw[: -_UNIQ_TAIL.size], process_id, month_ms)
