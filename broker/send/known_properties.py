"""Properties of messages that ask for nothing special, remembered up to their unique keys.

A producer's messages mostly have all others in common, so these are looked at once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

KNOWN_MAX: Final = 1_024
"""Properties that are remembered."""
KNOWN_CHARS: Final = 256
"""The longest properties that are remembered."""
UNIQUE: Final = "UNIQ_KEY\x01"
OWN: Final = ("KEYS\x01", "BORN_TIMESTAMP\x01")
"""Beside the unique key, what each message has of its own: the 5.x clients send both."""


class Template(NamedTuple):
    """The stored properties of plain messages, all but their unique key."""

    before: bytes
    """The text that is stored before the unique key, its name included."""
    after: bytes
    """The text that is stored behind it."""
    tags_code: int


class KnownProperties:
    """Properties as they come → as they are stored."""

    def __init__(self) -> None:
        self._templates: dict[tuple[str, str], Template] = {}

    def find(self, text: str) -> tuple[bytes, bytes, int] | None:
        """Unique key, stored properties and tags code; None: they are to be looked at. Hot."""
        before, name, rest = text.rpartition(UNIQUE)
        if not name:
            return None
        key, _, after = rest.partition("\x02")
        template = self._templates.get((before, after))
        if template is None:
            return None
        unique = key.encode()
        # Of letters and digits: no JSON has to escape it.
        if not unique.isalnum():
            return None
        front, end, tags_code = template
        return unique, front + unique + end, tags_code

    def note(self, text: str, unique: bytes, stored: bytes, tags_code: int) -> None:
        """Remember properties of a plain message, if its unique key stands where `find` looks."""
        before, name, rest = text.rpartition(UNIQUE)
        key, _, after = rest.partition("\x02")
        # A template around a text of each message's own would never come again.
        if not name or len(before) + len(after) > KNOWN_CHARS or any(own in text for own in OWN):
            return
        if key.encode() != unique or before[-1:] not in ("", "\x02"):
            return
        front = f"{before}{UNIQUE}".encode()
        if len(self._templates) >= KNOWN_MAX:
            self._templates.clear()
        self._templates[before, after] = Template(
            front, stored[len(front) + len(unique) :], tags_code
        )
