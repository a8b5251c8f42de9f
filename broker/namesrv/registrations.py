"""What brokers say of themselves to a name server, and what it keeps of that beside their topics.

Source: nameserver §3 (RegisterBrokerRequestHeader, BrokerData, BrokerLiveInfo).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.broker.saved.data_version import DataVersion
    from aerobee.remoting.wire.bodies.topic_config import TopicConfig

__all__ = [
    "DEFAULT_TIMEOUT_MS",
    "Broker",
    "BrokerConnection",
    "Live",
    "LiveKey",
    "OwnBroker",
    "Registered",
    "Registration",
    "SystemNames",
]

DEFAULT_TIMEOUT_MS: Final = 120_000


class BrokerConnection(Protocol):
    """A connection that a broker registered over. The table only reads its id."""

    @property
    def id(self) -> int: ...
    def close(self, reason: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker says of itself. `enable_acting_master` None: it is too old to know."""

    cluster: str
    broker: str
    address: str
    broker_id: int
    ha_address: str
    topics: Mapping[str, TopicConfig]
    version: DataVersion
    filter_servers: Sequence[str] = ()
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    enable_acting_master: bool | None = None
    zone_name: str | None = None
    connection: BrokerConnection | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """What a slave learns by registering: where its master is, if that is alive."""

    ha_address: str | None = None
    master_address: str | None = None


@dataclass(slots=True)
class Broker:
    """The group of brokers under one name: id → address, 0 being the master."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False


class LiveKey(NamedTuple):
    """What a registration is known by."""

    cluster: str
    address: str


class OwnBroker(NamedTuple):
    """The broker of this process."""

    name: str
    broker_id: int


class SystemNames(NamedTuple):
    """Names of clusters and brokers, which are topics too, and the address of one broker."""

    names: list[str]
    address: str | None


@dataclass(slots=True)
class Live:
    """One address that registered, and when it was last seen."""

    broker: str
    version: DataVersion
    ha_address: str
    last_update_ms: int
    timeout_ms: int
    connection: BrokerConnection | None
    filter_servers: tuple[str, ...] = ()
