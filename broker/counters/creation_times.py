"""How long the requests take that create or change a topic or a consumer group.

Source: semantics §20.1 (AdminBrokerProcessor.updateAndCreateTopic).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.remoting.server.routes import PendingAnswer
from aerobee.store.stats import Durations

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.remoting.server.routes import Later, Plain
    from aerobee.store.clock import Clock

BOUNDS_MS: Final = (10, 100, 1_000, 3_000, 5_000)
"""RocketMQ's buckets."""
SUCCESS: Final = "success"
FAILURE: Final = "failure"


class CreationTimes:
    """Times in ms, by how the request ended and whether the name is the broker's own."""

    __slots__ = ("durations",)

    def __init__(self) -> None:
        self.durations: dict[tuple[str, bool], Durations] = {}

    def measured(self, serve: Callable[[], Plain], clock: Clock, *, system: bool = False) -> Plain:
        """Serve a request, and note how long it takes until its answer is ready."""
        began = clock.monotonic()
        try:
            outcome = serve()
        except Exception:
            self._note(FAILURE, system, clock.monotonic() - began)
            raise
        if isinstance(outcome, PendingAnswer):
            return PendingAnswer(self._until(outcome.work, clock, began, system=system))
        self._note(SUCCESS, system, clock.monotonic() - began)
        return outcome

    async def _until(
        self, outcome: Awaitable[Later], clock: Clock, began: float, *, system: bool
    ) -> Later:
        status = FAILURE
        try:
            answer = await outcome
            status = SUCCESS
            return answer
        finally:
            self._note(status, system, clock.monotonic() - began)

    def _note(self, status: str, system: bool, elapsed_s: float) -> None:
        key = (status, system)
        durations = self.durations.get(key) or self.durations.setdefault(key, Durations(BOUNDS_MS))
        durations.add(elapsed_s * 1_000)
