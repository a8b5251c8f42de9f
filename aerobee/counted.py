"""Numbers with what they count, in sentences for people."""

from __future__ import annotations


def counted(number: int, single: str, many: str = "") -> str:
    """`1 message`, `3 messages`. `many`: where that is more than an `s` behind the single."""
    return f"{number} {single if number == 1 else many or f'{single}s'}"
