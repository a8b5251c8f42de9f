"""Records of the log as tests look at them."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from aerobee.store.format.record import RecordHeader, parse, records

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.store.format.layout import Buffer
    from aerobee.store.format.record import MessageDraft


def bodies_of(views: Iterable[Buffer]) -> list[bytes]:
    """The bodies of whole records, in their order."""
    return [bytes(record.body) for record in records(views)]


def kind_or_size(data: Buffer, at: int, physical_offset: int, crc: bool = True) -> str | int:
    """The size of the whole record there, or the kind of what is there instead."""
    found = parse(data, at, physical_offset, crc)
    return found.size if isinstance(found, RecordHeader) else found.kind


def header_of(data: Buffer, at: int, physical_offset: int, crc: bool = False) -> RecordHeader:
    """The header of a record that must be whole."""
    found = parse(data, at, physical_offset, crc)
    assert isinstance(found, RecordHeader), found
    return found


def changed(draft: MessageDraft, **fields: object) -> MessageDraft:
    """A copy with other fields; msgspec's `replace` takes no draft of a compiled build."""
    other = copy(draft)
    for name, value in fields.items():
        setattr(other, name, value)
    return other
