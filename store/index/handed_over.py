"""Messages that dispatch has handed over and the index has not taken yet, in the order of the log.

Bounded: the oldest are dropped, and parsed from the log later. Messages that were put at once stay
together, and are taken in steps like others.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Final

from aerobee.store.errors import CONTENT_ERRORS
from aerobee.store.format.record import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from aerobee.store.format.unit import UNIT
from aerobee.store.results import Location

if TYPE_CHECKING:
    from aerobee.store.format.index import KeyHasher
    from aerobee.store.queues.dispatch import Dispatcher
    from aerobee.store.queues.dispatch_request import DispatchRequest
    from aerobee.store.set_aside import SetAside

PENDING_MAX: Final = 16_384
"""Requests that are queued."""
SLICE: Final = 400
"""Messages that are taken in one step: about 1 ms."""


class HandOver:
    """The queue between dispatch and the index, of messages from `most_bytes` of the log."""

    def __init__(self, dispatcher: Dispatcher, hasher: KeyHasher, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._dispatcher = dispatcher
        self._hasher = hasher
        self.pending: deque[DispatchRequest] = deque(maxlen=PENDING_MAX)
        self._offer = self.pending.append

    def follow(self, on: bool) -> None:
        """Take what is dispatched from now on, or no more of it."""
        dispatcher = self._dispatcher
        if on == (self._offer in dispatcher.followers):
            return
        if on:
            dispatcher.followers.append(self._offer)
            dispatcher.run_followers.append(self._offer_run)
        else:
            dispatcher.followers.remove(self._offer)
            dispatcher.run_followers.remove(self._offer_run)
            self.pending.clear()

    def _offer_run(self, request: DispatchRequest) -> None:
        """Queue messages that were put at once."""
        pending, least = self.pending, request.physical_offset - self._most_bytes
        pending.append(request)
        while pending[0].physical_offset < least:
            pending.popleft()

    def take(self, keys: list[tuple[int, int, int]], end: int, most: int, most_bytes: int) -> int:
        """Add the keys of a slice of messages, of which the first begins at `end` of the log, up to
        a gap, to `most` keys or to `most_bytes` of the log, but for the last message; returns where
        they end. Hot.
        """
        pending, collect = self.pending, self._hasher.collect
        limit = end + most_bytes
        count, left = 0, SLICE
        rest: DispatchRequest | None = None
        for request in pending:
            physical = request.physical_offset
            if physical != end or end > limit or left <= 0 or len(keys) > most:
                break
            count += 1
            end = physical + request.size
            if request.run is not None:
                rest = self._take_run(request, keys, left, most, limit)
                if rest is not None:
                    end = rest.physical_offset
                    break
                left -= len(request.run.properties) or 1
                continue
            left -= 1
            properties = request.properties
            if properties and request.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
                queue = request.queue
                try:
                    collect(keys, queue.topic, properties, physical, request.store_timestamp)
                except CONTENT_ERRORS as error:
                    number = request.queue_offset
                    where = Location(queue.topic, queue.queue_id, number, physical)
                    set_aside(self._dispatcher.aside, error, where)
        for _ in repeat(None, count):
            pending.popleft()
        if rest is not None:
            pending.appendleft(rest)
        return end

    def _take_run(
        self,
        request: DispatchRequest,
        keys: list[tuple[int, int, int]],
        left: int,
        most: int,
        limit: int,
    ) -> DispatchRequest | None:
        """Add the keys of messages that were put at once; returns those left for another step."""
        collect, stored, queue = self._hasher.collect, request.store_timestamp, request.queue
        assert request.run is not None
        units, all_properties = request.run
        each = zip(UNIT.iter_unpack(units), all_properties, strict=False)
        for number, ((physical, _, _), properties) in enumerate(each):
            if number and (number >= left or physical > limit or len(keys) > most):
                return request.rest(number)
            try:
                collect(keys, queue.topic, properties, physical, stored)
            except CONTENT_ERRORS as error:
                at = request.queue_offset + number
                where = Location(queue.topic, queue.queue_id, at, physical)
                set_aside(self._dispatcher.aside, error, where)
        return None


def set_aside(aside: SetAside, error: Exception, where: Location) -> None:
    """Index a message with unreadable keys as one without."""
    aside.take("index", where, error)
