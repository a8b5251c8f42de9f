"""Consumers: clients, consumer groups, offsets and queue locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.consumers.client_processor import ClientProcessor
from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
from aerobee.broker.consumers.group_processor import GroupProcessor
from aerobee.broker.consumers.groups import GroupTable
from aerobee.broker.consumers.member_changes import MemberChanges
from aerobee.broker.consumers.offset_processor import OffsetProcessor
from aerobee.broker.consumers.reset import ResetProcessor
from aerobee.broker.consumers.tables import ConsumerTables
from aerobee.broker.core.feature import Feature
from aerobee.broker.saved.save import Periodic
from aerobee.remoting.server.routes import Route, finished
from aerobee.remoting.wire.headers import client as clients
from aerobee.remoting.wire.headers import group as groups
from aerobee.remoting.wire.headers import offset as offsets
from aerobee.store.clock import monotonic_ms

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from aerobee.broker.core.core import Core
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.connection import Connection
    from aerobee.store.results import Recovery

FILTERS_S: Final = 10.0
"""Seconds between saves of the SQL filters of consumer groups, if they changed."""

log = structlog.stdlib.get_logger(__name__)


class ConsumersFeature(Feature):
    """The tables of clients, groups and offsets, and the requests about them."""

    def __init__(self, core: Core, topics: TopicTable) -> None:
        broker = core.config.broker
        self._core = core
        self._topics = topics
        self._popped_durable = 0
        self.tables = ConsumerTables(
            GroupTable(broker, now_ms=core.clock.now_ms()),
            ConsumerOffsetTable(
                version_step=broker.consumer_offset_update_version_step,
                max_entries=broker.max_consumer_offsets,
            ),
        )
        self._limit_clients()
        self.group_file = core.tables.asked(self.tables.groups, "subscriptionGroup.json")
        self.tables.groups.listeners.append(self._groups_changed)
        # Offsets of pops refer to check points.
        self.offset_file = core.tables.changing(
            self.tables.offsets, "consumerOffset.json", relies_on=self._pops_durable
        )
        self._filter_file = core.tables.changing(self.tables.filters, "consumerFilter.json")
        self.saved = (self.group_file,)
        self.periodic = (
            Periodic(self.offset_file, broker.flush_consumer_offset_interval_ms / 1000),
            Periodic(self._filter_file, FILTERS_S),
        )
        self.member_changes = MemberChanges(
            self.tables.clients,
            enabled=lambda: broker.notify_consumer_ids_changed_enable,
            flush=core.rounds.flush,
        )
        self.services = (self.member_changes,)
        self.client_requests = ClientProcessor(
            broker,
            tables=self.tables,
            topics=topics,
            clock=core.clock,
            changed=self.member_changes.changed,
        )
        self.routes = (*self._client_routes(), *self._group_routes(), *self._offset_routes())

    def _client_routes(self) -> Iterator[Route]:
        requests = self.client_requests
        yield Route(clients.Heartbeat, requests.heartbeat, "heartbeat")
        yield Route(clients.UnregisterClient, requests.unregister, "client_manager")
        yield Route(clients.CheckClientConfig, requests.check_config, "client_manager")
        yield Route(clients.GetConsumerListByGroup, requests.consumer_list, "consumer_manager")
        yield Route(clients.LockBatchMq, requests.lock, "admin")
        yield Route(clients.UnlockBatchMq, requests.unlock, "admin")

    def _group_routes(self) -> Iterator[Route]:
        requests = self.group_requests = GroupProcessor(
            groups=self.tables.groups,
            offsets=self.tables.offsets,
            saved=self.group_file,
            changing=self._core.tables,
            stats=self._core.stats,
            clock=self._core.clock,
        )
        yield Route(groups.CreateGroup, requests.update, "admin")
        yield Route(groups.CreateGroups, requests.update_all, "admin")
        yield Route(groups.UpdateGroupForbidden, requests.forbid, "admin")
        yield Route(groups.GetAllGroupConfig, requests.all_configs, "admin")
        yield Route(groups.DeleteGroup, requests.delete, "admin")
        yield Route(groups.GetGroupConfig, requests.config, "admin")

    def _offset_routes(self) -> Iterator[Route]:
        requests = OffsetProcessor(
            topics=self._topics,
            groups=self.tables.groups,
            offsets=self.tables.offsets,
            clients=self.tables.clients,
            changing=self._core.tables,
            store=self._core.store,
            clock=self._core.clock,
        )
        reset = ResetProcessor(self._core, self._topics, self.tables)
        yield Route(offsets.QueryConsumerOffset, requests.query, "consumer_manager")
        yield Route(offsets.UpdateConsumerOffset, requests.update, "consumer_manager")
        yield Route(offsets.GetMaxOffset, requests.max_offset, "admin")
        yield Route(offsets.GetMinOffset, requests.min_offset, "admin")
        yield Route(offsets.SearchOffset, requests.search, "admin")
        yield Route(offsets.GetEarliestMessageStoreTime, requests.earliest_store_time, "admin")
        yield Route(offsets.GetAllConsumerOffset, requests.all_offsets, "admin")
        yield Route(offsets.CloneGroupOffset, requests.clone, "admin")
        yield Route(offsets.ResetOffset, reset.reset, "admin")

    def _groups_changed(self, names: Iterable[str]) -> None:
        self.group_file.request()

    async def _pops_durable(self) -> None:
        popped = self.tables.offsets.popped
        if popped != self._popped_durable:
            await self._core.puts.durable()
            self._popped_durable = popped

    def settings_changed(self) -> Iterator[None]:
        """Take the limits on groups and clients from the settings."""
        self.tables.groups.settings_changed()
        self._limit_clients()
        yield

    def _limit_clients(self) -> None:
        broker, clients = self._core.config.broker, self.tables.clients
        clients.max_groups = broker.max_consumer_groups
        clients.max_subscriptions = broker.max_subscriptions_of_group

    def load(self) -> None:
        """Load offsets, filters and groups."""
        now_ms = self._core.clock.now_ms()
        self.offset_file.load(self.tables.offsets.load)
        if self._core.role.is_slave:
            self.tables.offsets.resets.clear()  # A slave may be the master much later.
        self._filter_file.load(lambda document: self.tables.filters.load(document, now_ms))
        self.group_file.load(self.tables.groups.load)

    def recovered(self, recovery: Recovery) -> None:
        """Clamp each offset to its queue."""
        finished(self.copy_ended())
        if self._core.role.is_slave:
            self.tables.offsets.first_pulls.end()

    def copy_ended(self) -> Generator[None, None, None]:
        """Clamp each offset to its queue: offsets of the old master, and running consumers, may be
        beyond what came from it.
        """
        offsets, core = self.tables.offsets, self._core
        end_of = offsets.first_pulls.begin(core.store.max_offset, monotonic_ms(core.clock))
        for moved in offsets.clamp(end_of):
            for cut in moved:
                log.warning("consumer_offset.clamped", **cut._asdict())
                yield
            yield

    def copy_begins(self) -> None:
        """Forget locks and open resets: when this is the master again, they are long over."""
        self.tables.locks.clear()
        self.tables.offsets.resets.clear()
        self.tables.offsets.first_pulls.end()

    def scan(self) -> Iterator[None]:
        """Expire clients whose heartbeats stopped, locks that were not renewed, and the wait for
        first pulls.
        """
        yield from self.client_requests.expire(self._core.config.broker.channel_expired_timeout_ms)
        now_ms = monotonic_ms(self._core.clock)
        yield from self.tables.locks.sweep(now_ms)
        self.tables.offsets.first_pulls.expire(now_ms)

    def topic_deleted(self, topic: str) -> None:
        """Forget who has read the topic; members that run keep their filters and locks."""
        self.tables.offsets.first_pulls.forget(topic)
        self.tables.compensation.delete_topic(topic)
        self.tables.filters.delete_topic(topic)

    def group_deleted(self, group: str) -> None:
        """Forget what the group has read; members that run keep their filters and locks."""
        self.tables.compensation.delete_group(group)
        self.tables.filters.delete_group(group)

    def connection_closed(self, connection: Connection) -> None:
        """Remove its client from its groups."""
        self.client_requests.connection_closed(connection)
