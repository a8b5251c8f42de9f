"""Declared fields → packer, reader, offsets, size check. All integers are big-endian and signed.

A layout is a NamedTuple whose fields are annotated with the types below; the struct format, the
offset of each field and the check of the total size follow from it, at import.
"""

from __future__ import annotations

from mmap import mmap
from struct import Struct
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeAlias, TypeVar, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

i8: TypeAlias = Annotated[int, "b"]
i16: TypeAlias = Annotated[int, "h"]
i32: TypeAlias = Annotated[int, "i"]
i64: TypeAlias = Annotated[int, "q"]
u32: TypeAlias = Annotated[int, "I"]
host4: TypeAlias = Annotated[bytes, "8s"]
"""IPv4 address and i32 port."""
host6: TypeAlias = Annotated[bytes, "20s"]
"""IPv6 address and i32 port."""

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap
Row = TypeVar("Row", bound=tuple[Any, ...])


class Layout(Generic[Row]):
    """A fixed sequence of fields.

    `size` is checked against the declaration; `offset["field"]` is its first byte, and
    `codes["field"]` its format in the struct.
    `pack`, `pack_into`, `unpack_from` and `iter_unpack` are those of the compiled struct: hot loops
    bind them once, cold code uses `read` and names. Hosts of the other family are swapped in by
    `hosts={"field": host6}`.
    """

    __slots__ = (
        "codes",
        "iter_unpack",
        "offset",
        "pack",
        "pack_into",
        "row",
        "size",
        "struct",
        "unpack_from",
    )

    def __init__(self, row: type[Row], *, size: int, hosts: dict[str, Any] | None = None) -> None:
        fields = get_type_hints(row, include_extras=True) | (hosts or {})
        self.row = row
        self.offset: dict[str, int] = {}
        self.codes: dict[str, str] = {name: field.__metadata__[0] for name, field in fields.items()}
        codes = ">"
        for name, code in self.codes.items():
            self.offset[name] = Struct(codes).size
            codes += code
        self.struct = Struct(codes)
        self.size = self.struct.size
        assert self.size == size, f"{row.__name__} is {self.size} bytes, declared as {size}"
        self.pack = self.struct.pack
        self.pack_into = self.struct.pack_into
        self.unpack_from = self.struct.unpack_from
        self.iter_unpack = self.struct.iter_unpack

    def read(self, buffer: Buffer, at: int = 0) -> Row:
        """One row by name. Raises: struct.error when fewer than `size` bytes are left."""
        return self.row(*self.unpack_from(buffer, at))

    def pick(self, *names: str) -> Callable[[Buffer, int], tuple[Any, ...]]:
        """Reads only these fields, in their order in the layout; the others cost nothing.

        The bytes behind the last of them need not be in the buffer.
        """
        codes, end = ">", 0
        for name, code in self.codes.items():
            if name in names:
                codes += f"{self.offset[name] - end}x{code}"
                end = self.offset[name] + Struct(">" + code).size
        return Struct(codes).unpack_from

    def rows(self, buffer: Buffer) -> Iterator[Row]:
        """Every row of a buffer whose length is a multiple of `size`."""
        row = self.row
        return (row(*values) for values in self.iter_unpack(buffer))

    def write(self, row: Row) -> bytes:
        """The bytes of a row. Raises: struct.error when a value does not fit its field."""
        return self.pack(*row)
