"""The whole configuration as one frozen value."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (dataclass fields are read at run time)
from dataclasses import dataclass, field

from aerobee.broker.config.settings.auth import AuthConfig
from aerobee.broker.config.settings.broker import BrokerOptions, BrokerRole
from aerobee.broker.config.settings.console import ConsoleConfig
from aerobee.broker.config.settings.failover import FailoverConfig
from aerobee.broker.config.settings.metrics import MetricsConfig
from aerobee.broker.config.settings.namesrv import NamesrvConfig
from aerobee.broker.config.settings.process import ProcessConfig
from aerobee.broker.config.settings.replication import ReplicationConfig
from aerobee.remoting.config import RemotingConfig
from aerobee.remoting.tls_config import TlsConfig
from aerobee.store.config import StoreConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All settings, with their sources and warnings. Only `live_settings` changes any of it.

    `sources` says where a key (RocketMQ's name) was set; a key that is missing there is a default
    or derived. `unknown` and `without_effect` keep the other keys of a RocketMQ file.
    """

    broker: BrokerOptions = field(default_factory=BrokerOptions)
    store: StoreConfig = field(default_factory=StoreConfig)
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    failover: FailoverConfig = field(default_factory=FailoverConfig)
    remoting: RemotingConfig = field(default_factory=RemotingConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    namesrv: NamesrvConfig = field(default_factory=NamesrvConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    console: ConsoleConfig = field(default_factory=ConsoleConfig)
    process: ProcessConfig = field(default_factory=ProcessConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    unknown: Mapping[str, str] = field(default_factory=dict)
    without_effect: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    in_image: bool = False
    """Runs in the container image, where a data directory without a volume is refused."""
    member: bool = False
    """This process is a broker of several with one configuration: a supervisor has started it."""

    @property
    def needed_slaves(self) -> int:
        """So many slaves must have a message before its send is answered; of a slave, once it is
        the master.
        """
        waits = self.broker.broker_role is BrokerRole.SYNC_MASTER or (
            self.is_slave and not self.failover.is_on
        )
        return self.replication.in_sync_replicas - 1 if waits else 0

    @property
    def is_slave(self) -> bool:
        """Whether this broker starts as the slave of another one."""
        return self.broker.broker_role is BrokerRole.SLAVE

    @property
    def answers_wait(self) -> bool:
        """Whether a send is answered only when it is on disk, or on slaves."""
        return self.store.sync_flush or self.needed_slaves > 0 or self.failover.is_on
