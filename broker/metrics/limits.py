"""How near the limits on clients are: each setting with what is used of it now.

The limit of one client, group or topic is shown with the one that has most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.holds.quota import HoldQuota
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.broker.users.directory import UserDirectory


class LimitUse(NamedTuple):
    """A limit by the name of its setting, and what is used of it."""

    key: str
    used: float
    limit: float


class LimitUses:
    """Looks up all limits; those that are switched off are left out."""

    def __init__(
        self,
        core: Core,
        topics: TopicTable,
        consumers: ConsumerTables,
        users: UserDirectory,
        *,
        pulls: HoldQuota[Any],
        pops: HoldQuota[Any] | None,
    ) -> None:
        """`pops` is None in a broker without POP."""
        self._core = core
        self._topics = topics
        self._consumers = consumers
        self._users = users
        self._pulls = pulls
        self._pops = pops

    def __iter__(self) -> Iterator[LimitUse]:
        """Each limit in turn."""
        for use in (*self._connections(), *self._tables(), *self._held()):
            if use.limit:
                yield use

    def _connections(self) -> Iterator[LimitUse]:
        reactor, now_ms = self._core.rounds.reactor, self._core.clock.monotonic() * 1000
        shared = reactor.shared
        addresses, inbound, outbound = shared.addresses, shared.inbound, shared.outbound
        of_addresses, of_users = addresses.rates, shared.users
        yield LimitUse("maxConnections", reactor.stats.connections, reactor.most_connections)
        most_http = self._core.config.metrics.metrics_max_connections
        yield LimitUse("metricsMaxConnections", reactor.stats.http_connections, most_http)
        yield LimitUse("maxConnectionsOfAddress", addresses.most(), addresses.max_connections)
        for key, rates in (
            ("maxRequestRateOfAddress", of_addresses.requests),
            ("maxRequestRateOfUser", of_users.requests),
            ("maxByteRateOfAddress", of_addresses.sent),
            ("maxByteRateOfUser", of_users.sent),
        ):
            yield LimitUse(key, rates.busiest(now_ms), rates.per_s)
        yield LimitUse("maxInboundBufferBytes", inbound.total, inbound.limit_bytes)
        if (new := shared.unauthenticated) is not None:
            yield LimitUse("maxUnauthenticatedBufferBytes", new.total, new.limit_bytes)
        yield LimitUse("maxOutboundBufferBytes", reactor.stats.unsent_bytes, outbound.limit_bytes)
        unsent = max(outbound.left.values(), default=0)
        yield LimitUse("writeBufferHighWaterMark", unsent, outbound.high_water_bytes)

    def _tables(self) -> Iterator[LimitUse]:
        topics, groups = self._topics, self._consumers.groups
        clients, offsets = self._consumers.clients, self._consumers.offsets
        now_ms = self._core.clock.now_ms()
        of_groups = len(topics.group_topics)
        number = max(of_groups, len(topics.configs) - of_groups)
        yield LimitUse("maxTopics", number, topics.max_topics)
        queues = max(config.write_queue_nums for config in topics.configs.values())
        yield LimitUse("maxQueuesOfTopic", queues, topics.max_queues)
        most = max(len(groups.configs), len(clients.consumers), len(clients.producers))
        yield LimitUse("maxConsumerGroups", most, groups.max_groups)
        subscribed = (len(group.subscriptions) for group in clients.consumers.values())
        subscriptions = max(subscribed, default=0)
        yield LimitUse("maxSubscriptionsOfGroup", subscriptions, clients.max_subscriptions)
        yield LimitUse("maxConsumerOffsets", offsets.count, offsets.max_entries)
        created = max(topics.rate.taken(now_ms), groups.rate.taken(now_ms))
        yield LimitUse("autoCreateBurst", created, topics.rate.burst)
        auth, users = self._core.config.auth, self._users
        yield LimitUse("maxUsers", len(users.users), auth.max_users)
        yield LimitUse("maxAclEntries", users.acls.entries, auth.max_acl_entries)

    def _held(self) -> Iterator[LimitUse]:
        pulls, pops = self._pulls, self._pops
        yield LimitUse("maxHeldPulls", pulls.weight, pulls.limits.total)
        if pops is not None:
            yield LimitUse("maxPopPollingSize", pops.weight, pops.limits.total)
        quotas = [quota for quota in (pulls, pops) if quota is not None]
        limits = pulls.limits
        most = max(quota.most_of_connection() for quota in quotas)
        yield LimitUse("maxHeldRequestsOfConnection", most, limits.of_connection)
        most = max(quota.most_of_group() for quota in quotas)
        yield LimitUse("maxHeldRequestsOfGroup", most, limits.of_group)
