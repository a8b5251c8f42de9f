"""The slow, plain evaluator of a filter's tree that the compiled one is compared with.

Works on texts and a dict, shares nothing with the compiler but the tree. `Raised` is what Java
answers with an exception.
"""

import math
import struct
from collections.abc import Mapping
from typing import TypeAlias

from aerobee.store.format import sql_tree as tree

Plain: TypeAlias = str | int | float | bool | None


class Raised(Exception):
    """The evaluation ended in an exception."""


def matches(root: tree.Node, properties: Mapping[str, str]) -> bool:
    """Whether the tree is TRUE for the properties."""
    try:
        return value(root, properties) is True
    except Raised:
        return False


def value(node: tree.Node, properties: Mapping[str, str]) -> Plain:
    """The value of a node. Raises: Raised."""
    match node:
        case tree.Property(name):
            return properties.get(name) or None
        case tree.Text(text):
            return text
        case tree.Number(number) | tree.Boolean(number):
            return number
        case tree.Negate(operand):
            inner = value(operand, properties)
            return -inner if is_number(inner) else None  # type: ignore[operator]  # a number
        case tree.Cast(of):
            return None if value(of, properties) is None else False
        case tree.Not(operand):
            return opposite(value(operand, properties))
        case tree.And(operands):
            return chain(operands, properties, ends=False)
        case tree.Or(operands):
            return chain(operands, properties, ends=True)
        case tree.Equal(left, right, negated):
            same = equal(node, value(left, properties), value(right, properties))
            return opposite(same) if negated else same
        case tree.Order(sign, left, right):
            return order(sign, left, right, properties)
        case tree.Between(operand, low, high, negated):
            sides = (
                tree.Order("<" if negated else ">=", operand, low),
                tree.Order(">" if negated else "<=", operand, high),
            )
            return chain(sides, properties, ends=negated)
        case tree.IsNull(operand, negated):
            return (value(operand, properties) is None) is not negated
        case tree.In(of, texts, negated):
            one = value(of, properties)
            return None if one is None else (one in texts) is not negated
        case tree.Search(how, operand, wanted, negated):
            whole = value(operand, properties) if wanted else None
            if not isinstance(whole, str):
                return False
            found = {
                "CONTAINS": wanted in whole,
                "STARTSWITH": whole.startswith(wanted),
                "ENDSWITH": whole.endswith(wanted),
            }
            return found[how] is not negated


def is_number(one: Plain) -> bool:
    return isinstance(one, int | float) and not isinstance(one, bool)


def opposite(one: Plain) -> bool | None:
    return None if one is None else not one


def chain(operands: tuple[tree.Node, ...], properties: Mapping[str, str], *, ends: bool) -> Plain:
    result: bool | None = not ends
    for operand in operands:
        one = value(operand, properties)
        if one is ends:
            return ends
        if one is None:
            result = None
    return result


def equal(node: tree.Equal, left: Plain, right: Plain) -> bool | None:
    if left is None or right is None:
        return None if left is None and right is not None else left is right
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(left, str) and isinstance(right, bool):
        return (left.upper() == "TRUE") is right
    if isinstance(left, bool) and isinstance(right, str):
        raise Raised
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return ranked(node.left, node.right, left, right) == 0


def order(sign: str, left: tree.Node, right: tree.Node, properties: Mapping[str, str]) -> Plain:
    one = value(left, properties)
    other = None if one is None else value(right, properties)
    if one is None or other is None:
        return None
    rank = ranked(left, right, one, other)
    return {"<": rank < 0, "<=": rank <= 0, ">": rank > 0, ">=": rank >= 0}[sign]


def ranked(left_node: tree.Node, right_node: tree.Node, left: Plain, right: Plain) -> int:
    """As Java's compareTo, after texts became numbers of the other side's type."""
    kind = type_of(left_node) or type_of(right_node) or tree.NumberType.DOUBLE
    pair = [to_number(one, kind) if isinstance(one, str) else one for one in (left, right)]
    assert all(map(is_number, pair))
    if any(isinstance(one, float) for one in pair):
        pair = [bits_in_order(float(one)) for one in pair]  # type: ignore[arg-type]  # numbers
    return (pair[0] > pair[1]) - (pair[0] < pair[1])  # type: ignore[operator]  # numbers


def type_of(node: tree.Node) -> tree.NumberType | None:
    while isinstance(node, tree.Negate):
        node = node.operand
    return node.type if isinstance(node, tree.Number) else None


def to_number(text: str, kind: tree.NumberType) -> float:
    if kind is tree.NumberType.DOUBLE:
        return to_double(text)
    bits = 32 if kind is tree.NumberType.INT else 64
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or not all(char in "0123456789" for char in digits):
        raise Raised
    whole = -int(digits) if text[0] == "-" else int(digits)
    if not -(1 << bits - 1) <= whole < 1 << bits - 1:
        raise Raised
    return whole


def to_double(text: str) -> float:
    """Of the texts that the tests use."""
    text = text.strip(" ")
    plain = text.lstrip("+-")
    if len(text) - len(plain) > 1 or "_" in text:
        raise Raised
    if plain not in ("NaN", "Infinity") and not plain[:1].isdigit() and plain[:1] != ".":
        raise Raised
    if plain[-1:] in "fFdD" and plain[:1] not in "NI":
        text = text[:-1]
    try:
        return float(text)
    except ValueError:
        raise Raised from None


def bits_in_order(double: float) -> int:
    """An integer that is ordered as Double.compare orders: −0.0 below 0.0, one NaN above all."""
    bits: int = struct.unpack(">q", struct.pack(">d", math.nan if double != double else double))[0]
    return bits if bits >= 0 else -(bits & (1 << 63) - 1) - 1
