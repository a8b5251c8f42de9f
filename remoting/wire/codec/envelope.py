"""The fields that every header encoding carries, as plain values from or to a Command."""

from __future__ import annotations

from typing import Any, NamedTuple

from aerobee.remoting.errors import FrameError

MAX_EXT_FIELDS = 128
MIN_INT32 = -(2**31)
MAX_INT32 = 2**31 - 1


class Envelope(NamedTuple):
    """A decoded header. `ext` is a map of scalars or a positional list, in MSGPACK only."""

    code: int
    opaque: int
    flag: int
    language: str | int | None
    version: int
    remark: str | None
    ext: dict[str, Any] | list[Any]


def check_int32(name: str, value: Any) -> int:
    """The value, if it is an int32. Raises: FrameError unless `value` is an int32."""
    if type(value) is not int or not MIN_INT32 <= value <= MAX_INT32:
        raise FrameError(f"header {name} is no int32")
    return value


def check_ext_count(count: int) -> None:
    """Refuse more ext fields than any request has. Raises: FrameError."""
    if count > MAX_EXT_FIELDS:
        raise FrameError(f"header with more than {MAX_EXT_FIELDS} ext fields")
