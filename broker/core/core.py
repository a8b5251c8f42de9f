"""The base of every feature of the broker: settings, clock, store, counters, rounds."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aerobee.broker.config.settings.advertised import with_port
from aerobee.broker.core.background import Pace
from aerobee.broker.core.puts import Puts
from aerobee.broker.core.role import Role
from aerobee.broker.core.rounds import Rounds
from aerobee.broker.counters.broker_stats import BrokerStats
from aerobee.broker.holds.quota import HoldLimits
from aerobee.broker.saved.tables import Tables
from aerobee.remoting.server.addresses import packed_host
from aerobee.store.message_store import MessageStore
from aerobee.store.recovery.recovery_start import TopicHistory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk


class Deletions(Protocol):
    """The deletions that the table of topics remembers; see `DeletedTopics`."""

    def removed(self, topic: str, physical_offset: int) -> bool: ...
    def covers(self, topic: str, physical_offset: int) -> bool: ...


class Topics(Protocol):
    """As much of the table of topics as the recovery and the puts ask for."""

    def is_known(self, topic: str) -> bool: ...
    def read_queues(self, topic: str) -> int: ...
    @property
    def deleted(self) -> Deletions: ...


class Core:
    """The objects that all features share. It knows none of them."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        *,
        disk: Disk,
        clock: Clock,
    ) -> None:
        """Build them, the store too. Raises: OSError when brokerIP1 is not an address."""
        self.config = config
        self.disk = disk
        self.clock = clock
        self.began_ms = clock.now_ms()
        """When this process began to be a broker, by the wall clock."""
        self.began = clock.monotonic()
        self.role = Role(slave=config.is_slave, number=config.broker.broker_id)
        self.stats = BrokerStats()
        self.store = MessageStore(
            config.store,
            disk=disk,
            clock=clock,
            topics=TopicHistory(topics.is_known, topics.deleted.removed),
            in_group=config.failover.is_on,
        )
        if self.role.is_slave:
            self.store.be_slave()
        self.rounds = Rounds(config.remoting, self.store, self.stats.slow_puts, clock)
        self.puts = Puts(
            self.store,
            clock,
            finish_round=self.rounds.finish,
            topics_deleted=topics.deleted.covers,
            read_queues=topics.read_queues,
        )
        root = Path(config.store.store_path_root_dir).expanduser()
        self.tables = Tables(root / "config", disk, clock)
        port = config.broker.advertised_port or config.remoting.listen_port
        self.address = with_port(config.broker.broker_ip1, port)
        """The published address of this broker, in routes and as the store host of records."""
        self.store_host = packed_host(_resolved(config.broker.broker_ip1, port))
        """The published address as records store it: packed, with the port as i32."""

    def settings_changed(self) -> Iterator[None]:
        """Derive values again from settings that changed while the broker runs."""
        self.store.reconfigure(self.config.store)
        self.rounds.settings_changed()
        yield

    def pace(self) -> Pace:
        """The pace of one kind of background work: clients come first."""
        return Pace(self.clock, lambda: self.rounds.reactor.stats.requests)

    def hold_limits(self, total: int) -> HoldLimits:
        """How many requests one feature may hold: `total`, and the limits of the settings."""
        broker = self.config.broker
        return HoldLimits(
            total, broker.max_held_requests_of_connection, broker.max_held_requests_of_group
        )


def _resolved(host: str, port: int) -> tuple[str, int]:
    """Host name or address → address, IPv4 if there is one. Raises: OSError naming the key."""
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        number, reason = getattr(error, "errno", None), getattr(error, "strerror", None) or error
        raise OSError(number, f"brokerIP1 is {host}: {reason}") from error
    preferred = sorted(addresses, key=lambda entry: entry[0] != socket.AF_INET)
    return str(preferred[0][4][0]), port
