"""Administration: requests about topics, groups and the broker, and clean-up on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.admin.cleanup import CleanupProcessor
from aerobee.broker.admin.client_calls import ClientCalls
from aerobee.broker.admin.connected_clients import ConnectedClients
from aerobee.broker.admin.consumption import ConsumptionProcessor
from aerobee.broker.admin.figures import Figures
from aerobee.broker.admin.runtime_info import RuntimeInfo
from aerobee.broker.admin.topic_deletion import TopicDeletion
from aerobee.broker.core.feature import Feature
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import admin, cleanup, topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.delay.delay_offsets import DelayOffsetTable
    from aerobee.broker.metrics.feature import MetricsFeature
    from aerobee.broker.metrics.figures import TimerFigures
    from aerobee.broker.topics.feature import TopicsFeature


class AdminFeature(Feature):
    """The requests of mqadmin and of consoles that belong to no other feature."""

    def __init__(
        self,
        core: Core,
        topics: TopicsFeature,
        consumers: ConsumerTables,
        metrics: MetricsFeature,
        *,
        delays: DelayOffsetTable,
        timers: TimerFigures | None,
        copies: Callable[[], str],
    ) -> None:
        sampling, lags = metrics.sampling, metrics.lags
        info = RuntimeInfo(core, sampling=sampling, delays=delays, timers=timers, copies=copies)
        figures = Figures(sampling.samples, info)
        connected = ConnectedClients(consumers.clients, core.clock)
        consumption = ConsumptionProcessor(
            core, topics=topics.table, consumers=consumers, samples=sampling.samples, lags=lags
        )
        clean = CleanupProcessor(
            store=core.store,
            topics=topics.table,
            offsets=consumers.offsets,
            changing=core.tables,
            clock=core.clock,
            role=core.role,
        )
        calls = ClientCalls(core, topics=topics.table, consumers=consumers)
        self.deletion = deletion = TopicDeletion(core, topics, consumers)
        self.routes = (
            Route(topic.DeleteTopicInBroker, deletion.delete, "admin"),
            Route(admin.GetBrokerRuntimeInfo, figures.runtime, "admin"),
            Route(admin.GetTopicStatsInfo, consumption.topic_stats, "admin"),
            Route(admin.GetConsumerConnectionList, connected.consumer_connections, "admin"),
            Route(admin.GetProducerConnectionList, connected.producer_connections, "admin"),
            Route(admin.GetConsumeStats, consumption.consume_stats, "admin"),
            Route(admin.QueryTopicConsumeByWho, consumption.groups_of, "admin"),
            Route(admin.QueryTopicsByConsumer, consumption.topics_with_offsets, "admin"),
            Route(admin.GetBrokerConsumeStats, consumption.all_consume_stats, "admin"),
            Route(admin.QueryConsumeTimeSpan, consumption.time_spans, "admin"),
            Route(admin.QueryConsumeQueue, consumption.units, "admin"),
            Route(admin.GetAllProducerInfo, connected.all_producers, "admin"),
            Route(admin.QuerySubscriptionByConsumer, connected.subscription, "admin"),
            # A pool without other slow requests: a silent client occupies its worker for long.
            Route(admin.GetConsumerRunningInfo, calls.running_info, "client_manager"),
            Route(admin.ConsumeMessageDirectly, calls.consume_directly, "client_manager"),
            Route(admin.CloseClient, calls.close, "admin"),
            Route(admin.ViewBrokerStatsData, figures.stats_data, "admin"),
            Route(cleanup.DeleteExpiredCommitLog, clean.delete_expired_log, "admin"),
            Route(cleanup.CleanExpiredConsumeQueue, clean.clean_expired_queues, "admin"),
            Route(cleanup.CleanUnusedTopic, clean.clean_unused_topics, "admin"),
        )
