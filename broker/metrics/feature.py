"""Metrics: rates of the last seconds and days, and what a scrape reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.core.feature import Feature
from aerobee.broker.metrics.lag import LagReader
from aerobee.broker.metrics.lag_history import LagHistory
from aerobee.broker.metrics.sampling import Sampling
from aerobee.broker.metrics.sources import make_sources
from aerobee.store.files.local_time import local_day

if TYPE_CHECKING:
    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.metrics.figures import ReplicationFigures, TimerFigures
    from aerobee.broker.metrics.limits import LimitUses
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.broker.transactions.open_transactions import Transactions


class MetricsFeature(Feature):
    """Samples the counters of all features periodically, and reads them at each scrape."""

    def __init__(
        self,
        core: Core,
        topics: TopicTable,
        consumers: ConsumerTables,
        transactions: Transactions,
        limits: LimitUses,
        *,
        timers: TimerFigures | None,
        copies: ReplicationFigures,
    ) -> None:
        remoting = core.rounds.reactor.stats
        lags = LagReader(core, topics, consumers)
        self.sampling = Sampling(
            stats=core.stats,
            store=core.store.stats,
            clock=core.clock,
            cluster=core.config.broker.broker_cluster_name,
            is_system_topic=topics.is_system,
            connections=lambda: (remoting.connections_opened, remoting.connections_closed),
            day_of=local_day,
        )
        self.lags = LagHistory(lags.read_messages, core.clock.now_ms)
        self.services = (self.sampling, self.lags)
        self.sources = make_sources(
            core,
            topics=topics,
            consumers=consumers,
            lags=lags,
            transactions=transactions,
            timers=timers,
            slaves=copies.slave_figures,
            slave_state=copies.slave_state,
            group_record=copies.group_record,
            limits=limits,
        )

    def topic_deleted(self, topic: str) -> None:
        """Forget the samples of the topic."""
        self.sampling.samples.delete_topic(topic)
        self.lags.delete_topic(topic)

    def group_deleted(self, group: str) -> None:
        """Forget the samples of the group."""
        self.sampling.samples.delete_group(group)
        self.lags.delete_group(group)
