"""What every JSON body can do: be read, as its sender wrote it, and be written.

Reading is msgspec's where the document is what it should be; else the relaxed reader's, with nulls
taken as absent and numbers and texts taken for each other. Written is compact JSON, sorted by name
as Java does it. What a server reads has bounds, for it does nothing else meanwhile.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire import relaxed_json
from aerobee.remoting.wire.header import I32, I64

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["I32", "I64", "REQUEST_BYTES_MAX", "Body", "without_nulls"]

REQUEST_BYTES_MAX: Final = 1 << 20
"""Of a JSON body that a client sends: it is read in one step."""
SIGNS_MAX: Final = 100_000
"""Colons, commas and brackets of a request, which say how many values it holds: some 10 ms."""
RELAXED_BYTES_MAX: Final = 256 << 10
RELAXED_SIGNS_MAX: Final = 20_000
"""The same for what only the relaxed reader reads: it takes about a microsecond for each sign."""
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
        """The same for what any peer sent: what would take long is not read. Raises: BodyError.

        The bounds are those of bodies of this kind.
        """
        check(cls.__name__, "bytes", len(data), most_bytes)
        signs = len(bytes(data).translate(None, NOT_SIGNS))
        check(cls.__name__, "brackets, commas and colons", signs, most_signs)
        try:
            body: Self = decoder(cls)(data)  # type: ignore[arg-type]  # classes are hashable
        except (ValueError, RecursionError):
            what = "of JSON that is not as declared"
            check(cls.__name__, f"bytes {what}", len(data), RELAXED_BYTES_MAX)
            check(cls.__name__, f"brackets, commas and colons {what}", signs, RELAXED_SIGNS_MAX)
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
        """The place for what some clients write otherwise."""
        return document

    def to_bytes(self) -> bytes:
        """Compact JSON."""
        return _encode(self)


def check(name: str, what: str, count: int, most: int) -> None:
    """Refuse too much of something. Raises: BodyError."""
    if count > most:
        raise BodyError(f"{name}: {count} {what}, at most {most} are taken")


@cache
def decoder(cls: type) -> Callable[[Any], Any]:
    """The fast reader of a class."""
    return msgspec.json.Decoder(cls, strict=False).decode


def without_nulls(value: Any) -> Any:
    """The same document, members that are null left out."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
