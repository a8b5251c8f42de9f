"""The settings of each broker where one configuration runs several (`brokers`).

A supervisor has the whole configuration, the name server and the HTTP listener; each broker, a
member, is an ordinary broker process. The differences between the members are computed here: name,
data directory, ports. Everything else is the same in all of them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aerobee.broker.config.settings.advertised import parse_rules, with_port
from aerobee.broker.config.settings.broker import ROOM_AND_NAME
from aerobee.broker.config.settings.metrics import MetricsExporterType
from aerobee.remoting.tls_config import ClientAuth, TlsMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.broker.config.model import BrokerConfig

CONSOLE_KEY: Final = "consolePort"
PORT_STEP: Final = 10
"""Between the ports of two members."""
PORT_MAX: Final = 65_535
WILDCARDS: Final = ("0.0.0.0", "::")
OF_LOG: Final = ("brokerName=", "logFile=", "logFormat=")
LOOPBACKS: Final = ("127.0.0.1", "localhost", "::1")


def member_name(config: BrokerConfig, number: int) -> str:
    """The broker name of a member."""
    return f"{config.broker.broker_name}-{number}"


def member_directory(root: str, number: int) -> str:
    """The data directory of a member, below that of the whole."""
    return f"{root.rstrip('/')}/broker-{number}"


def member_ports(config: BrokerConfig, number: int) -> dict[str, int]:
    """Key → port of each listener of a member; 0: it has none.

    The HTTP listener of a member is on the loopback, and for the supervisor.
    """
    remoting, metrics, ha = config.remoting, config.metrics, config.replication
    http = metrics.metrics_prom_exporter_port
    served = http and metrics.metrics_exporter_type is MetricsExporterType.PROM
    above = number * PORT_STEP
    replicated = {"haListenPort": ha.ha_listen_port + above} if ha.is_on else {}
    return replicated | {
        "listenPort": remoting.listen_port + above,
        "vipListenPort": remoting.vip_listen_port and remoting.vip_listen_port + above,
        "grpcPort": remoting.grpc_port and remoting.grpc_port + above,
        "metricsPromExporterPort": http + above + PORT_STEP if served else 0,
        # That of the whole: it knows all brokers by the name server.
        CONSOLE_KEY: 0 if number else config.console.console_port,
    }


def name_servers(config: BrokerConfig, addresses: Sequence[str]) -> str:
    """The name servers of a member: the supervisor's, then those outside.

    `addresses`: of this host. NAMESRV_ADDR, meant for clients, has the supervisor's as well.
    """
    bound, port = config.remoting.bind_address, config.namesrv.namesrv_listen_port
    wide = bound in WILDCARDS
    local = {bound, *LOOPBACKS, *(addresses if wide else ())}
    own = with_port(LOOPBACKS[0] if wide else bound, port)
    servers = filter(None, config.broker.namesrv_addr.split(";"))
    outside = (
        address
        for address in servers
        if address.rpartition(":")[2] != str(port)
        or address.rpartition(":")[0].strip("[]") not in local
    )
    return ";".join([own, *outside])


def member_settings(config: BrokerConfig, number: int, addresses: Sequence[str]) -> dict[str, str]:
    """RocketMQ name → text of the settings in which a member differs from the
    whole. `addresses`: of this host.
    """
    broker, store = config.broker, config.store
    root = member_directory(store.store_path_root_dir, number)
    settings = {
        "brokers": "1",
        "brokerName": member_name(config, number),
        "storePathRootDir": root,
        "bindAddress": config.remoting.bind_address,
        "kvConfigPath": f"{root}/config/kvConfig.json",
        "configOverlayPath": f"{root}/config/aerobee-overlay.yaml",
        "aclConfigDir": config.auth.acl_config_dir,
        "embeddedNamesrv": "false",
        "namesrvAddr": name_servers(config, addresses),
        "metricsPromExporterHost": "127.0.0.1",
        "metricsTlsEnable": "false",
        "logFormat": config.process.log_format,
    }
    if config.process.log_file:
        settings["logFile"] = config.process.log_file
    if store.store_path_commit_log:
        settings["storePathCommitLog"] = member_directory(store.store_path_commit_log, number)
    if broker.advertised:
        settings["advertised"] = advertised_rules(config, number)
    if broker.advertised_port:
        settings["advertisedPort"] = str(broker.advertised_port + number * PORT_STEP)
    if config.tls.tls_server_mode is TlsMode.ENFORCING and not config.tls.use_tls:
        # The name server takes nothing else. No certificate need have its name: nobody but the
        # supervisor listens there.
        settings |= {"useTLS": "true", "tlsClientAuthServer": "false"}
    ports = {key: str(port) for key, port in member_ports(config, number).items()}
    if CONSOLE_KEY not in config.sources and not number:
        # A port that is set must be had, one by default need not be.
        del ports[CONSOLE_KEY]
    return settings | ports


def log_settings(settings: Sequence[str]) -> list[str]:
    """The settings by which a member writes a log line when all others are wrong."""
    return [pair for pair in settings if pair.startswith(OF_LOG)]


def advertised_rules(config: BrokerConfig, number: int) -> str:
    """The rules of `advertised` for a member, in their text form: ports of its own."""
    rules = parse_rules(config.broker.advertised)
    above = number * PORT_STEP
    return ";".join(
        f"{rule.network}={with_port(rule.host, rule.port + above) if rule.port else rule.host}"
        for rule in rules
    )


def supervisor_config(config: BrokerConfig) -> BrokerConfig:
    """The configuration of the supervisor's own part, a name server alone.

    It has no HTTP listener: the supervisor has one for all. The connections of the brokers, which
    come from one address, are beyond the limits for those of clients.
    """
    remoting, brokers = config.remoting, config.broker.broker_count
    all_of_them, of_address = remoting.max_connections, remoting.max_connections_of_address
    return replace(
        config,
        remoting=replace(
            remoting,
            max_connections=all_of_them and all_of_them + brokers,
            max_connections_of_address=of_address and of_address + brokers,
        ),
        namesrv=replace(config.namesrv, embedded_namesrv=False),
        metrics=replace(config.metrics, metrics_exporter_type=MetricsExporterType.DISABLE),
    )


def member_objections(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """The key and the message of each rule for several brokers that is broken."""
    namesrv, auth, tls = config.namesrv, config.auth, config.tls
    last = config.broker.broker_count - 1
    if not namesrv.embedded_namesrv:
        yield (
            "brokers",
            "several brokers need their name server: set embeddedNamesrv, or brokers: 1",
        )
    elif not namesrv.namesrv_listen_port:
        yield "namesrvListenPort", "several brokers need a port of their name server, such as 9876"
    if auth.enabled and not auth.inner_client_authentication_credentials:
        yield (
            "innerClientAuthenticationCredentials",
            "several brokers register with their name server as an account: name it",
        )
    through_tls = tls.use_tls or tls.tls_server_mode is TlsMode.ENFORCING
    certificate_needed = through_tls and tls.tls_server_need_client_auth is ClientAuth.REQUIRE
    if certificate_needed and not tls.tls_client_cert_path:
        yield (
            "tlsClientCertPath",
            "several brokers register with their name server, which asks for a certificate"
            " (tlsServerNeedClientAuth): name one, and its tlsClientKeyPath",
        )
    if not re.fullmatch(ROOM_AND_NAME, member_name(config, last)):
        yield "brokerName", f"too long for the {last + 1} brokers, whose names end with -0, -1 …"
    yield from member_port_objections(config)


def member_port_objections(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """The key and the message of ports of members that cannot be, or are those of others."""
    owners = {config.namesrv.namesrv_listen_port: "namesrvListenPort"}
    if config.metrics.metrics_exporter_type is MetricsExporterType.PROM:
        owners[config.metrics.metrics_prom_exporter_port] = "metricsPromExporterPort"
    owners.pop(0, None)
    for number in range(config.broker.broker_count):
        for key, port in member_ports(config, number).items():
            whose = f"{key} of broker {number}, each {PORT_STEP} above the one before,"
            if port > PORT_MAX:
                yield key, f"{whose} would be {port}: at most {PORT_MAX}; lower it, or brokers"
            elif port in owners:
                yield key, f"{whose} is {port}, the port of {owners[port]} already"
            elif port:
                owners[port] = f"{key} of broker {number}"
