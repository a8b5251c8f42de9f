"""Typed headers: fields are declared once; decoders and encoders are derived from the declaration.

The order of fields in a class is that of a positional MSGPACK header, so new ones go to the end.
Decoding uses msgspec where it agrees with Java. A header that msgspec refuses goes through
`read_fields`, which is the rule: numbers are decimal text in Java's ranges, a boolean is true if
its text is "true" in any case or "1", null is absent. (msgspec takes 3.0 for 3 besides; no client
sends that.) Encoding is generated code: answers carry text only, and nulls are left out. Source:
remoting §1.4, §1.6, §1.10.
"""

from __future__ import annotations

import linecache
import re
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    get_args,
)

import msgspec
from msgspec import NODEFAULT, Meta

from aerobee.remoting.errors import HeaderError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
I32 = Annotated[int, Meta(ge=-INT32_MAX - 1, le=INT32_MAX)]
I64 = Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
Scalar = str | int | bool | None
"""A field's value as it may arrive, before it is typed."""

DECIMAL = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
SHOWN_CHARACTERS = 40
"""How much of an unreadable value is repeated to the peer."""


def wire(name: str, *, default: Any = NODEFAULT) -> Any:
    """A field whose wire name is not its own name in camel case."""
    return msgspec.field(name=name, default=default)


@dataclass_transform(field_specifiers=(wire,))
class Header(msgspec.Struct, rename="camel", gc=False):
    """The ext fields of one operation. `code` is its request code; answers have none."""

    code: ClassVar[int] = -1

    def ext(self) -> dict[str, str]:
        """Wire name → text, absent fields left out."""
        fields: dict[str, str] = msgspec.to_builtins(text_writer(type(self))(self))
        return fields

    def positional(self) -> list[Scalar]:
        """The values in the order of their declaration, without absent ones at the end."""
        values: list[Scalar] = list(msgspec.structs.astuple(self))
        while values and values[-1] is None:
            values.pop()
        return values


H = TypeVar("H", bound=Header)


# ── The declaration, analysed once ──


class Field(NamedTuple):
    """One declared field. `parse` makes a value of what arrived; it may raise ValueError."""

    attribute: str
    name: str
    required: bool
    kind: Any
    parse: Callable[[str | int | bool], str | int | bool]


def parse_text(value: str | int | bool) -> str:
    """The text of a scalar."""
    if isinstance(value, str):
        return value
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


def parse_bool(value: str | int | bool) -> bool:
    """Java's rule, and "1", which C++ clients send."""
    return parse_text(value).lower() in ("true", "1")


def parse_i32(value: str | int | bool) -> int:
    """The int32 in the text of a field. Raises: ValueError."""
    return parse_integer(value, INT32_MAX)


def parse_i64(value: str | int | bool) -> int:
    """The int64 in the text of a field. Raises: ValueError."""
    return parse_integer(value, INT64_MAX)


def parse_integer(value: str | int | bool, largest: int) -> int:
    """The integer in the text of a field, between -largest-1 and largest.

    Raises: ValueError, saying what is wrong.
    """
    text = parse_text(value)
    if not DECIMAL.fullmatch(text):
        raise ValueError(f"is not a number: {text[:SHOWN_CHARACTERS]!r}")
    number = int(text)
    if not -largest - 1 <= number <= largest:
        raise ValueError(f"is out of range: {text[:SHOWN_CHARACTERS]}")
    return number


PARSERS: dict[Any, Callable[[str | int | bool], str | int | bool]] = {
    str: parse_text,
    bool: parse_bool,
    I32: parse_i32,
    I64: parse_i64,
}


@cache
def fields_of(cls: type[Header]) -> tuple[Field, ...]:
    """The fields of a header class in their order."""
    return tuple(
        Field(info.name, info.encode_name, info.required, kind, PARSERS[kind])
        for info in msgspec.structs.fields(cls)
        for kind in (kind_of(info.type),)
    )


@cache
def names_of(cls: type[Header]) -> tuple[str, ...]:
    """The wire names of a header class in their order."""
    return tuple(field.name for field in fields_of(cls))


@cache
def number_names(cls: type[Header]) -> tuple[str, ...] | None:
    """The wire names of a class whose fields are all numbers that are present; else None."""
    numbers = all(field.required and field.kind in (I32, I64) for field in fields_of(cls))
    return names_of(cls) if numbers else None


def kind_of(annotation: Any) -> Any:
    """The annotation without its None."""
    if isinstance(annotation, UnionType) or NoneType in get_args(annotation):
        (annotation,) = (kind for kind in get_args(annotation) if kind is not NoneType)
    return annotation


# ── Reading ──


@cache
def reader(cls: type[H]) -> Callable[[Any], H]:
    """JSON ext fields → header, fast; refuses what needs `read_fields`."""
    return msgspec.json.Decoder(cls, strict=False).decode


def read_fields(cls: type[H], fields: Mapping[str, Scalar]) -> H:
    """Wire name → value into a header. Raises: HeaderError naming the first bad field."""
    try:
        return msgspec.convert(fields, cls, strict=False)
    except ValueError:
        pass
    values: dict[str, str | int | bool] = {}
    for field in fields_of(cls):
        value = fields.get(field.name)
        if value is not None:
            try:
                values[field.attribute] = field.parse(value)
            except ValueError as error:
                raise HeaderError(field.name, str(error)) from None
        elif field.required:
            raise HeaderError(field.name, "is missing")
    return cls(**values)


def by_position(cls: type[Header], values: list[Scalar]) -> dict[str, Scalar]:
    """Positional values by wire name; extra values of a newer peer are ignored."""
    return dict(zip(names_of(cls), values, strict=False))


# ── Writing ──


@cache
def text_writer(cls: type[Header]) -> Callable[[Any], msgspec.Struct]:
    """Generated: header → a struct of the same fields as text, which msgspec encodes at once."""
    twin = msgspec.defstruct(
        f"{cls.__name__}Text",
        [
            (f.attribute, str, msgspec.field(name=f.name))
            if f.required
            else (f.attribute, str | None, msgspec.field(name=f.name, default=None))
            for f in fields_of(cls)
        ],
        omit_defaults=True,
        kw_only=True,
        gc=False,
    )
    values = [f"        {f.attribute}={text_of(f)}," for f in fields_of(cls)]
    source = "\n".join(["def texts(h):", "    return twin(", *values, "    )", ""])
    return compiled(f"<texts of {cls.__qualname__}>", source, {"twin": twin})


def text_of(field: Field) -> str:
    """An expression for the text of a field of `h`, None if it is absent."""
    value = f"h.{field.attribute}"
    if field.kind is str:
        return value
    if field.required:
        return text_of_value(field, value)
    return f"None if (v := {value}) is None else {text_of_value(field, 'v')}"


def text_of_value(field: Field, value: str) -> str:
    """An expression for the text of a value that is there."""
    return f'"true" if {value} else "false"' if field.kind is bool else f"str({value})"


def compiled(filename: str, source: str, names: dict[str, Any]) -> Callable[[Any], Any]:
    """The one function that `source` defines, visible in tracebacks."""
    exec(compile(source, filename, "exec"), names)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    function: Callable[[Any], Any] = names["texts"]
    return function
