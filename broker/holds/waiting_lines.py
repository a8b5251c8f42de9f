"""Held requests in lines, one for each filter: a message finds the lines that it wakes.

Lines whose filter wants a few tags are found by the code of the message, in one lookup. SQL filters
and filters with many tags have to be asked one by one, so only a few of these have a line. A
request beyond a limit waits as if it had no filter: the next message wakes it, and it runs again,
with its filter. Invariant: a message costs what it wakes, and never more because more are held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from aerobee.broker.filters.sql_filter import SqlFilter
from aerobee.broker.filters.subscription import passes
from aerobee.broker.holds.held_request import HeldRequest
from aerobee.store.format.tags import hash_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from aerobee.broker.filters.subscription import Filter

    Choice: TypeAlias = frozenset[int] | str | None

CODES_INDEXED: Final = 16
"""A filter with more tags is asked: its places in the index would take more than its request."""
ASKED_LINES: Final = 16
"""Lines whose filters are asked one by one for each message: of SQL, or with many tags."""
ASKED_BYTES: Final = 1_024
"""Messages with longer properties wake these lines without asking: that would take long."""
OFFSET_MAX: Final = (1 << 63) - 1

H = TypeVar("H", bound=HeldRequest)


class WaitingLine(Generic[H]):
    """The requests of one owner with one filter, the longest wait first."""

    __slots__ = ("held", "highest", "key", "lowest")

    def __init__(self, key: tuple[Hashable, Choice]) -> None:
        self.key = key
        """Its owner, and what it wants."""
        self.held: dict[H, None] = {}
        self.lowest = OFFSET_MAX
        """Of pulls: none in here asked for an offset below."""
        self.highest = 0
        """Of pulls: none in here asked for an offset above."""

    @property
    def owner(self) -> Hashable:
        """Whose requests these are."""
        return self.key[0]

    @property
    def first(self) -> H:
        """The request with the longest wait."""
        return next(iter(self.held))


class Sharers(Generic[H]):
    """The lines that want the same tag, where there were several at once."""

    __slots__ = ("lines", "of_owner")

    def __init__(self) -> None:
        self.lines: dict[WaitingLine[H], None] = {}
        self.of_owner: dict[Hashable, int] = {}

    def add(self, line: WaitingLine[H]) -> None:
        """Add a line."""
        self.lines[line] = None
        self.of_owner[line.owner] = self.of_owner.get(line.owner, 0) + 1

    def remove(self, line: WaitingLine[H]) -> None:
        """Remove a line."""
        del self.lines[line]
        self.of_owner[line.owner] -= 1
        if not self.of_owner[line.owner]:
            del self.of_owner[line.owner]


class WaitingLines(Generic[H]):
    """The lines of one queue. `sharing` is how many lines of one owner may want the same tag.

    A message with this tag looks at all of them.

    Invariant: a line in here is in exactly one of `_every`, `_by_code` and `_asked`.
    """

    __slots__ = ("_asked", "_by_code", "_every", "_lines", "_sharing")

    def __init__(self, sharing: int) -> None:
        self._sharing = sharing
        self._lines: dict[tuple[Hashable, Choice], WaitingLine[H]] = {}
        self._every: dict[WaitingLine[H], None] = {}
        """Lines that any message wakes."""
        self._by_code: dict[int, WaitingLine[H] | Sharers[H]] = {}
        self._asked: dict[WaitingLine[H], Filter] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[WaitingLine[H]]:
        """All lines; they may change between two of them."""
        for key, line in list(self._lines.items()):
            if self._lines.get(key) is line:
                yield line

    def add(self, request: H, owner: Hashable = None) -> WaitingLine[H]:
        """Add a request to the line of its owner and filter, which is returned. Hot."""
        matches = request.matches
        key = (owner, None if matches is None else _wanted(matches))
        line = self._lines.get(key)
        if line is None:
            line = self._open(key, matches)
        line.held[request] = None
        return line

    def remove(self, request: H, line: WaitingLine[H]) -> bool:
        """Remove a request from its line, and the line when it was the last one.

        Returns whether any lines are left.
        """
        del line.held[request]
        return bool(line.held) or self.close(line)

    def passing(self, tags_code: int, properties: bytes) -> list[WaitingLine[H]]:
        """The lines that want a message. Hot."""
        waiting = [*self._every]
        if len(waiting) < len(self._lines):
            waiting += self._filtered(tags_code, properties)
        return waiting

    def passing_of(
        self, owner: Hashable, tags_code: int, properties: bytes
    ) -> list[WaitingLine[H]]:
        """The lines of one owner that want a message."""
        every = self._lines.get((owner, None))
        waiting = [] if every is None else [every]
        filtered = self._filtered(tags_code, properties)
        return waiting + [line for line in filtered if line.owner == owner]

    def close(self, line: WaitingLine[H]) -> bool:
        """Remove a line, unless it was removed before. Its requests still have it.

        Returns whether any lines are left.
        """
        lines, key = self._lines, line.key
        if lines.get(key) is line:
            del lines[key]
            codes = key[1]
            if codes is None:
                del self._every[line]
            elif self._asked.pop(line, None) is None:
                assert not isinstance(codes, str), "a line of SQL is asked"
                self._leave(codes, line)
        return bool(lines)

    def _open(self, key: tuple[Hashable, Choice], matches: Filter | None) -> WaitingLine[H]:
        owner, wanted = key
        line: WaitingLine[H] = WaitingLine(key)
        if matches is None or wanted is None:
            self._every[line] = None
        elif isinstance(wanted, str) or not self._enter(wanted, line):
            if len(self._asked) >= ASKED_LINES:
                key = (owner, None)
                return self._lines.get(key) or self._open(key, None)
            self._asked[line] = matches
        self._lines[key] = line
        return line

    def _enter(self, codes: frozenset[int], line: WaitingLine[H]) -> bool:
        """Let a line be found by its codes; False when there is no room."""
        by_code = self._by_code
        if len(codes) > CODES_INDEXED:
            return False
        for code in codes:
            there = by_code.get(code)
            if isinstance(there, Sharers) and there.of_owner.get(line.owner, 0) >= self._sharing:
                return False
        for code in codes:
            there = by_code.get(code)
            if there is None:
                by_code[code] = line
                continue
            if isinstance(there, WaitingLine):
                sharers: Sharers[H] = Sharers()
                sharers.add(there)
                there = by_code[code] = sharers
            there.add(line)
        return True

    def _leave(self, codes: frozenset[int], line: WaitingLine[H]) -> None:
        by_code = self._by_code
        for code in codes:
            there = by_code[code]
            if isinstance(there, Sharers):
                there.remove(line)
                if there.lines:
                    continue
            del by_code[code]

    def _tagged(self, code: int) -> list[WaitingLine[H]]:
        """The lines in `_by_code` that want a tag."""
        there = self._by_code.get(code)
        if there is None:
            return []
        return [*there.lines] if isinstance(there, Sharers) else [there]

    def _filtered(self, tags_code: int, properties: bytes) -> list[WaitingLine[H]]:
        """The lines with a filter that passes a message. Hot."""
        waiting = self._tagged(tags_code)
        if not -0x8000_0000 <= tags_code <= 0x7FFF_FFFF:
            waiting = self._of_no_hash(tags_code)
        if self._asked:
            long = len(properties) > ASKED_BYTES
            waiting += [
                line
                for line, matches in self._asked.items()
                if long or passes(matches, tags_code, properties)
            ]
        return waiting

    def _of_no_hash(self, tags_code: int) -> list[WaitingLine[H]]:
        """The lines in `_by_code` that want a message whose tags code is no hash of tags."""
        code = hash_of(tags_code)
        if code is not None:
            return self._tagged(code)
        return [*{line: None for code in self._by_code for line in self._tagged(code)}]


def _wanted(matches: Filter) -> Choice:
    """The choice of a filter; None: everything. Filters that pass the same are one line."""
    return matches.expression if isinstance(matches, SqlFilter) else matches.codes
