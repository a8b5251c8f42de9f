"""The settings of a group whose master changes by itself, with etcd or RocketMQ's controller.

Source: HA §5, §7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from aerobee.setting import setting

DEFAULT_PORT: Final = 2379
ENDPOINTS_MAX: Final = 16
MEMBERS_MAX: Final = 64
MEMBER_MAX: Final = (1 << 63) - 1


class Endpoint(NamedTuple):
    """A member of the etcd cluster."""

    host: str
    port: int
    tls: bool

    @property
    def url(self) -> str:
        """As it is written in the settings."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls else ''}://{host}:{self.port}"


def endpoint(text: str) -> Endpoint:
    """`http://host:port` or `https://host:port`, the port 2379 if none is given.

    Raises: ValueError saying what is wrong.
    """
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{text} is no address of etcd: http://host:2379 or https://host:2379")
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        raise ValueError(f"{text} has more than a host and a port")
    return Endpoint(parts.hostname, parts.port or DEFAULT_PORT, parts.scheme == "https")


def endpoints(text: str) -> str:
    """Check the addresses of etcd, and join them by `;`. Raises: ValueError."""
    urls = [part.strip() for part in text.split(";") if part.strip()]
    if len(urls) > ENDPOINTS_MAX:
        raise ValueError(f"{len(urls)} addresses, {ENDPOINTS_MAX} are possible")
    return ";".join(endpoint(part).url for part in urls)


def members(text: str) -> str:
    """Check the numbers of a group's members, and join them by `;`. Raises: ValueError."""
    ids = [part.strip() for part in text.split(";") if part.strip()]
    if len(ids) > MEMBERS_MAX:
        raise ValueError(f"{len(ids)} members, {MEMBERS_MAX} are possible")
    for part in ids:
        if not part.isascii() or not part.isdigit() or not 0 < int(part[:20]) <= MEMBER_MAX:
            raise ValueError(f"{part} is no brokerId of a member: 1, 2, 3 and so on")
    numbers = sorted(map(int, ids))
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{text} has a member twice")
    return ";".join(map(str, numbers))


def member_ids(text: str) -> tuple[int, ...]:
    """The ids of all members, ascending, of a checked list."""
    return tuple(int(part) for part in text.split(";") if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverConfig:
    """Where etcd is, who the members of the group are, and how soon another one is the master."""

    etcd_endpoints: str = setting(
        "etcdEndpoints", "", own=True, separator=";", kind="etcd_endpoints"
    )
    """Addresses of etcd, as http://host:2379. With one of them this broker is a member of a group,
    whose master changes by itself; empty: it is not.
    """
    failover_members: str = setting(
        "failoverMembers", "", own=True, separator=";", kind="failover_members"
    )
    """The brokerId of each member, the same list at all of them. The least is the master of a group
    that has none yet.
    """
    failover_lease_s: int = setting("failoverLease", 3, ge=2, le=60, unit="s", own=True)
    """How long a master may go on without etcd. After a kill, nobody is the master for about so
    long.
    """
    min_in_sync_replicas: int = setting("minInSyncReplicas", 2, ge=1, le=64)
    """So many members, the master among them, must have a message before its send is answered;
    Java's default is 1, which loses messages.
    """
    ha_max_time_slave_not_catchup_ms: int = setting(
        "haMaxTimeSlaveNotCatchup", 3_000, ge=500, le=600_000, unit="ms"
    )
    """A member that is behind, or silent, for so long is waited for no more: it leaves the sync
    set. Java's default is 15 s.
    """
    enable_controller_mode: bool = setting("enableControllerMode", False)
    """Whether RocketMQ's controller elects the master of this group, in the place of etcd. Other
    members of it may be Java's brokers.
    """
    controller_addr: str = setting("controllerAddr", "", separator=";", kind="addresses")
    """Addresses of the controllers, as host:port."""
    etcd_prefix: str = setting(
        "etcdPrefix", "/aerobee", pattern=r"^/[a-zA-Z0-9_./-]{0,200}$", own=True
    )
    """Below this key etcd has the records of the groups."""
    etcd_user: str = setting("etcdUser", "", own=True)
    """User of etcd; empty: none."""
    etcd_password: str = setting("etcdPassword", "", own=True)
    """Its password."""
    etcd_trust_cert_path: str = setting("etcdTrustCertPath", "", kind="path", own=True)
    """Certificates of the CAs that sign those of etcd; empty: the system's."""
    etcd_client_cert_path: str = setting("etcdClientCertPath", "", kind="path", own=True)
    """Certificate of this broker for etcd; empty: none."""
    etcd_client_key_path: str = setting("etcdClientKeyPath", "", kind="path", own=True)
    """The key of that certificate; empty: in the same file."""

    @property
    def is_on(self) -> bool:
        """Whether this broker is a member of a group."""
        return bool(self.etcd_endpoints) or self.enable_controller_mode

    @property
    def decider(self) -> str:
        """The decider on the master, in words."""
        return "the controller" if self.enable_controller_mode else "etcd"
