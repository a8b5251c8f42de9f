"""The settings of the embedded name server, of metrics and health, and of the process itself.

Source: configuration §2.5, §3.5, §3.6.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from aerobee.setting import setting


class MetricsExporterType(StrEnum):
    """How metrics are exported: not at all, scraped, pushed, or logged."""

    DISABLE = "DISABLE"
    PROM = "PROM"
    OTLP_GRPC = "OTLP_GRPC"
    LOG = "LOG"


class LogLevel(StrEnum):
    """The least level of a log line that is written."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class LogFormat(StrEnum):
    """The format of log lines; AUTO: TEXT on a terminal, else JSON."""

    AUTO = "AUTO"
    JSON = "JSON"
    TEXT = "TEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """The name server inside this process."""

    embedded_namesrv: bool = setting("embeddedNamesrv", True, own=True)
    """Run the name server inside this process."""
    namesrv_listen_port: int = setting("namesrvListenPort", 9_876, ge=0, le=65_535, own=True)
    """Its port; 0: none, its codes are answered on listenPort."""
    kv_config_path: str = setting(
        "kvConfigPath", "", kind="path", derived="config/kvConfig.json below storePathRootDir"
    )
    """File of its key-value settings."""
    order_message_enable: bool = setting("orderMessageEnable", False, live=True)
    """Add the order settings of a topic to its route."""
    return_order_topic_config_to_broker: bool = setting(
        "returnOrderTopicConfigToBroker", True, live=True
    )
    """Send the order settings to brokers that register."""
    delete_topic_with_broker_registration: bool = setting(
        "deleteTopicWithBrokerRegistration", False, live=True
    )
    """Take the topics of each registration for all that the broker has, and delete its others;
    its brokers need enableSingleTopicRegister."""
    scan_not_active_broker_interval_ms: int = setting(
        "scanNotActiveBrokerInterval", 5_000, ge=100, le=3_600_000, unit="ms"
    )
    """Period of the search for brokers whose registration has expired."""
    enable_all_topic_list: bool = setting("enableAllTopicList", True, live=True)
    """Answer the list of all topics (code 206)."""
    enable_topic_list: bool = setting("enableTopicList", True, live=True)
    """Answer the lists of topics (224, 311 to 313)."""
    support_acting_master: bool = setting("supportActingMaster", False)
    """Show the slave that acts for its master as the master, in routes."""
    notify_min_broker_id_changed: bool = setting("notifyMinBrokerIdChanged", False)
    """Notify the brokers of one name when the smallest id among them changes."""
    need_wait_for_service: bool = setting("needWaitForService", False)
    """Give no routes until waitSecondsForService have passed since the start."""
    wait_seconds_for_service_s: int = setting("waitSecondsForService", 45, ge=0, le=3_600, unit="s")
    """How long routes are withheld, so that brokers can register first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """The HTTP listener for metrics and health."""

    metrics_exporter_type: MetricsExporterType = setting(
        "metricsExporterType", MetricsExporterType.PROM
    )
    """PROM serves metrics and health over HTTP, DISABLE does not."""
    metrics_prom_exporter_port: int = setting("metricsPromExporterPort", 5_557, ge=0, le=65_535)
    """Port of metrics and health; 0: none."""
    metrics_prom_exporter_host: str = setting(
        "metricsPromExporterHost", "127.0.0.1", derived="bindAddress"
    )
    """Local address of metrics and health."""
    metrics_label: str = setting("metricsLabel", "")
    """Labels that are added to every series: name:value,name:value."""
    metrics_legacy_names: bool = setting("metricsLegacyNames", False, own=True)
    """Serve metrics under their names in RocketMQ 5.1.0 to 5.1.3 too, which have no unit."""
    metrics_tls_enable: bool = setting("metricsTlsEnable", False, own=True)
    """Serve them over HTTPS alone, with tlsServerCertPath."""
    metrics_max_connections: int = setting("metricsMaxConnections", 64, ge=4, le=10_000, own=True)
    """Connections of metrics and health at once; for one more the oldest idle one is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig:
    """The log, the watch over the event loop, and how a lame duck leaves."""

    log_level: LogLevel = setting("logLevel", LogLevel.INFO, own=True, live=True)
    """The least level of log lines."""
    log_format: LogFormat = setting("logFormat", LogFormat.AUTO, own=True)
    """AUTO writes TEXT to a terminal and JSON elsewhere."""
    log_file: str = setting("logFile", "", kind="path", own=True)
    """File of the log, opened again on SIGUSR1; empty: stderr."""
    loop_stall_ms: int = setting(
        "loopStallMillis", 1_000, ge=100, le=3_600_000, unit="ms", own=True, live=True
    )
    """An event loop that stands still for longer is logged, with the place."""
    lame_duck_grace_s: int = setting(
        "lameDuckGraceSeconds", 10, ge=0, le=3_600, unit="s", own=True, live=True
    )
    """How long a lame duck (SIGUSR2) serves everybody after producers were told to leave."""
    lame_duck_spread_s: int = setting(
        "lameDuckSpreadSeconds", 120, ge=0, le=3_600, unit="s", own=True, live=True
    )
    """Over how long it closes its connections then, a second each at most."""


def labels_of(text: str) -> dict[str, str]:
    """The labels of `metricsLabel`.

    A character that no label name has becomes an underscore, as in RocketMQ's exporter.
    Raises: ValueError naming the part that is no label.
    """
    labels: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, colon, value = part.partition(":")
        name = re.sub(r"[^a-zA-Z0-9_]", "_", name.strip())
        if not colon or not name or name[0].isdigit():
            raise ValueError(f"{part!r} is no label: write name:value,name:value")
        labels[name] = value.strip()
    return labels
