"""NOTIFICATION and POLLING_INFO: whether there is a message to pop, and how many pops wait.

A notification that finds nothing is held beside the pops: a message wakes one of each. Source:
remoting §3.12 (NotificationProcessor, PollingInfoProcessor).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from aerobee.broker.pop.pop_hold import NOTIFICATIONS, POPS
from aerobee.broker.pop.pop_reader import ALL_QUEUES, PopScope
from aerobee.broker.pop.pop_wait import HoldableRequest, Nothing, PopWaits, deadline
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.headers.pop import NotificationResponse, PollingInfoResponse
from aerobee.store.errors import NotInMemory

if TYPE_CHECKING:
    from aerobee.broker.pop.pop_hold import PopHold
    from aerobee.broker.pop.pop_reader import PopReader
    from aerobee.broker.pull.access import ReadAccess
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Outcome
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.pop import Notification, PollingInfo
    from aerobee.store.clock import Clock

SOME: Final = Answer(header=NotificationResponse(has_msg=True))
NONE: Final = Answer(header=NotificationResponse(has_msg=False))
FULL: Final = Answer(header=NotificationResponse(has_msg=False, polling_full=True))


class NotificationProcessor:
    """Both codes."""

    def __init__(
        self, *, access: ReadAccess, reader: PopReader, hold: PopHold, clock: Clock
    ) -> None:
        self._access = access
        self._reader = reader
        self._hold = hold
        self._clock = clock
        self._waits = PopWaits(hold, clock, kind=NOTIFICATIONS, over=NONE, full=FULL)

    def notify(self, header: Notification, command: Command, connection: Caller) -> Outcome:
        """NOTIFICATION."""
        scope = self._checked(header)
        try:
            outcome = self._look(scope)
        except NotInMemory:
            return self._reader.complete(lambda: self._look_once(scope))
        if isinstance(outcome, Answer):
            return outcome
        end = deadline(header.born_time, header.poll_time, self._clock.now_ms())
        request = HoldableRequest(header, command, connection, end)
        return self._waits.wait(request, outcome, partial(self._again, header))

    def polling(self, header: PollingInfo, command: Command, connection: Caller) -> Answer:
        """POLLING_INFO: how many pops wait there."""
        self._access.broker()
        topic = self._access.topic(header.topic)
        self._access.queue(topic, header.queue_id, lowest=ALL_QUEUES)
        self._access.group(header.consumer_group)
        number = self._hold.count(header.topic, header.consumer_group, header.queue_id, POPS)
        return Answer(header=PollingInfoResponse(number))

    def _checked(self, header: Notification) -> PopScope:
        """Check access; returns what the request waits for. Raises: Refusal."""
        access = self._access
        access.broker()
        topic = access.topic(header.topic)
        access.queue(topic, header.queue_id, lowest=ALL_QUEUES)
        access.group(header.consumer_group)
        return PopScope(
            header.consumer_group,
            topic,
            header.queue_id,
            1,
            order=bool(header.order),
            attempt_id=header.attempt_id,
            now_ms=self._clock.now_ms(),
        )

    def _look(self, scope: PopScope) -> Answer | Nothing:
        """Whether there is a message. Raises: NotInMemory, OSError."""
        reads = self._reader.has_messages(scope)
        return SOME if reads.rest else Nothing(reads.cut, reads.free_at_ms)

    def _look_once(self, scope: PopScope) -> Answer:
        outcome = self._look(scope)
        return outcome if isinstance(outcome, Answer) else NONE

    def _again(self, header: Notification) -> Answer | Nothing:
        self._access.group_is_there(header.consumer_group)
        return self._look(self._checked(header))
