"""Replication: slaves copy the log of this broker; without `haPeers` no port is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.core.feature import Feature
from aerobee.broker.replication.slaves import Slaves
from aerobee.broker.replication.status import StatusProcessor
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import admin as headers

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core


class ReplicationFeature(Feature):
    """The port for slaves, and the answer how far they are."""

    def __init__(self, core: Core) -> None:
        self.routes = (Route(headers.GetBrokerHaStatus, StatusProcessor(core).ha_status, "admin"),)
        config = core.config
        if config.needed_slaves:
            timeout_s = config.replication.slave_timeout_ms / 1000
            core.store.wait_for_slaves(config.needed_slaves, timeout_s)
        if config.replication.is_on:
            self.services = (Slaves(core),)
