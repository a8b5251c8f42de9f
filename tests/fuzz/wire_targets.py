"""What reads bytes from the network, and what must hold of it for any bytes.

Each target takes one input. It raises AssertionError for a broken promise; any other exception is a
finding, too, because only the errors of the protocol may leave what is tried here.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aerobee.broker.errors import FilterInvalid
from aerobee.broker.filters.sql_filter import SqlFilter
from aerobee.remoting.errors import BodyError, FrameError, HeaderError
from aerobee.remoting.wire import relaxed_json
from aerobee.remoting.wire.codec import json_header
from aerobee.remoting.wire.codes import Encoding
from aerobee.remoting.wire.command import Command, decode, encode_request
from aerobee.remoting.wire.frame import FrameDecoder
from aerobee.store.errors import MessageIllegal, RecordDamaged
from aerobee.store.format import properties
from aerobee.store.format.batch import batch_items
from aerobee.store.format.faults import NoRecord
from aerobee.store.format.record import parse, read
from aerobee.store.format.sql_parser import parse as parse_sql
from tests.broker.filters import oracle
from tests.kit.strategies import HEADERS, cut

if TYPE_CHECKING:
    from aerobee.remoting.wire.header import Header

SMALL_FRAME, SMALL_HEADER = 4_096, 1_024
CUTS = 6
"""Bytes at the beginning of an input that say where the rest is cut."""
ENCODINGS = len(Encoding)
PLAIN = re.compile(r"(?!.*(0[xX]|_))[ -~]*")
"""Texts whose numbers the walk through the tree reads as Java does."""


def frames(data: bytes) -> None:
    """However a stream is cut, it gives the same frames and the same verdict."""
    places, stream = data[:CUTS], data[CUTS:]
    at = sorted(place * len(stream) // 256 for place in places)
    assert fed(cut(stream, at)) == fed([stream])


def fed(pieces: list[bytes]) -> tuple[list[tuple[int, bytes, bytes]], bool]:
    """The frames of a stream, and whether it ended in a bad one."""
    decoder = FrameDecoder(SMALL_FRAME, SMALL_HEADER)
    found: list[tuple[int, bytes, bytes]] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        try:
            whole = decoder.feed(piece)
        except FrameError as error:
            found += [(kind, bytes(header), bytes(body)) for kind, header, body in error.frames]
            return found, True
        found += [(kind, bytes(header), bytes(body)) for kind, header, body in whole]
        assert decoder.pending_bytes <= min(size, SMALL_FRAME), "it keeps more than one frame"
    return found, False


def headers(data: bytes) -> None:
    """Any header decodes or is refused; what it says comes through every encoding unchanged."""
    if len(data) < 2:
        return
    encoding, header_class = data[0] % ENCODINGS, HEADERS[data[1] % len(HEADERS)]
    header = data[2:]
    try:
        command = decode(encoding, header, b"")
    except FrameError:
        return
    if encoding == Encoding.JSON:
        same_as_the_careful_way(command, header)
    with suppress(HeaderError):
        command.ext_fields()
    try:
        typed = command.header(header_class)
    except HeaderError:
        return
    assert type(typed) is header_class
    for other in Encoding:
        if other is not Encoding.ROCKETMQ or not _has_empty_text(typed):
            assert again(typed, int(other), command.opaque) == typed, other.name


def same_as_the_careful_way(command: Command, header: bytes) -> None:
    """What msgspec reads of a JSON header is what the tolerant decoder reads.

    Fields that are no object, or too many, are refused by that one at once, and by the other when
    they are asked for.
    """
    try:
        slow = Command(*json_header.decode(header))
    except FrameError:
        try:
            command.ext_fields()
        except HeaderError:
            return
        raise
    for name in ("code", "opaque", "flag", "version", "remark"):
        assert getattr(slow, name) == getattr(command, name), name


def again(typed: Header, encoding: int, opaque: int) -> Header:
    """A header, written and read."""
    frame = encode_request(int(type(typed).code), opaque, typed, encoding=encoding)
    [(kind, header, body)] = FrameDecoder().feed(frame)
    assert not body
    return decode(kind, header, body).header(type(typed))


def _has_empty_text(typed: Header) -> bool:
    """Type 1 cannot tell an empty text from an absent one."""
    return "" in typed.ext().values()


def records(data: bytes) -> None:
    """A record is whole or none, of a batch and of properties each piece is taken or refused."""
    for crc in (False, True):
        found = parse(data, 0, int.from_bytes(data[28:36], "big", signed=True), crc)
        if not isinstance(found, NoRecord):
            assert found.size <= len(data)
    try:
        whole = read(data)
        assert whole.size <= len(data)
        assert len(whole.body) < whole.size
    except RecordDamaged:
        pass
    with suppress(MessageIllegal):
        assert sum(18 + 2 + len(b) + len(p) for _, b, p in batch_items(data)) <= len(data)
    pairs = properties.decode(data)
    text = properties.encode(pairs)
    assert properties.decode(text) == pairs
    encoded = text.encode()
    for name in list(pairs)[:4]:
        assert properties.value_of(encoded, name.encode()) == pairs[name]
    assert properties.is_closed(properties.closed(data))


def filters(data: bytes) -> None:
    """A text is a filter or refused; compiled it says what the walk through its tree says."""
    expression, _, rest = data.decode("utf-8", "replace").partition("\x00")
    try:
        compiled = SqlFilter(expression)
    except FilterInvalid:
        return
    values = properties.decode(rest)
    verdict = compiled.matches(properties.encode(values).encode())
    assert verdict in (True, False)
    if all(map(PLAIN.fullmatch, (expression, *values.values()))):
        assert verdict is oracle.matches(parse_sql(expression).root, values)


def json_bodies(data: bytes) -> None:
    """Standard JSON is read as it is; anything else is read or refused."""
    try:
        ours = relaxed_json.decode(data)
    except BodyError:
        return
    relaxed_json.decode(json.dumps(ours).encode())
    try:
        theirs = json.loads(data)
    except (ValueError, RecursionError):
        return
    if b"$ref" not in data and b"\\u" not in data:
        assert same(ours, theirs), (ours, theirs)


def same(ours: Any, theirs: Any) -> bool:
    """Equal, of one type, and with numbers that only differ where a double cannot tell."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, float) or isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-15)
    return type(ours) is type(theirs) and bool(ours == theirs)
