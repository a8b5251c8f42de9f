"""Parses times, durations and positions on a command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from aerobee.whole_number import epoch_ms, whole_number

if TYPE_CHECKING:
    from aerobee.client.settings.client import ConsumeFrom

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
NAMES = {"first": "FIRST", "earliest": "FIRST", "last": "LAST", "latest": "LAST"}
OFFSET = "offset:"


def time_of(text: str, option: str) -> datetime:
    """ISO 8601 (local time without a zone), ms since 1970, or `10m ago`. Raises: UsageError."""
    try:
        since_1970 = epoch_ms(text)
    except ValueError as error:
        raise click.UsageError(f"{option} {text}: {error}") from None
    try:
        if since_1970 is not None:
            return datetime.fromtimestamp(since_1970 / 1000, UTC)
        if text.isdigit():  # Such a long one is a date for `fromisoformat`.
            raise ValueError(text)
        if text.endswith(" ago"):
            return datetime.now(UTC) - duration_of(text.removesuffix(" ago"), option)
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise click.UsageError(
            f"{option} {text}: write a time as 2025-01-31T12:00, '10m ago' or epoch milliseconds"
        ) from None


def duration_of(text: str, option: str) -> timedelta:
    """Seconds, or a number with ms, s, m, h or d. Raises: UsageError."""
    match = DURATION.fullmatch(text.strip())
    if match is None:
        raise click.UsageError(f"{option} {text}: write a duration as 10s, 5m, 2h or 1d")
    try:
        return timedelta(seconds=float(match[1]) * UNITS[match[2] or "s"])
    except OverflowError:
        raise click.UsageError(f"{option} {text}: longer than any duration") from None


def position_of(text: str, option: str) -> ConsumeFrom | datetime | int:
    """`first`, `last`, `offset:N`, or a time. Raises: UsageError."""
    from aerobee.client.settings.client import ConsumeFrom

    if text in NAMES:
        return ConsumeFrom[NAMES[text]]
    offset = whole_number(text.removeprefix(OFFSET)) if text.startswith(OFFSET) else None
    if offset is not None:
        return offset
    if whole_number(text) is not None:
        return time_of(text, option)
    try:
        return time_of(text, option)
    except click.UsageError:
        raise click.UsageError(
            f"{option} {text}: write first, last, offset:N, 2025-01-31T12:00, '10m ago' or epoch "
            "milliseconds"
        ) from None


def duration_text(seconds: int | None) -> str | None:
    """The two largest units of a duration: `3 d 4 h`, `5 min 6 s`."""
    if seconds is None:
        return None
    parts = (
        (seconds // 86_400, "d"),
        (seconds // 3_600 % 24, "h"),
        (seconds // 60 % 60, "min"),
        (seconds % 60, "s"),
    )
    first = next((number for number, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2])
