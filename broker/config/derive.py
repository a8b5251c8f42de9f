"""Defaults derived from other settings or from the machine, and rules over several settings.

Source: configuration §1.4, §2.5, §3.3.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.config.conflicts import contradictions, oddities
from aerobee.broker.config.members import member_objections
from aerobee.broker.config.schema import SCHEMA, canon
from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.config.settings.failover import member_ids
from aerobee.broker.config.settings.metrics import MetricsExporterType, labels_of
from aerobee.broker.config.values import AUTO, BROKERS_MAX
from aerobee.broker.config.weakened import weakened
from aerobee.remoting.tls_config import ClientAuth, TlsMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from ipaddress import IPv4Address, IPv6Address

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.config.schema import Value
    from aerobee.broker.config.settings.failover import FailoverConfig
    from aerobee.remoting.tls_config import TlsConfig

LOOPBACK = "127.0.0.1"
ANY_ADDRESS = "0.0.0.0"  # only with credentials or `insecure`
ANY_ADDRESS_IPV6 = "::"
LISTENERS: Final = ("bindAddress", "metricsPromExporterHost", "consoleHost")
UNIT_BYTES = 20


class Machine(NamedTuple):
    """The properties of the machine that defaults depend on. `addresses`: of interfaces that are
    up, in order. `in_container`: the addresses are of no use outside of the container.
    """

    cpu_count: int
    addresses: Sequence[str]
    host_name: str
    home: str
    in_container: bool = False
    conf: str = ""
    """The directory where RocketMQ looks for further files; empty: none is known."""


OPENED_BY: Final = ("aclEnable", "authenticationEnabled", "insecure")
"""The settings with any of which a broker listens on all addresses unless one is named."""


def derived(settings: Mapping[str, Value], machine: Machine) -> dict[str, Value]:
    """The values of settings that are not given and have no constant default, by RocketMQ name.

    `settings` is by RocketMQ name too. A given value that is corrected (a file size rounded up to
    whole units, the id of a master) is returned as well.
    """
    values = dict(settings)

    def default(name: str, value: Value) -> None:
        values.setdefault(name, value)

    default("brokerName", machine.host_name or "DEFAULT_BROKER")
    wide = any(values.get(name) for name in OPENED_BY)
    default("bindAddress", ANY_ADDRESS if wide else LOOPBACK)
    if only_ipv6(machine.addresses):
        # As Java's listeners on all addresses take both kinds; of the other kind there is none.
        wildcards = [name for name in LISTENERS if values.get(name) == ANY_ADDRESS]
        values |= dict.fromkeys(wildcards, ANY_ADDRESS_IPV6)
    default("brokerIP1", values.get("advertisedHost") or published(values, machine))
    default("brokerIP2", values.get("advertisedHost") or values["brokerIP1"])
    default("metricsPromExporterHost", values["bindAddress"])
    port = int(values.get("listenPort", SCHEMA["listenport"].default))
    default("vipListenPort", max(port - 2, 0))
    if not values.get("haListenPort"):
        values["haListenPort"] = port + 1 if port < 65_535 else 0
    root = str(values.setdefault("storePathRootDir", f"{machine.home}/store")).rstrip("/")
    default("kvConfigPath", f"{root}/config/kvConfig.json")
    default("aclConfigDir", machine.conf or f"{root}/conf")
    default("configOverlayPath", f"{root}/config/aerobee-overlay.yaml")
    for name, width in pool_widths(machine.cpu_count):
        default(name, width)
    units = -(-int(values.get("mappedFileSizeConsumeQueue", 6_000_000)) // UNIT_BYTES)
    values["mappedFileSizeConsumeQueue"] = units * UNIT_BYTES
    by_controller = str(values.get("enableControllerMode", "")).lower() == "true"
    if values.get("etcdEndpoints") or by_controller:
        # Each member begins as a slave, whatever it was: the decider says who is the master.
        values["brokerRole"] = BrokerRole.SLAVE
    if values.get("brokerRole") != BrokerRole.SLAVE:
        values["brokerId"] = 0
    if values.get("brokers") == AUTO:
        values["brokers"] = str(min(machine.cpu_count, BROKERS_MAX))
    return {name: value for name, value in values.items() if settings.get(name) != value}


def pool_widths(cpu_count: int) -> Iterator[tuple[str, int]]:
    """The defaults that grow with the number of CPUs."""
    for key in SCHEMA.values():
        if key.declaration.cpus:
            base, factor, limit = key.declaration.cpus
            width = base + factor * cpu_count
            yield key.name, width if limit is None else min(width, limit)


def published(values: Mapping[str, Value], machine: Machine) -> str:
    """The address to advertise when none is configured."""
    bound = str(values["bindAddress"])
    if is_wildcard(bound):
        return own_address(machine.addresses)
    return LOOPBACK if bound.lower() == "localhost" else bound


def own_address(addresses: Sequence[str]) -> str:
    """The first public IPv4 address, else the last private one, else an IPv6 one, else loopback."""
    usable = [address for text in addresses if (address := parsed(text)) and reaches_out(address)]
    public = [str(address) for address in usable if address.version == 4 and not private(address)]
    inside = [str(address) for address in usable if address.version == 4 and private(address)]
    ipv6 = [str(address) for address in usable if address.version == 6]
    return (public[:1] or inside[-1:] or ipv6[:1] or [LOOPBACK])[0]


def only_ipv6(addresses: Sequence[str]) -> bool:
    """Whether other hosts reach this one at addresses of IPv6, and at none of IPv4."""
    address = parsed(own_address(addresses))
    return address is not None and address.version == 6


def private(address: IPv4Address | IPv6Address) -> bool:
    """Whether the address is of one of the three private networks."""
    first, second = address.packed[:2]
    return first == 10 or (first == 172 and 16 <= second < 32) or (first, second) == (192, 168)


def reaches_out(address: IPv4Address | IPv6Address) -> bool:
    """Whether another host could connect to the address."""
    return not (address.is_loopback or address.is_unspecified or address.is_link_local)


def parsed(text: str) -> IPv4Address | IPv6Address | None:
    """The address, or None for a host name."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether the host is reachable from this machine only."""
    address = parsed(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_wildcard(host: str) -> bool:
    """Whether the host stands for all addresses of this machine."""
    address = parsed(host)
    return address is not None and address.is_unspecified


def objections(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """The key and the message of each rule over several settings that is broken."""
    broker, store, auth = config.broker, config.store, config.auth
    if auth.authorization_enabled and not auth.authentication_enabled:
        yield (
            "authorizationEnabled",
            "policies are for users that have proven who they are: set authenticationEnabled too",
        )
    if auth.acl_enable and auth.authentication_enabled:
        yield "aclEnable", "accounts are in plain_acl.yml or users in tables: choose one of both"
    if auth.migrate_auth_from_v1_enabled and not auth.authentication_enabled:
        yield (
            "migrateAuthFromV1Enabled",
            "accounts become users: set authenticationEnabled too, or take it out",
        )
    for name, host in listener_hosts(config):
        if not (is_loopback(host) or broker.insecure or auth.enabled):
            yield (
                name,
                f"{host} is open to the network, which needs credentials (authentication_enabled:"
                " true, or acl_enable: true) or insecure: true",
            )
    if config.failover.is_on:
        yield from group_objections(config)
    elif config.is_slave:
        yield from slave_objections(config)
    elif config.replication.shadow:
        yield "shadow", "only a slave is a shadow: set brokerRole: SLAVE, or use --shadow-of"
    if config.needed_slaves and not (config.replication.is_on or config.is_slave):
        yield "inSyncReplicas", "sends would wait for slaves that may not connect: set haPeers"
    if config.metrics.metrics_exporter_type in (
        MetricsExporterType.OTLP_GRPC,
        MetricsExporterType.LOG,
    ):
        yield "metricsExporterType", "only PROM and DISABLE are there"
    try:
        labels_of(config.metrics.metrics_label)
    except ValueError as error:
        yield "metricsLabel", str(error)
    if "," in store.store_path_commit_log:
        yield "storePathCommitLog", "several directories are not supported, give one"
    yield from tls_objections(config.tls)
    if config.metrics.metrics_tls_enable and not config.tls.tls_server_cert_path:
        yield "metricsTlsEnable", "needs a certificate: set tlsServerCertPath"
    if config.console.console_tls_enable and not config.tls.tls_server_cert_path:
        yield "consoleTlsEnable", "needs a certificate: set tlsServerCertPath"
    yield from contradictions(config)
    yield from port_clashes(config)
    if config.broker.broker_count > 1:
        yield from member_objections(config)


def slave_objections(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """The objections to the settings of a slave."""
    broker, replication = config.broker, config.replication
    if replication.shadow and not replication.ha_master_address:
        yield "shadow", "a shadow is told whom it follows: set haMasterAddress, or use --shadow-of"
    if not broker.broker_id:
        yield (
            "brokerId",
            "a slave needs a number of its own from 1 on: 0 is the master, set brokerId: 1",
        )
    known = broker.namesrv_addr or config.namesrv.embedded_namesrv
    if not replication.ha_master_address and not known:
        yield (
            "brokerRole",
            "a slave finds its master by haMasterAddress, or at a name server: set namesrvAddr",
        )
    if broker.broker_count > 1 and replication.ha_master_address:
        yield (
            "haMasterAddress",
            "several brokers have a master each: set namesrvAddr, and take it out",
        )


def group_objections(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """The objections to the settings of a member of a group."""
    broker, replication, failover = config.broker, config.replication, config.failover
    members = member_ids(failover.failover_members)
    if failover.enable_controller_mode:
        yield from controller_objections(failover)
    elif broker.broker_id not in members:
        listed = failover.failover_members or "none"
        yield (
            "failoverMembers",
            f"brokerId is {broker.broker_id}, and the members are {listed}: give each"
            " member a brokerId of its own from 1 on, and list them all",
        )
    if members and failover.min_in_sync_replicas > len(members):
        yield (
            "minInSyncReplicas",
            f"it asks for more copies than there are members ({len(members)}): nothing would be"
            " acknowledged",
        )
    if not replication.is_on:
        yield "haPeers", "the other members copy the log: list their addresses"
    if replication.shadow or replication.ha_master_address:
        name = "shadow" if replication.shadow else "haMasterAddress"
        yield name, "etcd or a controller says who is the master of a group: take it out"
    if broker.broker_count > 1:
        yield "brokers", "a member of a group is one broker: take it out"


def controller_objections(failover: FailoverConfig) -> Iterator[tuple[str, str]]:
    """The objections to the settings of a member of a group with RocketMQ's controller."""
    if not failover.controller_addr:
        yield "controllerAddr", "enableControllerMode needs the addresses of the controllers"
    if failover.etcd_endpoints:
        yield (
            "etcdEndpoints",
            "a group has one that decides: take this out, or enableControllerMode",
        )
    if failover.failover_members:
        yield "failoverMembers", "the controller numbers the members of its groups: take it out"


def tls_objections(tls: TlsConfig) -> Iterator[tuple[str, str]]:
    """The objections to the settings of TLS at the listeners."""
    if not tls.tls_server_cert_path:
        if tls.tls_server_mode is TlsMode.ENFORCING:
            yield (
                "tlsServerMode",
                "enforcing needs a certificate: set tlsServerCertPath and tlsServerKeyPath"
                " (for tests, `aerobee certs dev` makes them)",
            )
        if tls.tls_server_key_path:
            yield "tlsServerKeyPath", "a key without a certificate: set tlsServerCertPath"
    if (
        tls.tls_server_need_client_auth is not ClientAuth.NONE
        and not tls.tls_server_trust_cert_path
    ):
        yield (
            "tlsServerNeedClientAuth",
            f"{tls.tls_server_need_client_auth} needs the certificates of the CAs that sign those"
            " of clients: set tlsServerTrustCertPath",
        )
    if (
        tls.tls_server_need_client_auth is ClientAuth.REQUIRE
        and tls.tls_server_mode is not TlsMode.ENFORCING
    ):
        yield (
            "tlsServerNeedClientAuth",
            f"require needs tlsServerMode: enforcing: with {tls.tls_server_mode} a connection"
            " without TLS needs no certificate; while clients are turned over, take"
            " optional",
        )


def listener_hosts(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """The key and the address of each listener."""
    yield "bindAddress", config.remoting.bind_address
    metrics, bound = config.metrics, config.remoting.bind_address
    serves = metrics.metrics_exporter_type is MetricsExporterType.PROM
    if serves and metrics.metrics_prom_exporter_host != bound:
        yield "metricsPromExporterHost", metrics.metrics_prom_exporter_host
    console = config.console
    if console.console_port and console.console_host != bound:
        yield "consoleHost", console.console_host


def port_clashes(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """The key and the message of listeners with the same port."""
    owners: dict[int, str] = {}
    for name, port in listener_ports(config):
        if port and port in owners:
            yield name, f"{port} is the port of {owners[port]} already"
        owners.setdefault(port, name)


def listener_ports(config: BrokerConfig) -> Iterator[tuple[str, int]]:
    """The key and the port of each listener; port 0 is none."""
    yield "listenPort", config.remoting.listen_port
    yield "vipListenPort", config.remoting.vip_listen_port
    yield "grpcPort", config.remoting.grpc_port
    if config.namesrv.embedded_namesrv:
        yield "namesrvListenPort", config.namesrv.namesrv_listen_port
    if config.metrics.metrics_exporter_type is MetricsExporterType.PROM:
        yield "metricsPromExporterPort", config.metrics.metrics_prom_exporter_port
    yield "consolePort", config.console.console_port
    if config.replication.is_on:
        yield "haListenPort", config.replication.ha_listen_port


def hints(
    settings: Mapping[str, Value], config: BrokerConfig, machine: Machine
) -> Iterator[tuple[str, str]]:
    """The key and the message of each setting that is accepted, but perhaps not as intended."""
    advertised = settings.keys() & {"advertisedHost", "advertised", "brokerIP1"}
    if machine.in_container and is_wildcard(config.remoting.bind_address) and not advertised:
        yield (
            "advertisedHost",
            f"clients outside this container are told {config.broker.broker_ip1}, which they"
            " cannot reach; set advertised_host (AEROBEE_ADVERTISED_HOST) to a name or address that"
            " they can, or advertised to one for each of their networks",
        )
    if settings.get("brokerId") and not config.is_slave:
        yield "brokerId", "ignored: a master has the id 0"
    if config.failover.is_on and settings.get("brokerRole", BrokerRole.SLAVE) != BrokerRole.SLAVE:
        yield (
            "brokerRole",
            f"ignored: {config.failover.decider} says who is the master, and each send waits for"
            " the sync set",
        )
    yield from weakened(config)
    if config.needed_slaves and config.is_slave and not config.replication.is_on:
        yield (
            "inSyncReplicas",
            "once this slave is the master, its sends wait for slaves that may not connect: set"
            " haPeers",
        )
    if config.replication.ha_master_address and not config.is_slave:
        role = config.broker.broker_role
        yield "haMasterAddress", f"only a slave copies a master, and brokerRole is {role}"
    if settings.get("haListenPort") and not config.replication.is_on:
        yield "haListenPort", "without haPeers nobody may copy the log: the port is not opened"
    for name, value in settings.items():
        key = SCHEMA[canon(name)]
        if key.declaration.kind == "path" and str(value).startswith("./~"):
            yield name, f"{value}: ~ is not expanded, a directory of that name is meant"
    yield from oddities(settings, config)
