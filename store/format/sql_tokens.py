"""The text of an SQL filter, cut into tokens one at a time.

One at a time, because text behind a complete expression is never looked at, so it may hold what no
token begins with. Source: semantics §14.2 (SelectorParser).
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, NamedTuple

TOKENS_MAX: Final = 500
"""Tokens of one filter."""


class SqlInvalid(ValueError):
    """The text is no filter; the message says what is wrong and where."""


class Kind(Enum):
    """The kind of a token; keywords and signs are told apart by their text."""

    KEYWORD = auto()
    NAME = auto()
    TEXT = auto()
    INTEGER = auto()
    FLOAT = auto()
    SIGN = auto()
    END = auto()


class Token(NamedTuple):
    """A piece of the text: keywords in capitals, a quoted text without its quotes."""

    kind: Kind
    text: str
    position: int

    def __str__(self) -> str:
        return "the end" if self.kind is Kind.END else repr(self.text)


KEYWORDS: Final = {
    "AND", "BETWEEN", "CONTAINS", "ENDSWITH", "FALSE", "IN", "IS", "NOT", "NULL", "OR",
    "STARTSWITH", "TRUE",
}  # fmt: skip

# A comment that begins with two dashes needs its line end: without one they are two minus signs.
SKIPPED: Final = re.compile(r"(?:[ \t\n\r\f]+|--[^\r\n]*[\r\n]|/\*.*?\*/)+", re.DOTALL)
TOKEN: Final = re.compile(
    r"""(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?
                 |\.[0-9]+(?:[eE][+-]?[0-9]+)?
                 |[0-9]+[eE][+-]?[0-9]+)
      | (?P<INTEGER>(?:0|[1-9][0-9]*)[lL]?)
      | (?P<TEXT>'[^']*(?:''[^']*)*')
      | (?P<NAME>[A-Za-z_$][A-Za-z0-9_$]*)
      | (?P<SIGN><>|>=|<=|[-=<>(),+])""",
    re.VERBOSE,
)


class Tokens:
    """The tokens of a text, with one of them in view."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.count = 0
        self.seen = self.next()

    def take(self) -> Token:
        """The token in view; the next one comes into view. Raises: SqlInvalid."""
        token, self.seen = self.seen, self.next()
        return token

    def accept(self, *texts: str) -> Token | None:
        """Take a keyword or sign if it is one of these. Raises: SqlInvalid."""
        if self.seen.kind in (Kind.KEYWORD, Kind.SIGN) and self.seen.text in texts:
            return self.take()
        return None

    def next(self) -> Token:
        """The token behind the one in view. Raises: SqlInvalid when none begins there."""
        if skipped := SKIPPED.match(self.text, self.position):
            self.position = skipped.end()
        at = self.position
        if at == len(self.text):
            return Token(Kind.END, "", at)
        match = TOKEN.match(self.text, at)
        if match is None:
            raise SqlInvalid(f"no token begins with {self.text[at]!r} at character {at + 1}")
        self.count += 1
        if self.count > TOKENS_MAX:
            raise SqlInvalid(f"more than {TOKENS_MAX} tokens")
        self.position = match.end()
        return token(Kind[match.lastgroup or ""], match.group(), at)


def token(kind: Kind, text: str, position: int) -> Token:
    """The token for what was found: keywords are told from names, quotes are taken off."""
    if kind is Kind.NAME and text.upper() in KEYWORDS:
        return Token(Kind.KEYWORD, text.upper(), position)
    if kind is Kind.TEXT:
        text = text[1:-1].replace("''", "'")
    return Token(kind, text, position)
