"""The Grafana dashboards under conf/grafana, made from the table of their panels.

    python -m tests.dashboards [--write]

Tells which files are stale, with exit code 1, or writes them. Panels are of the kinds that every
Grafana from 9 on draws; the data source is a variable, so that a dashboard is imported as it is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER: Final = Path(__file__).parents[1] / "conf" / "grafana"
WIDTH: Final = 24
"""Columns of a dashboard."""
HEIGHT: Final = 7
SMALL: Final = 4
"""Height of a row of single figures."""
OF_NODE: Final = 'cluster=~"$cluster",node_id=~"$node"'
OF_TOPIC: Final = f'{OF_NODE},topic=~"$topic"'
OF_PAIR: Final = f'{OF_TOPIC},consumer_group=~"$group"'
LATENCY: Final = "rocketmq_rpc_latency_milliseconds"
AT_ONCE: Final = f'{OF_NODE},is_long_polling="false"'
SENDS: Final = f'{AT_ONCE},request_code=~"send_(message|message_v2|batch_message)"'

Kind = Literal["timeseries", "stat", "table"]


class Panel(NamedTuple):
    """What a panel shows, in which unit of Grafana, and (expression, legend) of each query."""

    title: str
    unit: str
    queries: Sequence[tuple[str, str]]
    kind: Kind = "timeseries"
    help: str = ""


class Row(NamedTuple):
    """Panels beside each other under a heading."""

    title: str
    panels: Sequence[Panel]


class Dashboard(NamedTuple):
    """A file of conf/grafana. `variables`: name and the expression that lists its values."""

    name: str
    title: str
    variables: Sequence[tuple[str, str]]
    rows: Sequence[Row]


CLUSTER: Final = ("cluster", "label_values(rocketmq_broker_permission, cluster)")
NODE: Final = ("node", 'label_values(rocketmq_broker_permission{cluster=~"$cluster"}, node_id)')
TOPIC: Final = ("topic", f"label_values(rocketmq_messages_in_total{{{OF_NODE}}}, topic)")
GROUP: Final = (
    "group",
    f"label_values(rocketmq_consumer_lag_messages{{{OF_NODE}}}, consumer_group)",
)
RATE: Final = "[$__rate_interval]"


def rate(metric: str, labels: str = OF_NODE, by: str = "node_id") -> str:
    """Increase of a counter per second, summed up by some labels."""
    return f"sum by ({by}) (rate({metric}{{{labels}}}{RATE}))"


def quantile(q: float, histogram: str, by: str = "node_id", labels: str = OF_NODE) -> str:
    """A quantile of a histogram."""
    inner = f"sum by (le, {by}) (rate({histogram}_bucket{{{labels}}}{RATE}))"
    return f"histogram_quantile({q}, {inner})"


def top(metric: str, labels: str, by: str) -> str:
    """The ten largest, so that a thousand topics can still be drawn."""
    return f"topk(10, sum by ({by}) ({metric}{{{labels}}}))"


def top_rate(metric: str, labels: str, by: str) -> str:
    """The ten that increase fastest."""
    return f"topk(10, {rate(metric, labels, by)})"


OVERVIEW: Final = Dashboard(
    "aerobee-overview",
    "Aerobee: overview",
    (CLUSTER, NODE),
    (
        Row(
            "Now",
            (
                Panel("In", "cps", [(rate("rocketmq_messages_in_total"), "{{node_id}}")], "stat"),
                Panel("Out", "cps", [(rate("rocketmq_messages_out_total"), "{{node_id}}")], "stat"),
                Panel(
                    "Behind",
                    "short",
                    [
                        (
                            "sum by (node_id) (rocketmq_consumer_lag_messages"
                            f'{{{OF_NODE},is_system="false"}})',
                            "{{node_id}}",
                        )
                    ],
                    "stat",
                    "Messages that groups have not consumed, all together.",
                ),
                Panel(
                    "Connections",
                    "short",
                    [(f"aerobee_connections{{{OF_NODE}}}", "{{node_id}}")],
                    "stat",
                ),
                Panel(
                    "Disk used",
                    "percentunit",
                    [
                        (
                            f"1 - aerobee_storage_available_bytes{{{OF_NODE}}}"
                            f" / aerobee_storage_capacity_bytes{{{OF_NODE}}}",
                            "{{node_id}}",
                        )
                    ],
                    "stat",
                ),
                Panel(
                    "Refuses messages",
                    "bool_yes_no",
                    [(f"aerobee_store_refuses_puts{{{OF_NODE}}}", "{{node_id}}")],
                    "stat",
                ),
            ),
        ),
        Row(
            "Traffic",
            (
                Panel(
                    "Messages per second",
                    "cps",
                    [
                        (rate("rocketmq_messages_in_total"), "{{node_id}} in"),
                        (rate("rocketmq_messages_out_total"), "{{node_id}} out"),
                    ],
                ),
                Panel(
                    "Bytes per second",
                    "Bps",
                    [
                        (rate("rocketmq_throughput_in_total"), "{{node_id}} in"),
                        (rate("rocketmq_throughput_out_total"), "{{node_id}} out"),
                    ],
                ),
                Panel(
                    "Requests per second",
                    "reqps",
                    [(rate("aerobee_requests_total"), "{{node_id}}")],
                ),
            ),
        ),
        Row(
            "Requests",
            (
                Panel(
                    "Time of sends",
                    "ms",
                    [
                        (quantile(0.5, LATENCY, labels=SENDS), "{{node_id}} p50"),
                        (quantile(0.99, LATENCY, labels=SENDS), "{{node_id}} p99"),
                    ],
                    help="From the arrival of a request until its answer was sent.",
                ),
                Panel(
                    "Time of requests, p99, top 10",
                    "ms",
                    [
                        (
                            f"topk(10, {quantile(0.99, LATENCY, 'request_code', AT_ONCE)})",
                            "{{request_code}}",
                        )
                    ],
                    help="Without pulls and pops that wait for messages.",
                ),
                Panel(
                    "Answers other than success per second",
                    "reqps",
                    [
                        (
                            rate(
                                f"{LATENCY}_count",
                                f'{AT_ONCE},response_code!="success"',
                                "request_code, response_code",
                            ),
                            "{{request_code}}: {{response_code}}",
                        )
                    ],
                ),
            ),
        ),
        Row(
            "Clients",
            (
                Panel(
                    "Producers by language",
                    "short",
                    [
                        (
                            f"sum by (language) (rocketmq_producer_connections{{{OF_NODE}}})",
                            "{{language}}",
                        )
                    ],
                ),
                Panel(
                    "Consumers by language",
                    "short",
                    [
                        (
                            f"sum by (language) (rocketmq_consumer_connections{{{OF_NODE}}})",
                            "{{language}}",
                        )
                    ],
                ),
                Panel(
                    "Bytes that peers have not taken",
                    "bytes",
                    [(f"aerobee_unsent_bytes{{{OF_NODE}}}", "{{node_id}}")],
                    help="Answers to consumers that read too slowly.",
                ),
            ),
        ),
        Row(
            "Process",
            (
                Panel(
                    "Processor",
                    "percentunit",
                    [(f"rate(process_cpu_seconds_total{RATE})", "{{instance}}")],
                ),
                Panel(
                    "Memory",
                    "bytes",
                    [("process_resident_memory_bytes", "{{instance}} resident")],
                    help="Resident memory counts the mapped pages of the log, which the system can"
                    " take back at any time.",
                ),
                Panel(
                    "Open files",
                    "short",
                    [
                        ("process_open_fds", "{{instance}} open"),
                        ("process_max_fds", "{{instance}} limit"),
                    ],
                ),
            ),
        ),
    ),
)

TOPICS: Final = Dashboard(
    "aerobee-topics",
    "Aerobee: topics and groups",
    (CLUSTER, NODE, TOPIC, GROUP),
    (
        Row(
            "Topics",
            (
                Panel(
                    "Messages in per second, top 10",
                    "cps",
                    [(top_rate("rocketmq_messages_in_total", OF_TOPIC, "topic"), "{{topic}}")],
                ),
                Panel(
                    "Bytes in per second, top 10",
                    "Bps",
                    [(top_rate("rocketmq_throughput_in_total", OF_TOPIC, "topic"), "{{topic}}")],
                ),
                Panel(
                    "Size of messages",
                    "bytes",
                    [
                        (
                            f"{rate('rocketmq_message_size_sum', OF_TOPIC, 'topic')}"
                            f" / {rate('rocketmq_message_size_count', OF_TOPIC, 'topic')}",
                            "{{topic}}",
                        )
                    ],
                    help="Average over the messages of the last minutes.",
                ),
            ),
        ),
        Row(
            "Groups",
            (
                Panel(
                    "Behind, top 10",
                    "short",
                    [
                        (
                            top("rocketmq_consumer_lag_messages", OF_PAIR, "consumer_group, topic"),
                            "{{consumer_group}} · {{topic}}",
                        )
                    ],
                    help="Messages stored and not consumed.",
                ),
                Panel(
                    "Behind by the clock, top 10",
                    "ms",
                    [
                        (
                            "topk(10, max by (consumer_group, topic)"
                            f" (rocketmq_consumer_lag_latency_milliseconds{{{OF_PAIR}}}))",
                            "{{consumer_group}} · {{topic}}",
                        )
                    ],
                    help="Age of the oldest message that is not consumed.",
                ),
                Panel(
                    "Messages out per second, top 10",
                    "cps",
                    [
                        (
                            top_rate(
                                "rocketmq_messages_out_total", OF_PAIR, "consumer_group, topic"
                            ),
                            "{{consumer_group}} · {{topic}}",
                        )
                    ],
                ),
            ),
        ),
        Row(
            "Where messages are",
            (
                Panel(
                    "In flight, top 10",
                    "short",
                    [
                        (
                            top(
                                "rocketmq_consumer_inflight_messages",
                                OF_PAIR,
                                "consumer_group, topic",
                            ),
                            "{{consumer_group}} · {{topic}}",
                        )
                    ],
                    help="Given to a consumer and not committed or acknowledged.",
                ),
                Panel(
                    "Ready, top 10",
                    "short",
                    [
                        (
                            top(
                                "rocketmq_consumer_ready_messages",
                                OF_PAIR,
                                "consumer_group, topic",
                            ),
                            "{{consumer_group}} · {{topic}}",
                        )
                    ],
                    help="Given to nobody yet.",
                ),
                Panel(
                    "Dead letters",
                    "short",
                    [
                        (
                            "sum by (consumer_group)"
                            f" (rocketmq_send_to_dlq_messages_total{{{OF_NODE}}})",
                            "{{consumer_group}}",
                        )
                    ],
                ),
            ),
        ),
        Row(
            "Members, transactions, timers",
            (
                Panel(
                    "Members of groups",
                    "short",
                    [
                        (
                            "sum by (consumer_group, consume_mode) (rocketmq_consumer_connections"
                            f'{{{OF_NODE},consumer_group=~"$group"}})',
                            "{{consumer_group}} ({{consume_mode}})",
                        )
                    ],
                ),
                Panel(
                    "Open transactions",
                    "short",
                    [(f"rocketmq_half_messages{{{OF_TOPIC}}}", "{{topic}}")],
                ),
                Panel(
                    "Timers that wait",
                    "short",
                    [(f"rocketmq_timing_messages{{{OF_TOPIC}}}", "{{topic}}")],
                ),
            ),
        ),
    ),
)

STORE: Final = Dashboard(
    "aerobee-store",
    "Aerobee: store and event loop",
    (CLUSTER, NODE),
    (
        Row(
            "Store",
            (
                Panel(
                    "Time of a sync",
                    "s",
                    [
                        (quantile(0.5, "aerobee_fdatasync_seconds"), "{{node_id}} p50"),
                        (quantile(0.99, "aerobee_fdatasync_seconds"), "{{node_id}} p99"),
                    ],
                ),
                Panel(
                    "Behind the log",
                    "bytes",
                    [
                        (
                            f"rocketmq_storage_flush_behind_bytes{{{OF_NODE}}}",
                            "{{node_id}} not on disk",
                        ),
                        (
                            f"rocketmq_storage_dispatch_behind_bytes{{{OF_NODE}}}",
                            "{{node_id}} not in queues",
                        ),
                        (
                            f"aerobee_index_behind_bytes{{{OF_NODE}}}",
                            "{{node_id}} not in the index",
                        ),
                    ],
                ),
                Panel(
                    "Reads from disk",
                    "ops",
                    [(rate("aerobee_cold_reads_total"), "{{node_id}}")],
                    help="Pulls of messages that are no longer in memory.",
                ),
            ),
        ),
        Row(
            "Replication",
            (
                Panel(
                    "Slaves",
                    "short",
                    [
                        (f"aerobee_replication_slaves{{{OF_NODE}}}", "{{node_id}} connected"),
                        (f"aerobee_replication_slaves_in_sync{{{OF_NODE}}}", "{{node_id}} in sync"),
                    ],
                ),
                Panel(
                    "Slaves behind",
                    "s",
                    [
                        (
                            f"aerobee_replication_slave_lag_seconds{{{OF_NODE}}}",
                            "{{node_id}} {{slave}}",
                        )
                    ],
                    help="How long ago a slave had everything.",
                ),
                Panel(
                    "Slaves behind",
                    "bytes",
                    [
                        (
                            f"aerobee_replication_slave_lag_bytes{{{OF_NODE}}}",
                            "{{node_id}} {{slave}}",
                        )
                    ],
                ),
                Panel(
                    "Log copied",
                    "Bps",
                    [
                        (rate("aerobee_replication_sent_bytes_total"), "{{node_id}} to slaves"),
                        (
                            rate("aerobee_replication_received_bytes_total"),
                            "{{node_id}} from its master",
                        ),
                    ],
                ),
            ),
        ),
        Row(
            "Room",
            (
                Panel(
                    "Disk",
                    "bytes",
                    [
                        (
                            f"aerobee_storage_available_bytes{{{OF_NODE}}}",
                            "{{node_id}} available",
                        ),
                        (f"rocketmq_storage_size_bytes{{{OF_NODE}}}", "{{node_id}} used"),
                    ],
                ),
                Panel(
                    "The log reaches back",
                    "ms",
                    [
                        (
                            f"rocketmq_storage_message_reserve_time_milliseconds{{{OF_NODE}}}",
                            "{{node_id}}",
                        )
                    ],
                ),
                Panel(
                    "Segments deleted per hour",
                    "short",
                    [
                        (
                            "sum by (node_id, reason) (increase("
                            f"aerobee_log_segments_deleted_total{{{OF_NODE}}}[1h]))",
                            "{{node_id}} {{reason}}",
                        )
                    ],
                ),
            ),
        ),
        Row(
            "Where the time of a send goes",
            (
                Panel(
                    "Stages, p50",
                    "s",
                    [(quantile(0.5, "aerobee_send_stage_seconds", "stage"), "{{stage}}")],
                    help="queued: until its turn; appended: until it is in the log; flushed: until"
                    " it is on disk, where its answer waits for that; answered: until its answer"
                    " was sent.",
                ),
                Panel(
                    "Stages, p99",
                    "s",
                    [(quantile(0.99, "aerobee_send_stage_seconds", "stage"), "{{stage}}")],
                ),
                Panel(
                    "Creation of topics and groups, p99",
                    "ms",
                    [
                        (
                            quantile(0.99, f"rocketmq_{kind}_create_execution_time_milliseconds"),
                            f"{{{{node_id}}}} {kind}s",
                        )
                        for kind in ("topic", "consumer_group")
                    ],
                ),
            ),
        ),
        Row(
            "Event loop and pools",
            (
                Panel(
                    "Lag of the loop",
                    "s",
                    [
                        (quantile(0.5, "aerobee_loop_lag_seconds"), "{{node_id}} p50"),
                        (quantile(0.99, "aerobee_loop_lag_seconds"), "{{node_id}} p99"),
                    ],
                    help="By how much a timer came late: what every request waits at least.",
                ),
                Panel(
                    "Requests in the pools",
                    "short",
                    [(f"rocketmq_processor_watermark{{{OF_NODE}}}", "{{node_id}} {{processor}}")],
                ),
                Panel(
                    "Requests refused per second",
                    "reqps",
                    [
                        (
                            rate("aerobee_pool_refused_total", by="node_id, processor"),
                            "{{node_id}} {{processor}}",
                        )
                    ],
                ),
            ),
        ),
        Row(
            "Deliveries and faults",
            (
                Panel(
                    "Timers late",
                    "s",
                    [
                        (
                            f"rocketmq_timer_dequeue_latency_milliseconds{{{OF_NODE}}}",
                            "{{node_id}}",
                        )
                    ],
                    help="In seconds, whatever RocketMQ's name for it says.",
                ),
                Panel(
                    "POP: messages that should have come again",
                    "ms",
                    [
                        (
                            "max by (node_id)"
                            f" (rocketmq_pop_revive_latency_milliseconds{{{OF_NODE}}})",
                            "{{node_id}}",
                        )
                    ],
                ),
                Panel(
                    "Faults",
                    "short",
                    [
                        (f"aerobee_damaged_records_total{{{OF_NODE}}}", "{{node_id}} damaged"),
                        (
                            f"aerobee_connections_refused_total{{{OF_NODE}}}",
                            "{{node_id}} connections refused",
                        ),
                    ],
                ),
            ),
        ),
    ),
)

DASHBOARDS: Final = (OVERVIEW, TOPICS, STORE)


def expressions(dashboard: Dashboard) -> Iterator[str]:
    """Every query of a dashboard."""
    for row in dashboard.rows:
        for panel in row.panels:
            yield from (expression for expression, _ in panel.queries)


def document(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top_y = 0
    for row in dashboard.rows:
        heading = {"type": "row", "title": row.title, "collapsed": False, "panels": []}
        panels.append({**heading, "id": len(panels) + 1, "gridPos": at(0, top_y, WIDTH, 1)})
        top_y += 1
        height = SMALL if row.panels[0].kind == "stat" else HEIGHT
        width = WIDTH // len(row.panels)
        for number, panel in enumerate(row.panels):
            place = at(number * width, top_y, width, height)
            panels.append(panel_document(panel, len(panels) + 1, place))
        top_y += height
    return {
        "uid": dashboard.name,
        "title": dashboard.title,
        "tags": ["aerobee", "rocketmq"],
        "schemaVersion": 36,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [data_source(), *map(variable, dashboard.variables)]},
        "panels": panels,
    }


def at(x: int, y: int, width: int, height: int) -> dict[str, int]:
    """A place in the grid."""
    return {"x": x, "y": y, "w": width, "h": height}


def panel_document(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    """One panel."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": source,
                "expr": expr,
                "legendFormat": legend,
            }
            for at, (expr, legend) in enumerate(panel.queries)
        ],
    }


def data_source() -> dict[str, Any]:
    """The variable of the Prometheus to ask."""
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def variable(named: tuple[str, str]) -> dict[str, Any]:
    """A variable with all its values chosen."""
    name, query = named
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def files() -> Iterator[tuple[Path, str]]:
    """Each file and what it should say."""
    for dashboard in DASHBOARDS:
        text = json.dumps(document(dashboard), indent=2, ensure_ascii=False)
        yield FOLDER / f"{dashboard.name}.json", f"{text}\n"


def main(arguments: Sequence[str]) -> int:
    """Write the files, or say which are stale."""
    stale = []
    for path, text in files():
        if "--write" in arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    for name in stale:
        sys.stderr.write(f"{name} is stale: python -m tests.dashboards --write\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
