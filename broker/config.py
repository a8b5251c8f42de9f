"""The broker's configuration: what all sources together say, checked, as frozen values."""

from __future__ import annotations

from broker.settings.model import BrokerConfig
from broker.settings.options import BrokerOptions, BrokerRole
from broker.settings.services import (
    MetricsConfig,
    MetricsExporterType,
    NamesrvConfig,
    ReplicationConfig,
)
from remoting.config import RemotingConfig
from store.config import FlushDiskType, StoreConfig

__all__ = [
    "BrokerConfig",
    "BrokerOptions",
    "BrokerRole",
    "FlushDiskType",
    "MetricsConfig",
    "MetricsExporterType",
    "NamesrvConfig",
    "RemotingConfig",
    "ReplicationConfig",
    "StoreConfig",
]
