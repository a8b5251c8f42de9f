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
        self._slaves = Slaves(core) if core.config.replication.is_on else None
        if self._slaves is not None:
            self.services = (self._slaves,)

    def load(self) -> None:
        """Open the port: a start that is refused is refused early. Raises: OSError."""
        if self._slaves is not None:
            self._slaves.open()
