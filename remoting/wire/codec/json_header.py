"""Type 0: a JSON object.

The fast decoder is msgspec's, in `command`. This is the lenient one, for what serializers in the
field write outside the standard: control characters unescaped, numbers and booleans as ext values,
ill-formed UTF-8. It accepts what the Java decoders accept. Written is strict JSON with only strings
as ext values. Source: remoting §1.4.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.remoting.errors import FrameError, HeaderError
from aerobee.remoting.wire.codec.envelope import (
    MAX_EXT_FIELDS,
    Envelope,
    check_ext_count,
    check_int32,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

EXT = "extFields"
NOT_JSON = (ValueError, RecursionError)


def decode(header: memoryview | bytes) -> Envelope:
    """A header that is not strict. Raises: FrameError."""
    try:
        document = parse(header)
    except NOT_JSON as error:
        raise FrameError("header is not JSON") from error
    if not isinstance(document, dict):
        raise FrameError("header is no JSON object")
    ext = document.get(EXT)
    if ext is not None and not isinstance(ext, dict):
        raise FrameError(f"{EXT} is no JSON object")
    check_ext_count(len(ext or ()))
    return Envelope(
        code=integer(document, "code"),
        opaque=integer(document, "opaque"),
        flag=integer(document, "flag"),
        language=text(document, "language"),
        version=integer(document, "version"),
        remark=text(document, "remark"),
        ext=texts(ext or {}),
    )


def ext_fields(raw: memoryview | bytes) -> dict[str, str]:
    """The ext object of a header, as texts. Raises: HeaderError when it is not an object."""
    try:
        fields = parse(raw)
    except NOT_JSON as error:
        raise HeaderError(EXT, "is not JSON") from error
    if fields is None:
        return {}
    if not isinstance(fields, dict) or len(fields) > MAX_EXT_FIELDS:
        raise HeaderError(EXT, f"is no JSON object of at most {MAX_EXT_FIELDS} fields")
    return texts(fields)


def texts(fields: dict[str, Any]) -> dict[str, str]:
    """Ext fields as Java's decoder would have them: texts under texts, and no nulls."""
    return {well_formed(name): scalar(value) for name, value in fields.items() if value is not None}


def parse(data: memoryview | bytes) -> Any:
    """JSON with numbers left as their text. Raises: ValueError, RecursionError."""
    return json.loads(
        str(data, "utf-8", "replace"),
        strict=False,
        parse_int=str,
        parse_float=str,
        parse_constant=refuse_constant,
    )


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity: they are not JSON. Raises: ValueError."""
    raise ValueError(f"{name} is no JSON")


def scalar(value: Any) -> str:
    """An ext value as Java's decoder would have it: text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        value = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return well_formed(value)


def well_formed(value: str) -> str:
    """Text that UTF-8 can carry: half a surrogate pair becomes a question mark, as in Java."""
    return value.encode("utf-8", "replace").decode()


def integer(document: dict[str, Any], name: str) -> int:
    """An int32 member, 0 if absent. Raises: FrameError."""
    value = document.get(name)
    if value is None:
        return 0
    try:
        return check_int32(name, int(value) if isinstance(value, str) else value)
    except ValueError as error:
        raise FrameError(f"header {name} is no number") from error


def text(document: dict[str, Any], name: str) -> str | None:
    """A text member. Raises: FrameError when it is a list or an object."""
    value = document.get(name)
    if isinstance(value, list | dict):
        raise FrameError(f"header {name} is no text")
    return None if value is None else scalar(value)


class HeaderDocument(msgspec.Struct, omit_defaults=True, gc=False):
    """A header as it is written."""

    code: int
    flag: int
    language: str
    opaque: int
    version: int
    ext: Any = msgspec.field(default=None, name=EXT)
    remark: str | None = None


_encode = msgspec.json.Encoder().encode


def encode(
    code: int,
    opaque: int,
    flag: int,
    ext: msgspec.Struct | Mapping[str, str] | None,
    remark: str | None,
    language: str,
    version: int,
) -> bytes:
    """A header; `ext` is a map or a struct of texts."""
    return _encode(HeaderDocument(code, flag, language, opaque, version, ext, remark))
