"""The metrics of a name server that runs alone: those of every server, and its own few.

Requests by their code, registrations among them, are counted by
`rocketmq_rpc_latency_milliseconds`. RocketMQ's name server has no metrics, so the names are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aerobee.broker.metrics.readings import Metric, single
from aerobee.broker.metrics.stats import ServerSources
from aerobee.broker.process.server_metrics import SERVER_METRICS

if TYPE_CHECKING:
    from aerobee.broker.namesrv.route_table import RouteTable

__all__ = ["METRICS", "NamesrvSources"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvSources(ServerSources):
    """Everything a scrape of a name server reads."""

    node_type: str = "nameserver"
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
