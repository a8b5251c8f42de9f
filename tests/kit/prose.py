"""The sentences of a page of the documentation, and of the docstrings and comments of a module.

Code, tables, headings and HTML are no prose. A paragraph and an item of a list end a sentence, and
so does a full stop, a question mark or an exclamation mark before a space. A span of code counts as
one word, a link as its text.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.kit.source_tree import Module

FENCE = re.compile(r"^ *(```|~~~).*?^ *\1[^\n]*$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"`[^`]+`")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ITEM = re.compile(r"^ *([-*+]|\d+\.) +")
END = re.compile(r"(?<=[.!?])[)\"*_]* +(?=[A-Z(\"*_\[0-9§])")
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|vs|cf|etc|no|approx)\. ")
WORD = re.compile(r"[\w§]")


def sentences(text: str) -> Iterator[str]:
    """Each sentence of a page."""
    for paragraph in paragraphs(COMMENT.sub("", FENCE.sub("\n", text))):
        plain = LINK.sub(r"\1", CODE.sub("CODE", paragraph))
        for sentence in END.split(ABBREVIATIONS.sub(r"\1 ", plain)):
            if sentence.strip():
                yield sentence.strip()


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and items of lists, each as one line."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        item = ITEM.match(line)
        prose = line.strip() and not line.lstrip().startswith(("|", "#", "<", "!["))
        if (item or not prose) and lines:
            yield " ".join(lines)
            lines = []
        if prose:
            lines.append(ITEM.sub("", line).strip().lstrip("> "))


def words(sentence: str) -> int:
    """How many words a sentence has; signs alone are none."""
    return sum(1 for word in sentence.split() if WORD.search(word))


class Remark(NamedTuple):
    """A docstring, or comments on lines that follow each other."""

    line: int
    text: str

    @property
    def sentences(self) -> Iterator[str]:
        """Each sentence, spans of code as they stand."""
        for paragraph in re.split(r"\n\s*\n", self.text):
            yield from END.split(" ".join(paragraph.split()))


def remarks(module: Module) -> Iterator[Remark]:
    """The docstrings of a module, its definitions and its names, and its comments."""
    for node in module.nodes:
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield Remark(node.lineno, node.value.value)
    yield from together(module.comments)


def together(comments: Iterable[tuple[int, str]]) -> Iterator[Remark]:
    """Comments on lines that follow each other, as one text."""
    first, last, texts = 0, 0, list[str]()
    for line, comment in comments:
        if texts and line != last + 1:
            yield Remark(first, " ".join(texts))
            texts = []
        first, last = (first if texts else line), line
        texts.append(comment.lstrip("#: "))
    if texts:
        yield Remark(first, " ".join(texts))
