"""Base of every JSON body: tolerant reading, canonical writing.

Reading uses msgspec where the document is well-formed; else the relaxed reader, with nulls taken as
absent and numbers and texts converted to each other. Written is compact JSON, sorted by name as in
Java. The size of a body that a server reads is bounded, because decoding blocks the event loop.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire import relaxed_json

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_BYTES_MAX: Final = 1 << 20
"""The largest JSON body of a client: it is decoded in one step."""
SIGNS_MAX: Final = 100_000
"""Colons, commas and brackets of a request, a bound on the number of its values: some 10 ms."""
RELAXED_BYTES_MAX: Final = 256 << 10
RELAXED_SIGNS_MAX: Final = 20_000
"""Signs of a document that needs the relaxed reader, which takes about a microsecond for each."""
SIGNS: Final = "brackets, commas and colons"
NOT_SIGNS: Final = bytes(set(range(256)) - set(b"{[,:"))

_encode = msgspec.json.Encoder(order="sorted").encode


class Body:
    """Mixed into a Struct: a JSON object with declared members. Unknown ones are ignored."""

    __slots__ = ()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """The body that these bytes of JSON are. Raises: BodyError."""
        try:
            body: Self = decoder(cls)(data)  # type: ignore[arg-type]  # classes are hashable
        except (ValueError, RecursionError):
            body = cls.from_document(relaxed_json.decode(data))
        return body

    @classmethod
    def from_client(
        cls,
        data: bytes | memoryview,
        most_bytes: int = REQUEST_BYTES_MAX,
        most_signs: int = SIGNS_MAX,
    ) -> Self:
        """The body of an untrusted peer: one that would take long is refused. Raises: BodyError.

        The bounds are those of bodies of this kind.
        """
        check(cls.__name__, "bytes", len(data), most_bytes)
        if len(data) > most_signs:
            check(cls.__name__, SIGNS, signs_in(data), most_signs)
        try:
            body: Self = decoder(cls)(data)  # type: ignore[arg-type]  # classes are hashable
        except (ValueError, RecursionError):
            what = "of JSON that is not as declared"
            check(cls.__name__, f"bytes {what}", len(data), RELAXED_BYTES_MAX)
            check(cls.__name__, f"{SIGNS} {what}", signs_in(data), RELAXED_SIGNS_MAX)
            body = cls.from_document(relaxed_json.decode(data))
        return body

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """From decoded JSON. Raises: BodyError."""
        try:
            return msgspec.convert(cls.repaired(without_nulls(document)), cls, strict=False)
        except (ValueError, RecursionError) as error:
            raise BodyError(f"{cls.__name__}: {error}") from error

    @classmethod
    def repaired(cls, document: Any) -> Any:
        """A hook for members that some clients write differently."""
        return document

    def to_bytes(self) -> bytes:
        """Compact JSON."""
        return _encode(self)


def signs_in(data: bytes | memoryview) -> int:
    """How many of them a document has: it has no more values."""
    return len(bytes(data).translate(None, NOT_SIGNS))


def check(name: str, what: str, count: int, most: int) -> None:
    """Refuse more than `most` of something. Raises: BodyError."""
    if count > most:
        raise BodyError(f"{name}: {count} {what}, at most {most} are taken")


@cache
def decoder(cls: type) -> Callable[[Any], Any]:
    """The fast decoder of a class."""
    return msgspec.json.Decoder(cls, strict=False).decode


def without_nulls(value: Any) -> Any:
    """A document without its members that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
