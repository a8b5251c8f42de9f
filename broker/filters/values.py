"""Values in an SQL filter: parsed and compared as in Java. A text is UTF-8 bytes.

An operation that raises an exception in Java is `Incomparable` here: no match, whatever the rest
evaluates to.
Source: semantics §14.2 (ComparisonExpression, Double.compare, Integer.parseInt).
"""

from __future__ import annotations

import re
from math import copysign, inf
from typing import TYPE_CHECKING, Final, TypeAlias

from aerobee.store.format.sql_tree import NumberType

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBER_BYTES_MAX: Final = 1024
"""A longer text is not a number."""

Value: TypeAlias = bytes | int | float | bool | None
"""At run time; a bool is never a number."""

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
BLANKS: Final = bytes(range(33))
WHOLE: Final = re.compile(r"[+-]?\d+")
# Java accepts the suffixes of its own literals, and hexadecimal fractions.
DECIMAL: Final = re.compile(
    rb"([+-]?(?:NaN|Infinity))|([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
)
HEXADECIMAL: Final = re.compile(
    rb"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]{1,9})[fFdD]?"
)


class Incomparable(Exception):
    """The values cannot be compared."""


def read_int(text: bytes) -> int:
    """Parse a text as an int. Raises: Incomparable. Hot."""
    if len(text) < 10 and text.isdigit():
        return int(text)
    return read_whole(text, INT_MAX)


def read_long(text: bytes) -> int:
    """Parse a text as a long. Raises: Incomparable. Hot."""
    if len(text) < 19 and text.isdigit():
        return int(text)
    return read_whole(text, LONG_MAX)


def read_whole(text: bytes, most: int) -> int:
    """Sign and digits of any script, up to `most`. Raises: Incomparable."""
    digits = text.decode("utf-8", "replace")
    # Java looks at UTF-16 units, so a digit beyond them is not one.
    if len(text) > NUMBER_BYTES_MAX or not WHOLE.fullmatch(digits) or max(digits) > "\uffff":
        raise Incomparable
    value = int(digits)
    if not -most - 1 <= value <= most:
        raise Incomparable
    return value


def read_double(text: bytes) -> float:
    """Parse a text as a double, which may be NaN or infinite. Raises: Incomparable. Hot."""
    if len(text) < 16 and text.isdigit():
        return float(text)
    text = text.strip(BLANKS)
    if len(text) > NUMBER_BYTES_MAX:
        raise Incomparable
    if match := DECIMAL.fullmatch(text):
        return float(match[1] or match[2])
    if match := HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(match[1].decode())
        except OverflowError:
            return -inf if text.startswith(b"-") else inf
    raise Incomparable


Reader: TypeAlias = "Callable[[bytes], int | float]"

READERS: Final[dict[NumberType, Reader]] = {
    NumberType.INT: read_int,
    NumberType.LONG: read_long,
    NumberType.DOUBLE: read_double,
}


def equal(left: Value, right: Value, read: Reader) -> bool | None:
    """`left = right`; `read` parses a text as a number. Raises: Incomparable.

    Null on the left alone gives null, on the right alone FALSE, on both sides TRUE.
    """
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if isinstance(left, bytes):
        if isinstance(right, bytes):
            return left == right
        if isinstance(right, bool):
            return (left.lower() == b"true") is right
        return compare_numbers(read(left), right) == 0
    if isinstance(left, bool):
        if isinstance(right, bytes):
            raise Incomparable
        return left is right
    if isinstance(right, bool):
        return False
    return compare_numbers(left, read(right) if isinstance(right, bytes) else right) == 0


def compare(left: bytes | float, right: bytes | float, read: Reader) -> int:
    """Below 0, 0 or above 0 as left is below, at or above right. Raises: Incomparable.

    `read` parses a text as a number; two texts are compared as doubles.
    """
    if isinstance(left, bytes):
        left = read(left)
    if isinstance(right, bytes):
        right = read(right)
    return compare_numbers(left, right)


def compare_numbers(left: float, right: float) -> int:
    """As `compare`. A long loses digits beside a double; −0.0 is below 0.0, NaN above all."""
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if left != left or right != right:
            return (left != left) - (right != right)
        if left == right == 0:
            left, right = copysign(1, left), copysign(1, right)
    return (left > right) - (left < right)


def ignore(value: Value) -> None:
    """Null, after evaluating the operand, which may raise Incomparable."""
