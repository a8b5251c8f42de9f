"""Compiles the tree of an SQL filter to one Python function over an encoded property string.

Only the shape of the tree becomes source. Names, texts and numbers of the filter are constants that
the source refers to by number, so no text of a user is ever executed as Python. Each node becomes
one expression whose value is bytes, a number, True, False, or None for null; a value that is used
again is assigned to a local variable at its first use. A property is looked up in the bytes when,
and only if, its value is needed. Source: semantics §14.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aerobee.broker.filters.values import READERS, Incomparable, compare, equal, ignore
from aerobee.store.format.sql_tree import (
    And,
    Between,
    Boolean,
    Cast,
    Equal,
    In,
    IsNull,
    Negate,
    Node,
    Not,
    Number,
    NumberType,
    Or,
    Order,
    Property,
    Search,
    Text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.format.sql_parser import FilterText

Matches: TypeAlias = "Callable[[bytes | memoryview], bool]"
"""Whether a message with this encoded property string passes. Never raises."""

LOOKED_UP_MAX: Final = 16
"""A filter with more properties splits the string once instead, which bounds its time."""

TEMPLATE: Final = """\
def matches(properties):
    {prologue}
    try:
        return {root} is True
    except Incomparable:
        return False
"""
SEARCHES: Final = {
    "CONTAINS": "{constant} in {text}",
    "STARTSWITH": "{text}.startswith({constant})",
    "ENDSWITH": "{text}.endswith({constant})",
}
HELPERS: Final = (compare, equal, ignore, *READERS.values())
CLOSE: Final = b"\x02"
IS: Final = b"\x01"


def compiled(parsed: FilterText) -> Matches:
    """The function of a filter."""
    source, names = source_of(parsed)
    exec(compile(source, "<sql filter>", "exec"), names)
    matches: Matches = names["matches"]
    return matches


def source_of(parsed: FilterText) -> tuple[str, dict[str, Any]]:
    """The source of a filter's function, and the values of the names in it."""
    coder = Coder(parsed.names)
    root = coder.value(parsed.root)
    return TEMPLATE.format(prologue="\n    ".join(coder.prologue), root=root), coder.constants


class Coder:
    """Node → Python expression; collects the constants and the statements before the expression."""

    def __init__(self, names: dict[str, int]) -> None:
        self.constants: dict[str, Any] = {helper.__name__: helper for helper in HELPERS}
        self.constants |= {"Incomparable": Incomparable, "CLOSE": CLOSE, "split": split}
        self.locals = 0
        self.repeated: dict[str, str] = {}
        self.names = names
        self.prologue = ["data = CLOSE + properties + CLOSE"]
        if len(names) > LOOKED_UP_MAX:
            self.prologue = ["found = split(bytes(properties))"]

    def constant(self, value: object) -> str:
        """A name for a constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def local(self) -> str:
        """A fresh local variable."""
        self.locals += 1
        return f"v{self.locals}"

    def value(self, node: Node) -> str:
        """The expression of any node."""
        match node:
            case Property(name):
                return self.property(name)
            case Text(text):
                return self.constant(encoded(text))
            case Number(plain):
                return self.constant(plain)
            case Boolean(constant):
                return repr(constant)
            case Negate(operand):
                number = number_of(node)
                return self.value(number) if number else f"ignore({self.value(operand)})"
            case Cast(of):
                return f"(None if {self.value(of)} is None else False)"
            case Not(operand):
                return self.opposite(self.value(operand))
            case And(operands):
                return self.all_of([self.value(operand) for operand in operands])
            case Or(operands):
                return self.any_of([self.value(operand) for operand in operands])
            case Equal():
                return self.equal(node)
            case Order(sign, left, right):
                return self.order(sign, left, self.value(left), right)
            case Between():
                return self.between(node)
            case IsNull(operand, negated):
                return f"({self.value(operand)} {'is not' if negated else 'is'} None)"
            case In(of, texts, negated):
                wanted = self.constant(frozenset(map(encoded, texts)))
                test = f"{{}} {'not in' if negated else 'in'} {wanted}"
                return self.unless_null(self.value(of), test)
            case Search():
                return self.search(node)

    # ── Properties ──

    def property(self, name: str) -> str:
        """The value of a property, looked up once."""
        if self.names[name] == 1:
            return self.look_up(name)
        variable = self.repeated.get(name)
        if variable is None:
            variable = self.repeated[name] = self.local()
            self.prologue.append(f"{variable} = 0")
        # 0 stands for a property that was not looked up yet.
        return f"({variable} if {variable} != 0 else ({variable} := {self.look_up(name)}))"

    def look_up(self, name: str) -> str:
        """The last of equal names counts, and of these the last whose value is not empty."""
        plain = name.encode()
        if len(self.names) > LOOKED_UP_MAX:
            return f"found.get({self.constant(plain)})"
        key, at = CLOSE + plain + IS, self.local()
        begin = f"({at} := {at} + {len(key)})"
        known, again = self.constant(key), f"split(data).get({self.constant(plain)})"
        return (
            f"(None if ({at} := data.rfind({known})) < 0"
            f" else data[{begin} : data.find(CLOSE, {at})] or {again})"
        )

    # ── Logic ──

    def unless_null(self, value: str, test: str) -> str:
        """Null for null, else the test of the value."""
        variable = self.local()
        return f"(None if ({variable} := {value}) is None else {test.format(variable)})"

    def opposite(self, value: str) -> str:
        """NOT."""
        return self.unless_null(value, "not {}")

    def all_of(self, values: list[str]) -> str:
        """AND: each operand is False, or a local variable that is True or None."""
        variables = [self.local() for _ in values]
        ends = [f"({v} := {value}) is False" for v, value in zip(variables, values, strict=True)]
        return f"(False if {' or '.join(ends)} else {' and '.join(variables)})"

    def any_of(self, values: list[str]) -> str:
        """OR."""
        variables = [self.local() for _ in values]
        ends = [f"({v} := {value})" for v, value in zip(variables, values, strict=True)]
        nulls = [f"{variable} is None" for variable in variables]
        return f"(True if {' or '.join(ends)} else None if {' or '.join(nulls)} else False)"

    # ── Comparisons ──

    def equal(self, node: Equal) -> str:
        """`=` and `<>`: a property beside a constant inline, the rest by `equal`."""
        left, right, negated = node
        number = number_of(right)
        if isinstance(left, Property) and (number or isinstance(right, Text)):
            text = f"{READERS[number.type].__name__}({{}})" if number else "{}"
            test = f"{text} {'!=' if negated else '=='} {self.value(right)}"
            return self.unless_null(self.value(left), test)
        both = f"equal({self.value(left)}, {self.value(right)}, {reader_of(left, right)})"
        return self.opposite(both) if negated else both

    def order(self, sign: str, left: Node, left_value: str, right: Node) -> str:
        """`<` and the like; the right side is evaluated only if the left one is not null."""
        first, second = number_of(left), number_of(right)
        if isinstance(left, Property) and second and second.type is not NumberType.DOUBLE:
            test = f"{READERS[second.type].__name__}({{}}) {sign} {self.value(right)}"
            return self.unless_null(left_value, test)
        reader = reader_of(left, right)
        if first and second:
            test = f"compare({left_value}, {self.value(right)}, {reader}) {sign} 0"
            return f"({test})"
        mine, other = self.local(), self.local()
        null = f"({mine} := {left_value}) is None or ({other} := {self.value(right)}) is None"
        return f"(None if {null} else compare({mine}, {other}, {reader}) {sign} 0)"

    def between(self, node: Between) -> str:
        """Two comparisons with the same operand."""
        operand, low, high, negated = node
        shared = self.local()
        first = self.order(
            "<" if negated else ">=", operand, f"({shared} := {self.value(operand)})", low
        )
        second = self.order(">" if negated else "<=", operand, shared, high)
        return self.any_of([first, second]) if negated else self.all_of([first, second])

    def search(self, node: Search) -> str:
        """CONTAINS and the like; negated or not, FALSE for a null text and for an empty pattern."""
        how, operand, text, negated = node
        value, wanted, variable = self.value(operand), encoded(text), self.local()
        if not wanted:
            return "False"
        if not isinstance(operand, Property | Text):
            return f"(ignore({value}) is True)"
        test = SEARCHES[how].format(constant=self.constant(wanted), text=variable)
        test = f"not {test}" if negated else test
        return f"(({variable} := {value}) is not None and {test})"


def number_of(node: Node) -> Number | None:
    """The number of a constant with any number of minus signs; None for anything else."""
    if isinstance(node, Negate):
        inner = number_of(node.operand)
        return inner and Number(-inner.value, inner.type)
    return node if isinstance(node, Number) else None


def reader_of(left: Node, right: Node) -> str:
    """The parser of a text on one side: by the type of the other side, else a double."""
    number = number_of(left) or number_of(right)
    return READERS[number.type if number else NumberType.DOUBLE].__name__


def encoded(text: str) -> bytes:
    """A constant text in the encoding of properties; ill-formed Unicode equals nothing there."""
    return text.encode("utf-8", "surrogatepass")


def split(properties: bytes) -> dict[bytes, bytes]:
    """All properties: the last of equal names, without empty values."""
    values = {}
    for piece in properties.split(CLOSE):
        name, _, value = piece.partition(IS)
        if name and value:
            values[name] = value
    return values
