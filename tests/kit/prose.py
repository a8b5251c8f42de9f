"""The sentences of a page of the documentation: Markdown in, sentences out.

Code, tables, headings and HTML are no prose. A paragraph and an item of a list end a sentence, and
so does a full stop, a question mark or an exclamation mark before a space. A span of code counts as
one word, a link as its text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
