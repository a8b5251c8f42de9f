"""The settings of the embedded name server, of metrics, and (kept only) of replication.

Read like `store.config`; the marks in `extra` are explained there and in `options`.
Source: configuration §2.5, §3.5, §3.6, §3.8.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

__all__ = ["MetricsConfig", "MetricsExporterType", "NamesrvConfig", "ReplicationConfig"]


class MetricsExporterType(StrEnum):
    """How metrics leave: not at all, to be scraped, pushed, or into the log."""

    DISABLE = "DISABLE"
    PROM = "PROM"
    OTLP_GRPC = "OTLP_GRPC"
    LOG = "LOG"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """The name server inside this process."""

    embedded_namesrv: Annotated[
        bool,
        Meta(
            description="Run the name server inside this process.",
            extra={"key": "embeddedNamesrv", "own": True},
        ),
    ] = True
    namesrv_listen_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65_535,
            description="Its port; 0: none, its codes are answered on listenPort.",
            extra={"key": "namesrvListenPort", "own": True},
        ),
    ] = 9_876
    kv_config_path: Annotated[
        str,
        Meta(
            description="File of its key-value settings.",
            extra={
                "key": "kvConfigPath",
                "kind": "path",
                "derived": "config/kvConfig.json below storePathRootDir",
            },
        ),
    ] = ""
    config_store_path: Annotated[
        str,
        Meta(
            description="File that a Java name server writes its settings to.",
            extra={"key": "configStorePath", "kind": "path", "later": True},
        ),
    ] = ""
    namesrv_config_black_list: Annotated[
        str,
        Meta(
            description="Keys that no administrator may change while running.",
            extra={"key": "namesrvConfigBlackList", "own": True, "list": ";", "later": True},
        ),
    ] = "configBlackList;configStorePath;kvConfigPath"
    order_message_enable: Annotated[
        bool,
        Meta(
            description="Add the order settings of a topic to its route.",
            extra={"key": "orderMessageEnable", "hot": True},
        ),
    ] = False
    return_order_topic_config_to_broker: Annotated[
        bool,
        Meta(
            description="Tell registering brokers the order settings.",
            extra={"key": "returnOrderTopicConfigToBroker", "hot": True},
        ),
    ] = True
    scan_not_active_broker_interval_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=3_600_000,
            description="Period of the search for brokers that went silent.",
            extra={"key": "scanNotActiveBrokerInterval", "unit": "ms"},
        ),
    ] = 5_000
    enable_all_topic_list: Annotated[
        bool,
        Meta(
            description="Answer the list of all topics (code 206).",
            extra={"key": "enableAllTopicList", "hot": True},
        ),
    ] = True
    enable_topic_list: Annotated[
        bool,
        Meta(
            description="Answer the lists of topics (224, 311 to 313).",
            extra={"key": "enableTopicList", "hot": True},
        ),
    ] = True
    delete_topic_with_broker_registration: Annotated[
        bool,
        Meta(
            description="Forget topics that a registering broker no longer has.",
            extra={"key": "deleteTopicWithBrokerRegistration", "hot": True, "later": True},
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """The HTTP listener for metrics and health."""

    metrics_exporter_type: Annotated[
        MetricsExporterType,
        Meta(
            description="PROM serves metrics and health over HTTP, DISABLE does not.",
            extra={"key": "metricsExporterType"},
        ),
    ] = MetricsExporterType.PROM
    metrics_prom_exporter_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65_535,
            description="Port of metrics and health; 0: none.",
            extra={"key": "metricsPromExporterPort"},
        ),
    ] = 5_557
    metrics_prom_exporter_host: Annotated[
        str,
        Meta(
            description="Local address of metrics and health.",
            extra={"key": "metricsPromExporterHost", "derived": "bindAddress"},
        ),
    ] = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """Checked and kept until replication comes."""

    ha_listen_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65_535,
            description="Port for slaves.",
            extra={"key": "haListenPort", "derived": "listenPort + 1", "later": True},
        ),
    ] = 10_912
    ha_master_address: Annotated[
        str,
        Meta(
            description="Address of the master for a slave.",
            extra={"key": "haMasterAddress", "later": True},
        ),
    ] = ""
    ha_send_heartbeat_interval_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000,
            description="Period of the heartbeat to slaves.",
            extra={"key": "haSendHeartbeatInterval", "unit": "ms", "hot": True, "later": True},
        ),
    ] = 5_000
    ha_housekeeping_interval_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=600_000,
            description="Silence that closes the connection of a slave.",
            extra={"key": "haHousekeepingInterval", "unit": "ms", "hot": True, "later": True},
        ),
    ] = 20_000
    ha_transfer_batch_size_bytes: Annotated[
        int,
        Meta(
            ge=4_096,
            le=16_777_216,
            description="Bytes sent to a slave at once.",
            extra={"key": "haTransferBatchSize", "unit": "B", "hot": True, "later": True},
        ),
    ] = 32_768
    ha_max_gap_not_in_sync_bytes: Annotated[
        int,
        Meta(
            ge=4_096,
            le=17_179_869_184,
            description="How far a slave may be behind.",
            extra={
                "key": "haMaxGapNotInSync",
                "unit": "B",
                "hot": True,
                "later": True,
                "formerly": "haSlaveFallbehindMax",
            },
        ),
    ] = 268_435_456
    slave_timeout_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=60_000,
            description="How long a SYNC_MASTER waits for its slave.",
            extra={"key": "slaveTimeout", "unit": "ms", "hot": True, "later": True},
        ),
    ] = 3_000
