"""Replication: slaves copy the log of this broker; without `haPeers` no port is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from aerobee.broker.core.feature import Feature
from aerobee.broker.replication.slaves import Slaves
from aerobee.broker.replication.slaves_view import SlavesView
from aerobee.broker.replication.status import StatusProcessor
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import admin as headers

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core
    from aerobee.store.results import Recovery


class ReplicationFeature(Feature):
    """The port for slaves, and the answer how far they are."""

    def __init__(self, core: Core) -> None:
        self._store = core.store
        self.slaves = SlavesView(core, trio.current_time)
        self.status = status = StatusProcessor(core, self.slaves)
        self.routes = (
            Route(headers.GetBrokerHaStatus, status.ha_status, "admin"),
            Route(headers.ExchangeBrokerHaInfo, status.exchange, "admin"),
            Route(headers.ResetMasterFlushOffset, status.reset_flush_offset, "admin"),
        )
        config = core.config
        if config.needed_slaves:
            timeout_s = config.replication.slave_timeout_ms / 1000
            core.store.wait_for_slaves(config.needed_slaves, timeout_s)
        if config.replication.is_on:
            self.services = (Slaves(core),)

    def recovered(self, recovery: Recovery) -> None:
        """Keep where the log ended at the start, as slaves ask for it."""
        self.status.start_offset = self._store.commit_log.max_offset
