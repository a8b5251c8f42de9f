"""Pulling: reading queues, long polling, and protection from slow groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.core.feature import Feature
from aerobee.broker.errors import GroupTooFast
from aerobee.broker.pull.access import ReadAccess
from aerobee.broker.pull.hold import Hold
from aerobee.broker.pull.protection import Protection
from aerobee.broker.pull.pull import Pull
from aerobee.broker.pull.unread import UnreadReport
from aerobee.broker.topics.rates import Rates
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import pull as headers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.topics.topics import TopicTable


class PullFeature(Feature):
    """The requests of pull consumers, held pulls, and read permissions."""

    def __init__(self, core: Core, topics: TopicTable, consumers: ConsumerTables) -> None:
        broker = core.config.broker
        self._core = core
        self._rates = Rates(core.clock, core.stats.groups_too_fast, GroupTooFast)
        self.access = ReadAccess(
            broker,
            topics=topics,
            groups=consumers.groups,
            rates=self._rates,
            clock=core.clock,
        )
        self.held = self.hold = Hold(
            core.store.max_offset,
            core.hold_limits(broker.max_held_pulls),
            core.rounds.flush,
            self._listening,
            self.access.still,
        )
        topics.listeners.append(self.hold.changed)
        consumers.groups.listeners.append(self.hold.changed)
        self.requests = Pull(core, access=self.access, consumers=consumers, hold=self.hold)
        self.routes = (
            Route(headers.PullMessage, self.requests.pull, "pull"),
            Route(headers.LitePullMessage, self.requests.pull, "lite_pull"),
        )
        self.protection = Protection(
            broker,
            stats=core.stats,
            groups=consumers.groups,
            offsets=consumers.offsets,
            store=core.store,
            clock=core.clock,
        )
        self.services = (self.protection, self.hold)
        core.store.space.queues.on_deleted.append(
            UnreadReport(consumers.offsets, core.stats).deleted
        )

    def _listening(self, on: bool) -> None:
        """Notify held pulls of arrivals only while there are any."""
        arrivals = self._core.store.arrivals
        (arrivals.add if on else arrivals.remove)(self.hold.arrived)

    def group_deleted(self, group: str) -> None:
        """Forget how much it has received."""
        self._rates.forget(group)

    def settings_changed(self) -> Iterator[None]:
        """Take the limits on held pulls from the settings; what is held already stays."""
        core = self._core
        self.hold.quota.limits = core.hold_limits(core.config.broker.max_held_pulls)
        yield
