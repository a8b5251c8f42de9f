"""Reads a Java properties file (`broker.conf`) into entries with line numbers.

It is parsed as in Java, with one difference: the bytes are decoded as UTF-8 if valid, else as
Latin-1. Source: configuration §1.2, §2.3.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aerobee.broker.config.files.entries import ConfigurationError, Entry, Form, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

BLANKS = " \t\f"
LINE = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.?)", re.DOTALL)
PLAIN = re.compile(r"[!-\[\]-~][ -\[\]-~]*")
"""Values that stand as they are: most, and a broker writes hundreds when it starts."""
LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(content: bytes, file: str) -> list[Entry]:
    """The entries in the order of the file. Raises: ConfigurationError with file and line."""
    entries = []
    for number, line in logical_lines(decode(content)):
        match = LINE.match(line)
        assert match is not None  # the pattern matches any text
        try:
            name, value = unescape(match[1]), unescape(match[2])
        except ValueError as error:
            raise ConfigurationError([f"{file}:{number}: {error}"]) from error
        entries.append(Entry(name, Scalar(value, "str"), f"{file}:{number}", Form.PROPERTIES))
    return entries


def decode(content: bytes) -> str:
    """The text of the file, decoded from either encoding."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not blank or a comment, continuations joined."""
    lines = enumerate(re.split(r"\r\n|\r|\n", text), start=1)
    for number, line in lines:
        joined = said(line)
        while continues(joined):
            begun, (_, following) = joined[:-1], next(lines, (0, ""))
            # The next line can be a comment only while the logical line is still empty.
            joined = begun + following.lstrip(BLANKS) if begun else said(following)
        if joined:
            yield number, joined


def said(line: str) -> str:
    """The line without leading blanks; empty for a comment."""
    text = line.lstrip(BLANKS)
    return "" if text[:1] in ("#", "!") else text


def continues(line: str) -> bool:
    """Whether the line ends in a backslash that is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def unescape(text: str) -> str:
    r"""The text with its escapes replaced. Raises: ValueError for a broken \u."""

    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code == "u":
            raise ValueError(r"\u needs four hexadecimal digits")
        return LETTERS.get(code, code)

    # Java writes a character above U+FFFF as a surrogate pair; half of a pair is an error.
    units = ESCAPE.sub(replace, text).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "replace")


def escape(value: str) -> str:
    """The value, escaped for Java's parser."""
    if PLAIN.fullmatch(value):
        return value
    text = value.replace("\\", "\\\\")
    for letter, character in LETTERS.items():
        text = text.replace(character, "\\" + letter)
    text = "\\" + text if text.startswith(" ") else text
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
