"""Addresses of `plain_acl.yml` whose requests need no signature: one pattern, or a list of them.

    192.168.0.*    10.10.{103,105}.1-20    10.0.0.7,10.0.0.9    *    fe80::{1,2a}    2001:db8::1-ff

Each part of an address is a number, a range, a choice in braces, or an asterisk; parts that an
address of version 4 lacks after an asterisk are asterisks. Source: semantics §18.2
(RemoteAddressStrategyFactory).
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable


Host: TypeAlias = IPv4Address | IPv6Address
"""The address that a request comes from; IPv4 through a dual-stack socket is IPv4."""

ANY = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
COMMAS = re.compile(r",(?![^{]*\})")
"""Commas outside of braces."""
DECIMAL = re.compile(r"[0-9]{1,3}", re.ASCII)
HEX = re.compile(r"[0-9a-fA-F]{1,4}", re.ASCII)
KEPT = 1024
"""Addresses whose answer is remembered."""


class Form(NamedTuple):
    """How addresses of one version are written."""

    version: int
    separator: str
    parts: int
    largest: int
    number: re.Pattern[str]
    base: int


V4 = Form(4, ".", 4, 255, DECIMAL, 10)
V6 = Form(6, ":", 8, 0xFFFF, HEX, 16)

Part = tuple[tuple[int, int], ...]
"""Ranges of numbers, both ends included."""


class Pattern(NamedTuple):
    """The allowed numbers of each part; no parts: every address."""

    version: int
    parts: tuple[Part, ...]

    def matches(self, host: Host) -> bool:
        """Whether the address is one of those meant."""
        if not self.parts:
            return True
        if host.version != self.version:
            return False
        width = len(host.packed) // len(self.parts)
        numbers = (
            int.from_bytes(host.packed[at : at + width]) for at in range(0, len(host.packed), width)
        )
        return all(
            any(first <= number <= last for first, last in part)
            for number, part in zip(numbers, self.parts, strict=True)
        )


class WhiteAddresses:
    """The addresses that any of these texts means. Raises: ValueError for one that has no form."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.patterns = [pattern for text in texts for pattern in patterns(text)]
        self.covers = lru_cache(KEPT)(self._covers)
        """Whether an address is one of them."""

    def __bool__(self) -> bool:
        return bool(self.patterns)

    @property
    def everyone(self) -> bool:
        """Whether one of the texts means every address."""
        return any(not pattern.parts for pattern in self.patterns)

    def _covers(self, host: Host) -> bool:
        return any(pattern.matches(host) for pattern in self.patterns)


NO_ADDRESSES: Final = WhiteAddresses()


def patterns(text: str) -> list[Pattern]:
    """The patterns of a list; none of an empty text. Raises: ValueError."""
    if not text.strip():
        return []
    return [pattern(part.strip()) for part in COMMAS.split(text)]


def pattern(text: str) -> Pattern:
    """One pattern. Raises: ValueError."""
    if text in ANY:
        return Pattern(0, ())
    form = V6 if ":" in text else V4
    parts = text.split(form.separator)
    parts = filled_v6(parts, text) if form is V6 else filled_v4(parts)
    if len(parts) != form.parts:
        raise ValueError(f"{text!r} is no address: it has {len(parts)} of {form.parts} parts")
    return Pattern(form.version, tuple(ranges(part.strip(), form, text) for part in parts))


def filled_v4(parts: list[str]) -> list[str]:
    """The parts; those behind a last asterisk are asterisks, too."""
    return parts + ["*"] * (4 - len(parts)) if parts[-1] == "*" else parts


def filled_v6(parts: list[str], text: str) -> list[str]:
    """The parts, with zeros in place of `::`. Raises: ValueError when it is there twice."""
    if "::" not in text:
        return parts
    before, after = ([part for part in side.split(":") if part] for side in text.split("::", 1))
    if "::" in text.split("::", 1)[1]:
        raise ValueError(f"{text!r} is no address: it has :: twice")
    return before + ["0"] * (8 - len(before) - len(after)) + after


def ranges(part: str, form: Form, text: str) -> Part:
    """The numbers that one part allows. Raises: ValueError."""
    if part == "*":
        return ((0, form.largest),)
    if part.startswith("{") and part.endswith("}"):
        return tuple(span(choice.strip(), form, text) for choice in part[1:-1].split(","))
    return (span(part, form, text),)


def span(part: str, form: Form, text: str) -> tuple[int, int]:
    """A number or a range of numbers. Raises: ValueError."""
    first, dash, last = part.partition("-")
    ends = (first, last if dash else first)
    if not all(form.number.fullmatch(end) for end in ends):
        raise ValueError(f"{text!r} is no address: {part!r} is no number, range or choice")
    low, high = (int(end, form.base) for end in ends)
    if not low <= high <= form.largest:
        raise ValueError(f"{text!r} is no address: {part!r} is not within 0-{form.largest}")
    return low, high
