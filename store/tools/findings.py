"""What a look at a store directory brings to light: damage, and what is only worth knowing."""

from __future__ import annotations

from collections import Counter

import msgspec

__all__ = ["Finding", "Findings"]

LISTED_MAX = 1_000
"""Findings of one kind that are kept; more are only counted."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing found; `place` is a file, a directory or a queue."""

    kind: str
    place: str
    text: str
    physical_offset: int | None = None


class Findings(msgspec.Struct):
    """Everything found, in the order of finding."""

    damage: list[Finding] = msgspec.field(default_factory=list)
    notes: list[Finding] = msgspec.field(default_factory=list)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    """Damage by kind, those not listed included."""
    doubts: Counter[str] = msgspec.field(default_factory=Counter)
    """Notes by kind about what a disk may have done, and a client as well."""

    def damaged(
        self, kind: str, place: object, text: str, physical_offset: int | None = None
    ) -> None:
        """Something that must not be so."""
        self.counts[kind] += 1
        if self.counts[kind] <= LISTED_MAX:
            self.damage.append(Finding(kind, str(place), text, physical_offset))

    def noted(
        self, kind: str, place: object, text: str, physical_offset: int | None = None
    ) -> None:
        """Something that may be so."""
        self.notes.append(Finding(kind, str(place), text, physical_offset))

    def doubted(
        self, kind: str, place: object, text: str, physical_offset: int | None = None
    ) -> None:
        """Something that brokers and their usual clients do not write, but a client may have."""
        self.doubts[kind] += 1
        if self.doubts[kind] <= LISTED_MAX:
            self.noted(kind, place, f"{text}; sent so, or damaged", physical_offset)
