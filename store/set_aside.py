"""Messages that a service cannot process because of their content: set aside, and the service
continues.

Stored data is read again by every start. So an error that follows from the content of one message
(`CONTENT_ERRORS`) must neither end the process nor block what is behind it: the message stays in
the log, one log line says where, a counter counts it, and the service takes the next one. `aerobee
store dump` shows it by topic, queue and offset for as long as the log is kept.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import structlog

from aerobee.store.errors import RecordDamaged
from aerobee.store.format.record import records
from aerobee.store.results import Location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.store.clock import Clock
    from aerobee.store.format.record import Record
    from aerobee.store.results import GetResult
    from aerobee.store.stats import StoreStats

LINES: Final = 20
PERIOD_S: Final = 10.0
"""The period of the limit on log lines: a client that can send one such message can send a
million."""
REASON_CHARS: Final = 200
UNREADABLE_MAX: Final = 10_000
"""Messages that the disk cannot read and that are remembered; others are told each time."""
UNFORESEEN: Final = (AttributeError, LookupError, TypeError)

log = structlog.get_logger(__name__)


class SetAside:
    """Handles messages that a service cannot process.

    except CONTENT_ERRORS as error:
        aside.take("timers", location_of(record), error)
    """

    def __init__(self, stats: StoreStats, clock: Clock) -> None:
        self._stats = stats
        self._clock = clock
        self._began = float("-inf")
        self._said = 0
        self._left_out = 0
        self._unreadable: set[Location] = set()

    def take(self, service: str, location: Location, error: Exception) -> None:
        """Set a message aside because of this error."""
        self.note(service, location, f"{type(error).__name__}: {error}", raised_at(error))

    def records(
        self, service: str, result: GetResult, topic: str, queue_id: int, begin: int
    ) -> Iterator[Record]:
        """The records of an answer that was read from `begin` on, up to a damaged one.

        That one is set aside, and `next_begin_offset` of the answer is the one after it.
        """
        at = begin
        try:
            for record in records(result.views):
                yield record
                at = record.queue_offset + 1
        except RecordDamaged as error:
            self.note(service, Location(topic, queue_id, at, -1), str(error))
            result.next_begin_offset = at + 1

    def unreadable(self, service: str, location: Location, error: OSError) -> None:
        """Count and log a message that the disk cannot read, once in a run: its service goes on
        with others, and tries it again.
        """
        if location in self._unreadable:
            return
        if len(self._unreadable) < UNREADABLE_MAX:
            self._unreadable.add(location)
        counts = self._stats.unreadable
        counts[service] = counts.get(service, 0) + 1
        left_out = self._next_line()
        if left_out is not None:
            where = location._asdict()
            log.error(
                "message.unreadable", service=service, **where, error=str(error), left_out=left_out
            )

    def note(
        self, service: str, location: Location, reason: str, raised: str | None = None
    ) -> None:
        """Log and count a message; `raised` has the place of an unexpected error."""
        counts = self._stats.set_aside
        counts[service] = counts.get(service, 0) + 1
        left_out = self._next_line()
        if left_out is not None:
            log.error(
                "message.set_aside",
                service=service,
                **location._asdict(),
                reason=reason[:REASON_CHARS],
                raised=raised,
                left_out=left_out,
            )

    def _next_line(self) -> int | None:
        """How many lines were left out before the next one; None: there are too many of them."""
        now = self._clock.monotonic()
        if now - self._began >= PERIOD_S:
            self._began, self._said = now, 0
        if self._said >= LINES:
            self._left_out += 1
            return None
        self._said += 1
        left_out, self._left_out = self._left_out, 0
        return left_out


def raised_at(error: Exception) -> str | None:
    """File and line of an unexpected error: it may be a bug of ours."""
    trace = error.__traceback__
    if trace is None or not isinstance(error, UNFORESEEN):
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
