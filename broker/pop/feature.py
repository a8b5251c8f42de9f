"""POP: consumers pop messages one by one, and unacknowledged ones are delivered again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from aerobee.broker.core.feature import Feature
from aerobee.broker.pop.ack import Acknowledge
from aerobee.broker.pop.notification import NotificationProcessor
from aerobee.broker.pop.pop import Pop
from aerobee.broker.pop.pop_hold import PopHold, PopLimits
from aerobee.broker.pop.pop_orders import PopOrderTable
from aerobee.broker.pop.pop_reader import PopReader
from aerobee.broker.pop.revive import Revive, Timing
from aerobee.broker.pop.revive_log import PopsOut, ReviveLog
from aerobee.broker.saved.save import Periodic
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import pop as headers
from aerobee.store.format.system_names import WHEEL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.pull.access import ReadAccess
    from aerobee.broker.timers.timers import Timers
    from aerobee.broker.topics.topics import TopicTable

ORDERS_S: Final = 10.0
"""Seconds between saves of the table of orderly pops."""


class PopFeature(Feature):
    """The requests of POP consumers, held pops, and the revival of unacknowledged messages.

    `timers` deliver check points when they are due; without them pops are refused.
    """

    def __init__(
        self,
        core: Core,
        topics: TopicTable,
        consumers: ConsumerTables,
        *,
        access: ReadAccess,
        timers: Timers | None,
    ) -> None:
        self._core = core
        broker = core.config.broker
        self.orders = PopOrderTable()
        self._order_file = core.tables.changing(self.orders, "consumerOrderInfo.json")
        self.periodic = (Periodic(self._order_file, ORDERS_S),)
        limits = PopLimits(
            core.hold_limits(broker.max_pop_polling_size),
            broker.pop_polling_size,
            broker.pop_polling_map_size,
        )
        self.held = self.hold = PopHold(limits, self._listening, core.rounds.finish)
        for table in (topics, consumers.groups, consumers.offsets):
            table.listeners.append(self.hold.changed)
        self.revive_log = ReviveLog(core, timers)
        self.revive = Revive(
            core,
            revive_log=self.revive_log,
            topics=topics,
            offsets=consumers.offsets,
            timing=timing(core, timers),
        )
        self.master_services = (self.revive,)
        self.services = (self.hold,)
        chance = random.randrange
        self.reader = PopReader(
            core, topics=topics, consumers=consumers, orders=self.orders, chance=chance
        )
        out = PopsOut(
            self.revive_log, consumers.offsets, self.orders, self.hold, timed=timers is not None
        )
        pop = Pop(
            core,
            access=access,
            topics=topics,
            reader=self.reader,
            out=out,
            compensation=consumers.compensation,
        )
        notification = NotificationProcessor(
            access=access, reader=self.reader, hold=self.hold, clock=core.clock
        )
        ack = Acknowledge(core, topics=topics, consumers=consumers, out=out)
        self.routes = (
            Route(headers.PopMessage, pop.pop, "pull"),
            Route(headers.PeekMessage, pop.peek, "pull"),
            Route(headers.Notification, notification.notify, "pull"),
            Route(headers.PollingInfo, notification.polling, "pull"),
            Route(headers.AckMessage, ack.one, "ack"),
            Route(headers.BatchAckMessage, ack.batch, "ack"),
            Route(headers.ChangeInvisibleTime, ack.change, "ack"),
        )

    def _listening(self, on: bool) -> None:
        """Notify held pops of arrivals only while there are any."""
        arrivals = self._core.store.arrivals
        (arrivals.add if on else arrivals.remove)(self.hold.arrived)

    def settings_changed(self) -> Iterator[None]:
        """Take the limits on held pops from the settings; what is held already stays."""
        core = self._core
        self.hold.quota.limits = core.hold_limits(core.config.broker.max_pop_polling_size)
        yield

    def load(self) -> None:
        """Load the table of orderly pops."""
        self._order_file.load(self.orders.load)

    def topic_deleted(self, topic: str) -> None:
        """Forget the orderly pops of a deleted topic."""
        self.orders.delete_topic(topic)
        self._order_file.notice()

    def group_deleted(self, group: str) -> None:
        """Forget the orderly pops of a deleted group."""
        self.orders.delete_group(group)
        self._order_file.notice()

    def copy_begins(self) -> None:
        """Forget the orderly pops, and refuse who waits: another master hands messages out."""
        self.orders.forget_all()
        self._order_file.notice()
        self.hold.changed([key.topic for key in self.hold.groups])

    def settle(self) -> None:
        """Write down which messages were put back behind an open check point."""
        self.revive.settle()

    def scan(self) -> Iterator[None]:
        """Remove old orderly pops."""
        yield from self.orders.expire(self._core.store.space.age_ms)


def timing(core: Core, timers: Timers | None) -> Timing:
    """The time up to which the timers have delivered everything."""
    if timers is None:
        now_ms = core.clock.now_ms
        return Timing(core.store, waiting_end=int, read_to=int, delivered_ms=now_ms, now_ms=now_ms)
    wheel, max_offset = timers.timers, core.store.max_offset
    return Timing(
        core.store,
        waiting_end=lambda: max_offset(WHEEL_TOPIC, 0),
        read_to=lambda: wheel.queue_offset,
        delivered_ms=lambda: wheel.read_time_ms,
        now_ms=core.clock.now_ms,
    )
