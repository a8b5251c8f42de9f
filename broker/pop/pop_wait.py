"""How a pop or a notification that finds nothing waits, and how it is answered afterwards.

A held request never waits for the disk, and gets no disk errors: it is answered as at the end of
its wait, and the client's next request reads the disk or gets the error. Source: semantics §11.1
(PopLongPollingService).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import trio
from msgspec.structs import astuple

from aerobee.broker.errors import CONTENT_ERRORS, Refusal
from aerobee.broker.filters.sql_filter import SqlFilter
from aerobee.broker.holds.quota import weight_of
from aerobee.broker.pop.pop_hold import HeldPop
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.headers.pop import Notification, PopMessage
from aerobee.store.errors import NotInMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.filters.subscription import Filter
    from aerobee.broker.pop.pop_hold import PopHold
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.wire.command import Command
    from aerobee.store.clock import Clock

EARLY_MS: Final = 50
"""How long before its deadline a held request is answered."""
HOLD_MAX_MS: Final = 300_000
"""The longest wait, whatever the request asks for."""

H = TypeVar("H", PopMessage, Notification)


class HoldableRequest(NamedTuple, Generic[H]):
    """A request that passed the checks and may be held."""

    header: H
    command: Command
    connection: Caller
    deadline: float
    """When it is answered at the latest, in seconds of the loop; minus infinity: at once."""


def deadline(born_ms: int, poll_ms: int, now_ms: int) -> float:
    """The latest time of the answer to a request that may be held, in seconds of the loop.

    A wrong clock of a client does not prolong its wait.
    """
    left_ms = (born_ms or now_ms) + poll_ms - EARLY_MS - now_ms
    return trio.current_time() + min(left_ms, poll_ms, HOLD_MAX_MS) / 1000


class Nothing(NamedTuple):
    """An attempt that found no message."""

    cut: bool
    """A filter has scanned its limit: the client asks again at once."""
    free_at_ms: int
    """When the first of the blocked queues is free; 0 when none is blocked."""


class PopWaits:
    """Holds requests of one kind: `over` answers at the deadline, `full` where there is no room."""

    def __init__(
        self, hold: PopHold, clock: Clock, *, kind: str, over: Answer, full: Answer
    ) -> None:
        self._hold = hold
        self._clock = clock
        self._kind = kind
        self._full = full
        self._over = over

    def wait(
        self,
        request: HoldableRequest[PopMessage] | HoldableRequest[Notification],
        nothing: Nothing,
        attempt: Callable[[], Answer | Nothing],
        matches: Filter | None = None,
    ) -> Answer | None:
        """Hold a request that found nothing, or answer it; None: it is held.

        `attempt` is made again when a message comes, and when a blocked queue is free.
        """
        now = trio.current_time()
        if nothing.cut or request.deadline <= now:
            return self._over

        def resume(last: bool) -> None:
            answer: Answer | None
            try:
                outcome = attempt()
                if isinstance(outcome, Answer):
                    answer = outcome
                else:
                    answer = self._over if last else self.wait(request, outcome, attempt, matches)
            except Refusal as refused:
                answer = Answer(refused.code, refused.header, refused.remark)
            except (NotInMemory, OSError):
                answer = self._over
            except CONTENT_ERRORS as error:
                # An error of one request must not end the task that wakes the others.
                request.connection.failed(request.command, error)
                return
            if answer is not None:
                request.connection.answer(request.command, answer, held=True)

        header = request.header
        look_at = request.deadline
        if nothing.free_at_ms:
            look_at = min(look_at, now + (nothing.free_at_ms - self._clock.now_ms()) / 1000)
        held = HeldPop(
            connection=request.connection,
            topic=header.topic,
            group=header.consumer_group,
            queue_id=header.queue_id,
            kind=self._kind,
            matches=matches,
            deadline=request.deadline,
            look_at=look_at,
            resume=resume,
            weight=weight_of(_chars(header), shared=not isinstance(matches, SqlFilter)),
        )
        return None if self._hold.park(held) else self._full


def _chars(header: PopMessage | Notification) -> int:
    """The characters of all texts of the request."""
    return sum(len(value) for value in astuple(header) if isinstance(value, str))
