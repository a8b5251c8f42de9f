"""The offsets of a master as its answer has them, read in parts: there may be a million.

Source: administration §4.2 (GET_ALL_CONSUMER_OFFSET). Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from aerobee.broker.consumers.consumer_offsets import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Iterator

PART: Final = 1_000
"""So many queues of one group and topic at most are read at once."""

TABLE: Final = re.compile(rb'"offsetTable"\s*+:\s*+\{\s*+')
"""A group of that name has a list, not an object."""
NAME: Final = re.compile(rb'"((?:[^"\\]++|\\.)*+)"\s*+:\s*+\{\s*+', re.DOTALL)
OFFSET: Final = re.compile(rb'"?(-?[0-9]{1,19})"?\s*+:\s*+(-?[0-9]{1,19})\s*+(?:,\s*+|(?=\}))')
"""Java writes the numbers of queues without quotes."""
END: Final = re.compile(rb"\}\s*+(?:,\s*+|(?=\}))")


def offsets_in_parts(body: bytes) -> Iterator[tuple[str, dict[int, int]]]:
    """`topic@group` and offsets by queue; one with many queues comes several times.

    Raises: ValueError where it is malformed.
    """
    table = TABLE.search(body)
    if table is None:
        raise ValueError("it has no offsetTable")
    at = table.end()
    while (name := NAME.match(body, at)) is not None:
        key, at = text_of(name[1]), name.end()
        queues: dict[int, int] = {}
        while (offset := OFFSET.match(body, at)) is not None:
            queues[int(offset[1])] = int(offset[2])
            at = offset.end()
            if len(queues) == PART:
                yield key, queues
                queues = {}
        end = END.match(body, at)
        if end is None:
            raise ValueError(f"no offset of a queue at byte {at} of the offsets of {key[:255]!r}")
        at = end.end()
        if SEPARATOR in key:
            yield key, queues
    if body[at : at + 1] != b"}":
        raise ValueError(f"no topic and group at byte {at} of the offsets")


def text_of(quoted: bytes) -> str:
    """The text of a JSON string, given without its quotes. Raises: ValueError."""
    if b"\\" not in quoted:
        return quoted.decode()
    return msgspec.json.decode(b'"%b"' % quoted, type=str)
