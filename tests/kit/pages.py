"""The pages of docs/operations and what is on them: commands and links."""

from __future__ import annotations

import re
from pathlib import Path

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations"
PAGES = sorted(OPERATIONS.glob("*.md"))
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
OTHERS = {"many-cores.md"}
"""Pages whose commands are run by tests of their own: tests/broker/supervisor."""
ANSWERS = ("aerobee group doctor", "aerobee config diff")
"""Commands whose exit code 1 is an answer, not a failure."""


def blocks(page: Path) -> list[str]:
    """Its blocks of commands, in their order."""
    if page.name in OTHERS:
        return []
    return BLOCK.findall(page.read_text("utf-8"))


def links(page: Path) -> list[tuple[str, str]]:
    """Its links to other pages: path and anchor, either may be empty."""
    return LINK.findall(page.read_text("utf-8"))


def may_fail(command: str, code: int) -> bool:
    """Whether this exit code of a command says something and is no failure."""
    return code == 1 and command.startswith(ANSWERS)
