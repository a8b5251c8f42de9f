"""Values as people read them: numbers, sizes, durations, times. Pure.

None stands for a value that is not known, and stays None: a template draws it as unknown, never as
zero.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

DASH: Final = "–"
FIGURE_MAX: Final = 2**63
"""No figure is as large."""
KIB: Final = 1024
NO_BREAK: Final = "\u00a0"
"""Between a count and its unit: no line ends there."""
BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
MINUTE_S: Final = 60
HOUR_S: Final = 3_600
DAY_S: Final = 86_400
DURATION_UNITS: Final = {
    "en": ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min"), (1, "s")),
    "zh": ((DAY_S, "天"), (HOUR_S, "小时"), (MINUTE_S, "分"), (1, "秒")),
}
HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Signs that a browser obeys or does not show: they would make a text look like another one."""


def visible(text: str) -> str:
    """A text with such signs as their escapes; line ends and tabs stay."""
    return HIDDEN.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def known(value: float | None) -> float | None:
    """A figure; None for NaN, infinity and the like, which a foreign broker may send."""
    return value if value is not None and abs(value) < FIGURE_MAX else None


def number(value: float | None) -> str | None:
    """A count, with a comma after each three digits."""
    value = known(value)
    return None if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str | None:
    """Something a second: with a decimal while it is small."""
    value = known(value)
    if value is None:
        return None
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def size(value: float | None) -> str | None:
    """Bytes in the unit that leaves one to four digits."""
    value = known(value)
    if value is None:
        return None
    amount, unit = float(value), BYTE_UNITS[0]
    for larger in BYTE_UNITS[1:]:
        if amount < KIB:
            break
        amount, unit = amount / KIB, larger
    digits = f"{amount:,.0f}" if amount >= 10 or unit == "B" else f"{amount:.1f}"
    return f"{digits}{NO_BREAK}{unit}"


def percent(ratio: float | None) -> str | None:
    """A share of one."""
    ratio = known(ratio)
    if ratio is None:
        return None
    return f"{ratio:.1%}" if 0 < ratio < 0.1 else f"{ratio:.0%}"


def duration(seconds: float | None, language: str = "en") -> str | None:
    """The two largest units of a duration; a line ends between them at most."""
    seconds = known(seconds)
    if seconds is None:
        return None
    units = DURATION_UNITS[language]
    if 0 < seconds < 1:
        return f"<{NO_BREAK}1{NO_BREAK}{units[-1][1]}"
    left = max(0, int(seconds))
    parts = []
    for length, unit in units:
        count, left = divmod(left, length)
        parts.append((count, unit))
    first = next((place for place, (count, _) in enumerate(parts) if count), len(parts) - 1)
    shown = [f"{count}{NO_BREAK}{unit}" for count, unit in parts[first : first + 2] if count]
    return " ".join(shown) or f"0{NO_BREAK}{units[-1][1]}"


def moment(value: object) -> datetime | None:
    """A time as the API gives it, in UTC: milliseconds since 1970, or ISO 8601."""
    try:
        if isinstance(value, datetime):
            return value.astimezone(UTC)
        if isinstance(value, (int, float)) and value > 0:
            return datetime.fromtimestamp(value / 1000, UTC)
        if isinstance(value, str) and value:
            return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def zoned(text: str) -> str:
    """A time that was typed without a zone as one of UTC, in which pages without scripts show
    times; with scripts it has the zone of the browser. Other texts stay.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    # A command takes digits alone for milliseconds.
    return text if at.tzinfo or text.isdigit() else at.replace(tzinfo=UTC).isoformat()


def iso(value: object) -> str:
    """A time for programs; empty when it is none."""
    at = moment(value)
    return "" if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc(value: object) -> str:
    """A time for people whose browser runs no scripts."""
    at = moment(value)
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def share(part: float | None, whole: float | None) -> float:
    """A part of a whole in hundredths, between 0 and 100; 0 where one is not known."""
    if not part or not whole:
        return 0.0
    return round(min(100.0, max(0.0, 100 * part / whole)), 1)


def listed(value: Any) -> str:
    """Texts one after the other."""
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def hexadecimal(body: bytes, most: int) -> str:
    """The first bytes of a body: their place, their values, and those that are ASCII."""
    lines = []
    for at in range(0, min(len(body), most), 16):
        row = body[at : at + 16]
        signs = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {signs}")
    return "\n".join(lines)
