"""The settings of replication, of a master and of a slave. Source: configuration §3.5."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from aerobee.setting import setting

HA_PEERS_MAX = 256


def peers(text: str) -> str:
    """Check addresses and networks, and join them by `;`. Raises: ValueError."""
    items = [part.strip() for part in text.split(";") if part.strip()]
    if len(items) > HA_PEERS_MAX:
        raise ValueError(f"{len(items)} addresses and networks, {HA_PEERS_MAX} are possible")
    for address in items:
        try:
            ipaddress.ip_network(address)
        except ValueError as error:
            raise ValueError(f"{address} is no address and no network: {error}") from None
    return ";".join(items)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """Which slaves may copy the log, what a slave does, and the times of their connections."""

    ha_peers: str = setting("haPeers", "", own=True, separator=";", kind="peers")
    """Addresses and networks of the slaves that may copy the log, which holds every message. Empty:
    no replication, and haListenPort is not opened.
    """
    ha_listen_port: int = setting("haListenPort", 0, ge=0, le=65_535, derived="listenPort + 1")
    """Port to which slaves connect, on bindAddress; with haPeers only."""
    ha_tls: bool = setting("haTls", False, own=True)
    """The log goes through TLS: a master takes no slave that speaks plainly, and a slave connects
    by TLS. Both need a certificate and useTLS. Java brokers speak plainly.
    """
    ha_send_heartbeat_interval_ms: int = setting(
        "haSendHeartbeatInterval", 5_000, ge=100, le=60_000, unit="ms"
    )
    """After so long without anything to send, a slave is told that this broker lives."""
    ha_housekeeping_interval_ms: int = setting(
        "haHousekeepingInterval", 20_000, ge=1_000, le=600_000, unit="ms"
    )
    """A slave that is silent for so long is left."""
    ha_transfer_batch_size_bytes: int = setting(
        "haTransferBatchSize", 32_768, ge=4_096, le=4_194_292, unit="B"
    )
    """The most bytes of the log in one frame; a Java slave takes no more than the greatest value.
    """
    ha_max_gap_not_in_sync_bytes: int = setting(
        "haMaxGapNotInSync", 268_435_456, ge=4_096, le=17_179_869_184, unit="B"
    )
    """A slave that is further behind is shown as not in sync (code 907)."""

    in_sync_replicas: int = setting("inSyncReplicas", 1, ge=1, le=64)
    """Copies of a message, that of this broker among them, before its send is answered: with
    brokerRole SYNC_MASTER, and of a slave once it is the master. 1 waits for nobody.
    """
    slave_timeout_ms: int = setting("slaveTimeout", 3_000, ge=100, le=60_000, unit="ms")
    """How long such a send waits for slaves before it is answered with FLUSH_SLAVE_TIMEOUT."""

    ha_master_address: str = setting("haMasterAddress", "", kind="address")
    """The master that a slave copies, as `host:port` of its haListenPort; empty: the one that name
    servers know. Without name servers, the master's listenPort is taken for one less.
    """
    force_empty_master: bool = setting("forceEmptyMaster", False, own=True)
    """Start a master without messages although name servers know a slave of its name that has some;
    a SYNC_MASTER also where a slave has more.
    """
    force_old_master: bool = setting("forceOldMaster", False, own=True)
    """Start a master although a member of its name has, or is, a later one. For one start: this one
    is the latest from then on.
    """
    shadow: bool = setting("shadow", False, own=True)
    """A slave that no master counts: it follows a broker in production and changes nothing for it.
    slaveTimeout has to be at least that of the master: a second longer than that it stays away
    after each connection.
    """
    slave_read_enable: bool = setting("slaveReadEnable", True, live=True)
    """Let consumers pull from a slave; Java's default is false."""
    offset_check_in_slave: bool = setting("offsetCheckInSlave", False, live=True)
    """A slave moves consumers whose offset is outside its queue. Without it they keep their offset:
    a slave that is behind the master must not reset them.
    """
    slave_tables_period_ms: int = setting(
        "slaveTablesPeriod", 10_000, ge=1_000, le=3_600_000, unit="ms", own=True
    )
    """How often a slave copies topics, groups and offsets of its master; Java: every minute."""

    @property
    def is_on(self) -> bool:
        """Whether slaves may copy the log."""
        return bool(self.ha_peers)
