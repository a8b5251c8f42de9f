"""The settings of metrics and health. Source: configuration §3.5."""

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
