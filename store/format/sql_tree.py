"""An SQL filter as a tree. AND and OR hold all operands of their chain."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, TypeAlias


class NumberType(Enum):
    """The type as which a text is read before it is compared with a number: as the number was
    written.
    """

    INT = auto()
    LONG = auto()
    DOUBLE = auto()


class Property(NamedTuple):
    """The value of a property: a text, or null when it is missing or empty."""

    name: str


class Text(NamedTuple):
    """A quoted text."""

    value: str


class Number(NamedTuple):
    """A number without a sign; a double is finite and above 0."""

    value: int | float
    type: NumberType


class Boolean(NamedTuple):
    """TRUE, FALSE, or NULL, which is None."""

    value: bool | None


class Negate(NamedTuple):
    """A minus sign. Of anything but a number it makes null."""

    operand: Node


class Cast(NamedTuple):
    """A property in place of a condition: null if it is null, else FALSE whatever it says."""

    property: Property


class Not(NamedTuple):
    """NOT; null of null."""

    operand: Node


class And(NamedTuple):
    """FALSE if one operand is, else null if one is, else TRUE; ends at the first FALSE."""

    operands: tuple[Node, ...]


class Or(NamedTuple):
    """TRUE if one operand is, else null if one is, else FALSE; ends at the first TRUE."""

    operands: tuple[Node, ...]


class Equal(NamedTuple):
    """`=`, or `<>` when negated."""

    left: Node
    right: Node
    negated: bool


class Order(NamedTuple):
    """A comparison with `<`, `<=`, `>` or `>=`."""

    sign: str
    left: Node
    right: Node


class Between(NamedTuple):
    """`low <= operand AND operand <= high`, or the opposite."""

    operand: Node
    low: Node
    high: Node
    negated: bool


class IsNull(NamedTuple):
    """IS NULL, or IS NOT NULL when negated."""

    operand: Node
    negated: bool


class In(NamedTuple):
    """IN or NOT IN a list of texts."""

    property: Property
    texts: tuple[str, ...]
    negated: bool


class Search(NamedTuple):
    """CONTAINS, STARTSWITH or ENDSWITH; FALSE for what is no text, negated or not."""

    how: str
    operand: Node
    text: str
    negated: bool


Constant: TypeAlias = Number | Text | Boolean
Node: TypeAlias = (
    Property
    | Text
    | Number
    | Boolean
    | Negate
    | Cast
    | Not
    | And
    | Or
    | Equal
    | Order
    | Between
    | IsNull
    | In
    | Search
)
