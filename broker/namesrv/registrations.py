"""Registrations of brokers: the fields of the request, and what a name server stores of them.

Topics and queues are in `topic_queues`.

Source: nameserver §3 (RegisterBrokerRequestHeader, BrokerData, BrokerLiveInfo).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aerobee.broker.errors import LimitReached, Refusal
from aerobee.remoting.wire.bodies.route import LostBroker
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from aerobee.remoting.wire.bodies.data_version import DataVersion
    from aerobee.remoting.wire.bodies.topic import TopicConfig

MASTER_ID: Final = 0
DEFAULT_TIMEOUT_MS: Final = 120_000
TIMEOUTS_MS: Final = 1_000, 3_600_000
"""The shortest and the longest heartbeat timeout that a broker may set."""
QUEUES_MAX: Final = 16_384
"""The most read or write queues of one topic on one broker."""
NAME_MAX: Final = 255
"""Characters of a stored name or address."""
FILTER_SERVERS_MAX: Final = 100
NAME: Final = re.compile(r"[^\x00-\x1f\x7f/\\]+")
ADDRESS: Final = re.compile(r"[^\x00-\x20\x7f/\\;,@]+:(\d{1,5})", re.ASCII)
SHOWN: Final = 60
"""Characters of a wrong value that are quoted in the answer."""
LOST_MAX: Final = 1_000
"""So many lost brokers are remembered; then the one that was lost first is forgotten."""
LOST_KEPT_MS: Final = 24 * 3_600_000
"""For how long a lost broker is remembered that nobody unregisters."""


class BrokerConnection(Protocol):
    """The connection over which a broker registered. The table only reads its id."""

    @property
    def id(self) -> int: ...
    def close(self, reason: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A registration request. `enable_acting_master` None: an older broker without that field."""

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
    mapped: bool = False
    """Whether it says which queues of static topics are where."""
    deleted: Set[str] = frozenset()
    """Topics whose routes were deleted since it came: they do not come back with it."""


@dataclass(frozen=True, slots=True)
class RegistrationAnswer:
    """The answer to a registration: for a slave, the addresses of its master if that is alive."""

    ha_address: str | None = None
    master_address: str | None = None


@dataclass(slots=True)
class Broker:
    """The brokers of one name: id → address; id 0 is the master."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False


class LiveKey(NamedTuple):
    """The key of a registration."""

    cluster: str
    address: str


class BrokerLoss(NamedTuple):
    """A broker that was lost: its name and id, and when it was heard last."""

    broker: str
    broker_id: int
    seen_ms: int


class LostBrokers:
    """The brokers that left a name server without a word: (cluster, address) → who was there.

    A broker whose connection ends, or whose heartbeats stay away, is in no route from then on. A
    client that asks for the brokers would not see that one is missing, so its name is kept here
    until it registers again, unregisters, or a day has passed. The one that was lost first comes
    first.
    """

    def __init__(self) -> None:
        self.table: dict[LiveKey, BrokerLoss] = {}

    def add(self, key: LiveKey, broker: str, broker_id: int, seen_ms: int) -> None:
        """Remember a broker that has gone."""
        self.table.pop(key, None)
        if len(self.table) >= LOST_MAX:
            del self.table[next(iter(self.table))]
        self.table[key] = BrokerLoss(broker, broker_id, seen_ms)

    def found(self, key: LiveKey, broker: str, broker_id: int) -> None:
        """Forget a broker that has registered, at its address or under its name and id."""
        self.table.pop(key, None)
        for other, lost in list(self.table.items()):
            if (other.cluster, lost.broker, lost.broker_id) == (key.cluster, broker, broker_id):
                del self.table[other]

    def forget(self, key: LiveKey) -> None:
        """Forget a broker that unregistered after all."""
        self.table.pop(key, None)

    def forget_old(self, now_ms: int) -> None:
        """Forget those that were lost long ago."""
        for key, lost in list(self.table.items()):
            if lost.seen_ms + LOST_KEPT_MS < now_ms:
                del self.table[key]

    def listed(self, now_ms: int) -> list[LostBroker]:
        """All of them, as the answer names them."""
        return [
            LostBroker(
                cluster=key.cluster,
                broker_name=lost.broker,
                broker_id=lost.broker_id,
                broker_addr=key.address,
                silent_ms=max(0, now_ms - lost.seen_ms),
            )
            for key, lost in self.table.items()
        ]


class OwnBroker(NamedTuple):
    """The broker of this process: its name and id."""

    name: str
    broker_id: int


class SystemNames(NamedTuple):
    """The names of clusters and brokers, which are topics too, and the address of one broker."""

    names: list[str]
    address: str | None


@dataclass(slots=True)
class LiveAddress:
    """One registered address, and the time of its last heartbeat."""

    broker: str
    version: DataVersion
    ha_address: str
    last_update_ms: int
    timeout_ms: int
    connection: BrokerConnection | None
    filter_servers: tuple[str, ...] = ()


class MinIdChange(NamedTuple):
    """A change of the smallest broker id under a broker name, and the addresses to be notified.

    `addresses`: id → address of all brokers of that name now. `told`: the addresses to notify.
    `offline`: the address that left, if one did.
    """

    addresses: dict[int, str]
    told: tuple[str, ...]
    offline: str | None = None
    ha_address: str | None = None


def timeout_ms(given_ms: int | None) -> int:
    """The heartbeat timeout of a broker: the value that it sent, within the limits, or 120 s."""
    least, most = TIMEOUTS_MS
    return max(least, min(given_ms, most)) if given_ms else DEFAULT_TIMEOUT_MS


def check_shape(request: Registration) -> None:
    """Check the fields of a registration other than its topics. Raises: Refusal, LimitReached."""
    for key, name in (("clusterName", request.cluster), ("brokerName", request.broker)):
        if not NAME.fullmatch(name) or not name.strip():
            raise wrong(key, name, "a name without slashes and control characters")
    if not 1 <= port_of(request.address) <= 65_535:
        raise wrong("brokerAddr", request.address, "host:port")
    # A broker without replication may omit it, or give port 0.
    if request.ha_address and not 0 <= port_of(request.ha_address) <= 65_535:
        raise wrong("haServerAddr", request.ha_address, "host:port")
    if request.broker_id < 0:
        raise wrong("brokerId", str(request.broker_id), "0 for a master, or a positive number")
    texts = (request.cluster, request.broker, request.address, request.ha_address)
    zone = request.zone_name or ""
    if max(map(len, (*texts, zone, *request.filter_servers))) > NAME_MAX:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"a name or an address of a registration is longer than {NAME_MAX} characters",
        )
    if len(request.filter_servers) > FILTER_SERVERS_MAX:
        raise LimitReached("filter server of a broker", FILTER_SERVERS_MAX)


def port_of(address: str) -> int:
    """The port of `host:port`; -1 if the text is not an address."""
    match = ADDRESS.fullmatch(address)
    return int(match[1]) if match else -1


def wrong(key: str, value: str, wanted: str) -> Refusal:
    """The error for an invalid field of a registration."""
    return Refusal(ResponseCode.SYSTEM_ERROR, f"{key} is {value[:SHOWN]!r}, not {wanted}")


def check_queues(topic: str, read: int, write: int) -> None:
    """Check the name and the queue counts of a registered topic. Raises: Refusal."""
    if not 0 <= min(read, write) <= max(read, write) <= QUEUES_MAX:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"topic {topic[:NAME_MAX]} is registered with {read} queues to read and"
            f" {write} to write, 0 to {QUEUES_MAX} are taken",
        )
    if len(topic) > NAME_MAX:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, f"a topic name is longer than {NAME_MAX} characters"
        )
