"""The metrics of a name server that runs alone: those of every server, and its own few.

Requests by their code, registrations among them, are counted by
`rocketmq_rpc_latency_milliseconds`. RocketMQ's name server has no metrics, so the names are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aerobee.broker.metrics.readings import Metric, single
from aerobee.broker.process.server_metrics import SERVER_METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.broker.access.access_stats import AccessStats
    from aerobee.broker.namesrv.route_table import RouteTable
    from aerobee.broker.process.loop_stats import LoopStats
    from aerobee.remoting.stats import RemotingStats

__all__ = ["METRICS", "NamesrvSources"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvSources:
    """Everything a scrape of a name server reads."""

    cluster: str
    node_id: str
    """Its `brokerName`, which is the host name where it is not set."""
    node_type: str = "nameserver"
    labels: Mapping[str, str] = field(default_factory=dict)
    """The operator's own labels, on every series."""
    short_names: bool = False
    """Whether metrics are served under their names in RocketMQ 5.1.0 to 5.1.3 too."""
    remoting: RemotingStats
    loop: LoopStats
    access: AccessStats
    routes: RouteTable


METRICS: Final[tuple[Metric[NamesrvSources], ...]] = (
    single(
        "aerobee_namesrv_brokers",
        "gauge",
        "Brokers registered now, each replica by itself.",
        lambda s: len(s.routes.live),
    ),
    single(
        "aerobee_namesrv_topics",
        "gauge",
        "Topics that brokers have registered.",
        lambda s: len(s.routes.queues.table),
    ),
    *SERVER_METRICS,
)
"""All of them, in the order of the exposition; process_* figures follow."""
