"""SQL filter text → tree, with the acceptance of RocketMQ's parser, its surprises included.

    expr       := or
    or         := and {OR and}
    and        := equality {AND equality}
    equality   := comparison {("=" | "<>") comparison | IS [NOT] NULL}
    comparison := unary {(">" | ">=" | "<" | "<=") unary
                | [NOT] BETWEEN unary AND unary
                | [NOT] IN "(" text {"," text} ")"
                | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text}
    unary      := "+" unary | "-" unary | NOT unary | primary
    primary    := number | text | TRUE | FALSE | NULL | name | "(" or ")"

NOT binds tighter than a comparison. Text behind a complete expression is ignored.
Source: semantics §14.2 (SelectorParser).
"""

from __future__ import annotations

from typing import Final, NamedTuple, NoReturn

from aerobee.store.format.sql_tokens import Kind, SqlInvalid, Token, Tokens
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

EXPRESSION_BYTES_MAX: Final = 8192
"""Bytes of one filter, in UTF-8."""
DEPTH_MAX: Final = 32
"""Parentheses, signs, NOTs and chained comparisons within each other; AND and OR do not count."""

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
CONSTANTS: Final = {"TRUE": Boolean(True), "FALSE": Boolean(False), "NULL": Boolean(None)}
SEARCHES: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")


class FilterText(NamedTuple):
    """The text of a filter."""

    root: Node
    names: dict[str, int]
    """Properties, and how often each is named."""
    ignored: str
    """Text behind the expression; usually nothing."""


def parse(text: str) -> FilterText:
    """The tree of a filter. Raises: SqlInvalid with what is wrong and where."""
    if len(text.encode("utf-8", "replace")) > EXPRESSION_BYTES_MAX:
        raise SqlInvalid(f"more than {EXPRESSION_BYTES_MAX} bytes")
    parser = Parser(text)
    root = condition(parser.disjunction())
    rest = parser.tokens.seen
    return FilterText(
        root, parser.names, text[rest.position :] if rest.kind is not Kind.END else ""
    )


class Parser:
    """One method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.tokens = Tokens(text)
        self.names: dict[str, int] = {}
        self.depth = 0

    def disjunction(self) -> Node:
        """One `or` of the grammar."""
        first = self.conjunction()
        if not self.tokens.accept("OR"):
            return first
        operands = [condition(first), condition(self.conjunction())]
        while self.tokens.accept("OR"):
            operands.append(condition(self.conjunction()))
        return Or(tuple(operands))

    def conjunction(self) -> Node:
        """One `and`."""
        first = self.equality()
        if not self.tokens.accept("AND"):
            return first
        operands = [condition(first), condition(self.equality())]
        while self.tokens.accept("AND"):
            operands.append(condition(self.equality()))
        return And(tuple(operands))

    def equality(self) -> Node:
        """One `equality`."""
        depth, left = self.depth, self.comparison()
        while sign := self.tokens.accept("=", "<>", "IS"):
            self.deeper()
            if sign.text == "IS":
                negated = self.tokens.accept("NOT") is not None
                self.expect("NULL")
                left = IsNull(left, negated)
            else:
                left = equal(left, self.comparison(), negated=sign.text == "<>")
        self.depth = depth
        return left

    def comparison(self) -> Node:
        """One `comparison`."""
        depth, left = self.depth, self.unary()
        while sign := self.tokens.accept(">", ">=", "<", "<=", "NOT", "BETWEEN", "IN", *SEARCHES):
            self.deeper()
            negated = sign.text == "NOT"
            if negated:
                sign = self.expect("BETWEEN", "IN", *SEARCHES)
            if sign.text == "BETWEEN":
                left = self.between(left, negated)
            elif sign.text == "IN":
                left = self.in_list(left, negated)
            elif sign.text in SEARCHES:
                left = Search(sign.text, left, self.text(), negated)
            else:
                left = Order(sign.text, comparable(left), comparable(self.unary()))
        self.depth = depth
        return left

    def between(self, operand: Node, negated: bool) -> Node:
        """The part behind BETWEEN."""
        low = self.unary()
        self.expect("AND")
        high = self.unary()
        if not negated and isinstance(low, Number) and isinstance(high, Number):
            refuse(low.value > high.value, f"BETWEEN {low.value} AND {high.value} holds nothing")
        return Between(comparable(operand), comparable(low), comparable(high), negated)

    def in_list(self, operand: Node, negated: bool) -> Node:
        """The part behind IN."""
        self.expect("(")
        texts = [self.text()]
        while self.expect(",", ")").text == ",":
            texts.append(self.text())
        if not isinstance(operand, Property):
            raise SqlInvalid(f"IN needs a property, not {shown(operand)}")
        return In(operand, tuple(texts), negated)

    def unary(self) -> Node:
        """One `unary`."""
        sign = self.tokens.accept("+", "-", "NOT")
        if sign is None:
            return self.primary()
        depth = self.depth
        self.deeper()
        operand = self.unary()
        self.depth = depth
        if sign.text == "NOT":
            return Not(condition(operand))
        return Negate(operand) if sign.text == "-" else operand

    def primary(self) -> Node:
        """One `primary`."""
        token = self.tokens.take()
        if token.kind is Kind.NAME:
            self.names[token.text] = self.names.get(token.text, 0) + 1
            return Property(token.text)
        if token.kind is Kind.TEXT:
            return Text(token.text)
        if token.kind in (Kind.INTEGER, Kind.FLOAT):
            return number(token)
        if token.text == "(" and token.kind is Kind.SIGN:
            depth = self.depth
            self.deeper()
            inner = self.disjunction()
            self.expect(")")
            self.depth = depth
            return inner
        constant = CONSTANTS.get(token.text) if token.kind is Kind.KEYWORD else None
        return constant or unexpected(token)

    # ── Tokens ──

    def expect(self, *texts: str) -> Token:
        """Take one of these. Raises: SqlInvalid."""
        return self.tokens.accept(*texts) or unexpected(self.tokens.seen, *texts)

    def text(self) -> str:
        """Take a quoted text. Raises: SqlInvalid."""
        token = self.tokens.take()
        return token.text if token.kind is Kind.TEXT else unexpected(token, "a text")

    def deeper(self) -> None:
        """One level down. Raises: SqlInvalid."""
        self.depth += 1
        refuse(self.depth > DEPTH_MAX, f"nested deeper than {DEPTH_MAX}")


# ── What may stand where ──


def condition(node: Node) -> Node:
    """A node in place of a condition. Raises: SqlInvalid for a number or text."""
    if isinstance(node, Property):
        return Cast(node)
    refuse(isinstance(node, Number | Text | Negate), f"{shown(node)} is no condition")
    return node


def comparable(node: Node) -> Node:
    """A node that `<` and its like take. Raises: SqlInvalid."""
    refuse(
        not isinstance(node, Property | Number | Negate), f"{shown(node)} cannot be put in order"
    )
    return node


def equal(left: Node, right: Node, *, negated: bool) -> Node:
    """`=` or `<>`. Raises: SqlInvalid."""
    for side in (left, right):
        refuse(isinstance(side, Boolean) and side.value is None, "NULL equals nothing: use IS NULL")
    refuse(
        isinstance(left, Boolean) and isinstance(right, Number | Text),
        f"{shown(left)} cannot be compared with {shown(right)}",
    )
    return Equal(left, right, negated)


def number(token: Token) -> Number:
    """The number of a token. Raises: SqlInvalid when its type does not hold it."""
    if token.kind is Kind.FLOAT:
        value = float(token.text)
        # Zero as well: the Java parser takes its smallest double for the least one there is.
        refuse(value in (0.0, float("inf")), f"{token.text[:40]} is out of the range of a double")
        return Number(value, NumberType.DOUBLE)
    digits = token.text.rstrip("lL")
    refuse(len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX, f"{digits[:40]} is no long")
    whole = int(digits)
    return Number(whole, NumberType.INT if whole <= INT_MAX else NumberType.LONG)


def refuse(wrong: bool, what: str) -> None:
    """Refuse the filter if something is wrong with it. Raises: SqlInvalid."""
    if wrong:
        raise SqlInvalid(what)


def unexpected(token: Token, *wanted: str) -> NoReturn:
    """Refuse a token where another is needed, and say which. Raises: SqlInvalid."""
    hint = f", expected {' or '.join(wanted)}" if wanted else ""
    raise SqlInvalid(f"{token} at character {token.position + 1}{hint}")


def shown(node: Node) -> str:
    """A node in a sentence about it."""
    if isinstance(node, Number):
        return str(node.value)
    if isinstance(node, Text):
        return repr(node.value[:40])
    if isinstance(node, Boolean):
        return "NULL" if node.value is None else str(node.value).upper()
    return node.name if isinstance(node, Property) else "a condition or a negated value"
