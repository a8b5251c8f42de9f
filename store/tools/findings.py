"""The findings of a check of a store directory: damage, notes and doubtful values."""

from __future__ import annotations

from collections import Counter

import msgspec

LISTED_MAX = 1_000
"""The most findings of one kind that are kept; more are only counted."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finding; `place` is a file, a directory or a queue."""

    kind: str
    place: str
    text: str
    physical_offset: int | None = None


class Findings(msgspec.Struct):
    """All findings, in order."""

    damage: list[Finding] = msgspec.field(default_factory=list)
    notes: list[Finding] = msgspec.field(default_factory=list)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    """Damage by kind, including findings that are not listed."""
    doubts: Counter[str] = msgspec.field(default_factory=Counter)
    """Doubtful values by kind, caused by a disk or by a client."""

    def damaged(
        self, kind: str, place: object, text: str, physical_offset: int | None = None
    ) -> None:
        """Add damage."""
        self.counts[kind] += 1
        if self.counts[kind] <= LISTED_MAX:
            self.damage.append(Finding(kind, str(place), text, physical_offset))

    def noted(
        self, kind: str, place: object, text: str, physical_offset: int | None = None
    ) -> None:
        """Add a note about a valid state."""
        self.notes.append(Finding(kind, str(place), text, physical_offset))

    def doubted(
        self, kind: str, place: object, text: str, physical_offset: int | None = None
    ) -> None:
        """Add a value that brokers and usual clients do not write, but a client may have sent."""
        self.doubts[kind] += 1
        if self.doubts[kind] <= LISTED_MAX:
            self.noted(kind, place, f"{text}; sent so, or damaged", physical_offset)
