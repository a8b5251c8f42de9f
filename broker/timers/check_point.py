"""How far the timers are, for slaves: GET_TIMER_CHECK_POINT and GET_TIMER_METRICS.

A slave that takes the place of its master delivers what the check point says is left. So it says
what is on the disk of this broker, never more: a timer may be delivered twice, and none is lost.
While the wheel of a new master has not come as far as that of the one before, the earlier check
point is the better one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.errors import Refusal
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.format.timer import TIMER_CHECK

if TYPE_CHECKING:
    from aerobee.broker.timers.timers_done import TimersDone
    from aerobee.broker.timers.timing_counts import TimingCounts
    from aerobee.remoting.server.peer import Peer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import admin as headers
    from aerobee.store.timers.timer_store import TimerStore


class CheckPointProcessor:
    """Handles the codes 60 and 61."""

    def __init__(self, timers: TimerStore | None, counts: TimingCounts, done: TimersDone) -> None:
        """`timers` is None where timerWheelEnable is false; `done` is of the master before."""
        self._timers = timers
        self._counts = counts
        self._done = done

    def check_point(
        self, header: headers.GetTimerCheckPoint, command: Command, connection: Peer
    ) -> Answer:
        """GET_TIMER_CHECK_POINT: seven numbers, as in the file `timercheck`."""
        if self._timers is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return Answer(body=TIMER_CHECK.write(self._done.at_least(self._timers.saved_check())))

    def metrics(
        self, header: headers.GetTimerMetrics, command: Command, connection: Peer
    ) -> Answer:
        """GET_TIMER_METRICS: the content of the file `timermetrics`."""
        if self._timers is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        return Answer(body=msgspec.json.encode(self._counts.document()))
