"""Timer messages: delivered to the second by a timing wheel, and their recall."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.core.feature import Feature
from aerobee.broker.saved.save import Periodic
from aerobee.broker.timers.check_point import CheckPointProcessor
from aerobee.broker.timers.recall import RecallProcessor
from aerobee.broker.timers.timer_properties import TimerHook
from aerobee.broker.timers.timers import Timers
from aerobee.broker.timers.timers_done import TimersDone
from aerobee.broker.timers.timing_counts import TimingCounts
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import send as headers
from aerobee.remoting.wire.headers.admin import GetTimerCheckPoint, GetTimerMetrics
from aerobee.store.format.names import TIMERS_DONE
from aerobee.store.format.system_names import WHEEL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.core.core import Core
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.store.format.record import MessageDraft
    from aerobee.store.results import Recovery

COUNTS_S: Final = 10.0
"""Seconds between saves of what only another broker reads, or only the next master."""

log = structlog.stdlib.get_logger(__name__)


class TimersFeature(Feature):
    """The hook that redirects messages to the wheel topic, and the wheel; without it the hook
    refuses.
    """

    def __init__(self, core: Core, topics: TopicTable) -> None:
        self._clock = core.clock
        self._store = core.store
        config = core.config.store
        self._turn = TimerHook(
            enabled=config.timer_wheel_enable,
            precision_ms=config.timer_precision_ms,
            max_delay_s=config.timer_max_delay_s,
            start_deliver_time=core.config.broker.start_deliver_time_compat,
        )
        self.put_hooks = (self._hook,)
        self.counts = TimingCounts()
        self._count_file = core.tables.changing(self.counts, "timermetrics")
        self.done = TimersDone()
        # Timers that it calls delivered must not reach the disk before the copies.
        self._done_file = core.tables.changing(self.done, TIMERS_DONE, relies_on=core.puts.durable)
        self.periodic = (Periodic(self._count_file, COUNTS_S), Periodic(self._done_file, COUNTS_S))
        self.wheel = Timers(core, self.counts, self.done) if config.timer_wheel_enable else None
        """None where timerWheelEnable is false."""
        timers = None if self.wheel is None else self.wheel.timers
        check_point = CheckPointProcessor(timers, self.counts, self.done)
        self.routes = (
            Route(headers.RecallMessage, RecallProcessor(core, topics).recall, "send"),
            Route(GetTimerCheckPoint, check_point.check_point, "admin"),
            Route(GetTimerMetrics, check_point.metrics, "admin"),
        )
        if self.wheel is not None:
            self.master_services = (self.wheel,)

    def _hook(
        self, draft: MessageDraft, properties: dict[str, str], stored_ms: int, accepted: bool
    ) -> None:
        # Not the store timestamp, which stays when the clock goes back: a timer would be early.
        self._turn(draft, properties, self._clock.now_ms(), accepted=accepted)

    def load(self) -> None:
        """Load the counts, and what a master has delivered."""
        self._count_file.load(self.counts.load)
        self._done_file.load(self.done.load)

    def recovered(self, recovery: Recovery) -> None:
        """Load the wheel, with the precision that it was created with."""
        if self.wheel is not None:
            self.wheel.load(clean=recovery.clean)
            self._turn = self._turn._replace(precision_ms=self.wheel.timers.precision_ms)
        elif self._store.max_offset(WHEEL_TOPIC, 0):
            log.warning("timer.not_delivered", key="timerWheelEnable")

    def settings_changed(self) -> Iterator[None]:
        """Roll timers within what fileReservedTime is now."""
        if self.wheel is not None:
            self.wheel.settings_changed()
        yield

    async def close(self) -> None:
        """Stop, and save the state of the wheel."""
        if self.wheel is not None:
            await self.wheel.close()
