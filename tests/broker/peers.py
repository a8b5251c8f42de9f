"""A peer without a socket, and a clock that stands still until it is moved."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

NUMBERS = count(1)


class Saved:
    """A file that is as new as its table."""

    clean = True

    async def catch_up(self) -> None:
        """Nothing is left to be written."""


class HandClock:
    """Time that passes only when a test says so."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.wall_ms = wall_ms
        self.seconds = 1_000.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.seconds

    def pass_ms(self, elapsed_ms: int) -> None:
        self.wall_ms += elapsed_ms
        self.seconds += elapsed_ms / 1000


class Peer:
    """What handlers know of a connection; it remembers what was sent to it."""

    def __init__(
        self, address: str = "127.0.0.1:50000", local_address: str = "127.0.0.1:10911"
    ) -> None:
        self.id = next(NUMBERS)
        self.address = address
        self.local_address = local_address
        self.closed: str | None = None
        self.host = bytes((127, 0, 0, 1, 0, 0, 0xC3, 0x50))
        self.accounts: frozenset[str] = frozenset()
        self.paused = False
        self.requests = 0
        self.told: list[tuple[int, Any]] = []
        self.bodies: list[bytes] = []
        self.answers: list[Answer] = []
        self.held = 0
        self.context = SimpleNamespace(now=0.0)
        self.replies: Callable[[], Awaitable[Command]] = yes
        self.on_close: Callable[[Peer], None] = lambda peer: None

    @property
    def lane(self) -> Peer:
        """It shares with nobody."""
        return self

    def notify(self, code: int, header: Header | None, body: bytes = b"") -> None:
        self.told.append((int(code), header))
        self.bodies.append(body)

    def answer(self, command: Command, answer: Answer, *, held: bool = False) -> None:
        self.answers.append(answer)

    def failed(self, command: Command, error: Exception) -> None:
        """As a connection whose worker knows no other answer to it."""
        from aerobee.remoting.wire.answer import Answer

        self.answer(command, Answer(1, remark=str(error)))

    async def call(
        self, code: int, header: Header | None, body: bytes, timeout_s: float
    ) -> Command:
        """Note the request and its body; the answer is what `replies` gives."""
        self.told.append((int(code), header))
        self.bodies.append(body)
        return await self.replies()

    def close(self, reason: str) -> None:
        if self.closed is None:
            self.closed = reason
            self.on_close(self)


def request(code: int, body: bytes = b"", *, version: int = 479) -> Command:
    """A request as a handler gets it, its header aside."""
    from aerobee.remoting.wire.command import Command

    return Command(code=code, body=body, language="JAVA", version=version)


async def yes() -> Command:
    """SUCCESS, at once: what a peer answers unless a test says otherwise."""
    return request(0)
