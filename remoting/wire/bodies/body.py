"""What every JSON body can do: be read, as its sender wrote it, and be written.

Reading is msgspec's where the document is what it should be; else the relaxed reader's, with nulls
taken as absent and numbers and texts taken for each other. Written is compact JSON, sorted by name
as Java does it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from remoting.errors import BodyError
from remoting.wire import relaxed_json
from remoting.wire.header import I32, I64

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["I32", "I64", "REQUEST_BYTES_MAX", "Body", "without_nulls"]

REQUEST_BYTES_MAX: Final = 1 << 20
"""Of a JSON body that a client sends: it is read in one step, some 30 ms for each MiB at worst."""

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
    def from_client(cls, data: bytes | memoryview) -> Self:
        """The body that a client sent. Raises: BodyError, also when it is too long."""
        if len(data) > REQUEST_BYTES_MAX:
            size = len(data)
            raise BodyError(
                f"the body of this request has {size} bytes, at most {REQUEST_BYTES_MAX} are taken"
            )
        return cls.from_bytes(data)

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
