"""The metrics of a name server that runs alone: those of every server, and its own few.

Requests by their code, registrations among them, are counted by
`rocketmq_rpc_latency_milliseconds`. RocketMQ's name server has no metrics, so the names are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence  # noqa: TC003  (read at run time)
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.metrics.figures import ServerSources
from aerobee.broker.metrics.metric import Metric, single
from aerobee.broker.metrics.server_metrics import SERVER_METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.metrics.metric import Reading
    from aerobee.broker.namesrv.route_table import RouteTable


class MemberFigures(NamedTuple):
    """A broker that a supervisor runs: whether it serves, and how often it was started again."""

    name: str
    serves: bool
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvSources(ServerSources):
    """Everything a scrape of a name server reads."""

    node_type: str = "nameserver"
    routes: RouteTable
    members: Callable[[], Sequence[MemberFigures]] = tuple
    """The brokers that this process runs; a name server alone has none."""


def members_up(sources: NamesrvSources) -> Iterator[Reading]:
    """Whether each broker of a supervisor serves."""
    for member in sources.members():
        yield (member.name,), member.serves


def member_restarts(sources: NamesrvSources) -> Iterator[Reading]:
    """How often each broker of a supervisor was started again."""
    for member in sources.members():
        yield (member.name,), member.restarts


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
    Metric(
        "aerobee_broker_up",
        "gauge",
        ("broker",),
        "Whether a broker of this supervisor serves.",
        members_up,
    ),
    Metric(
        "aerobee_broker_restarts_total",
        "counter",
        ("broker",),
        "How often the supervisor has started a broker again.",
        member_restarts,
    ),
    *SERVER_METRICS,
)
"""All of them, in the order of the exposition; process_* figures follow."""
