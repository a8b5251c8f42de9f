"""Every metric by name: one table, and what turns it into the text that Prometheus reads.

In: `Sources`, plain counters and calls that answer at once. Out: pages of the text format. Nothing
is counted here and nothing is kept between two scrapes. This file alone imports prometheus_client.

A metric is a line of `METRICS`: name, kind, labels, help, and how to read it. RocketMQ's names,
labels and label values are those of its 5.x exporter, so dashboards made for it work.
Source: semantics §20.1.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from broker.stats import SERIES_LIMIT
from broker.tables.names import DLQ_PREFIX, RETRY_PREFIX
from remoting.wire.version import describe
from store.stats import Durations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from broker.stats import Sources

__all__ = ["CONTENT_TYPE", "METRICS", "PAGE_SAMPLES", "Metric", "document", "main", "pages"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PAGE_SAMPLES: Final = 100
"""Samples per page: what is put into text in one go, about 1 ms, before others get their turn."""

SCOPE: Final = "broker-meter"
"""The OpenTelemetry scope that the Java broker names on each of its series."""
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
UNCOUNTED: Final = (RETRY_PREFIX, DLQ_PREFIX)
"""Topics that the in and out counters leave out."""
POOL_LABELS: Final = {"query": "query_message"}
"""Pools whose label differs from their name in the route table."""
STORAGE: Final = ("local", "disk")
STORAGE_LABELS: Final = ("storage_type", "storage_medium")

Kind = Literal["counter", "gauge", "histogram"]
Reading = tuple[tuple[str, ...] | None, float | Durations]
"""Label values in the order of the metric's labels, and the value. None instead of labels: what was
counted together because there are too many series."""


def _is_system(sources: Sources, topic: str, group: str = "") -> str:
    system = sources.is_system_topic(topic) or group.upper().startswith(SYSTEM_GROUP_PREFIX)
    return _boolean(system)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _per_topic(field: str) -> Callable[[Sources], Iterator[Reading]]:
    def read(sources: Sources) -> Iterator[Reading]:
        # A copy, because others run between two pages.
        for (topic, message_type), stats in list(sources.broker.topics_in.items()):
            if not topic.startswith(UNCOUNTED):
                labels = (topic, message_type, _is_system(sources, topic))
                yield labels, getattr(stats, field)
        yield from _overflow(getattr(sources.broker.overflow_in, field))

    return read


def _per_group(field: str) -> Callable[[Sources], Iterator[Reading]]:
    def read(sources: Sources) -> Iterator[Reading]:
        for (group, topic), stats in list(sources.broker.groups_out.items()):
            if not topic.startswith(UNCOUNTED):
                labels = (topic, group, _is_system(sources, topic, group))
                yield labels, getattr(stats, field)
        yield from _overflow(getattr(sources.broker.overflow_out, field))

    return read


def _unread_deleted(sources: Sources) -> Iterator[Reading]:
    for (group, topic), stats in list(sources.broker.groups_out.items()):
        if stats.unread_deleted:
            yield (topic, group, _is_system(sources, topic, group)), stats.unread_deleted
    yield from _overflow(sources.broker.overflow_out.unread_deleted)


def _segments_deleted(sources: Sources) -> Iterator[Reading]:
    forced = sources.store.segments_forced
    yield ("expired",), sources.store.segments_deleted - forced
    yield ("disk_full",), forced


def _overflow(value: int) -> Iterator[Reading]:
    if value:
        yield None, value


def _producers(sources: Sources) -> Iterator[Reading]:
    counts = Counter((c.language, c.version) for c in sources.producers())
    for (language, version), count in counts.items():
        yield (language.lower(), describe(version).lower(), "remoting"), count


def _consumers(sources: Sources) -> Iterator[Reading]:
    for client, count in Counter(sources.consumers()).items():
        group = client.consumer_group
        yield (
            (
                group,
                client.language.lower(),
                describe(client.version).lower(),
                client.consume_mode,
                "remoting",
                _boolean(group.upper().startswith(SYSTEM_GROUP_PREFIX)),
            ),
            count,
        )


def _watermark(sources: Sources) -> Iterator[Reading]:
    for pool in sources.pools:
        yield (POOL_LABELS.get(pool.name, pool.name),), pool.depth


def _one(
    read: Callable[[Sources], float | Durations], *labels: str
) -> Callable[[Sources], Iterator[Reading]]:
    def read_one(sources: Sources) -> Iterator[Reading]:
        yield labels, read(sources)

    return read_one


class Metric(NamedTuple):
    """One line of the table; `labels` are those beyond the common ones."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    read: Callable[[Sources], Iterable[Reading]]


_IN: Final = ("topic", "message_type", "is_system")
_OUT: Final = ("topic", "consumer_group", "is_system")

METRICS: Final = (
    Metric(
        "rocketmq_messages_in_total",
        "counter",
        _IN,
        "Messages put by clients and acknowledged.",
        _per_topic("messages_in"),
    ),
    Metric(
        "rocketmq_throughput_in_total",
        "counter",
        _IN,
        "Bytes of the records that clients put.",
        _per_topic("bytes_in"),
    ),
    Metric(
        "rocketmq_messages_out_total",
        "counter",
        _OUT,
        "Messages delivered.",
        _per_group("messages_out"),
    ),
    Metric(
        "rocketmq_throughput_out_total",
        "counter",
        _OUT,
        "Bytes of the records delivered.",
        _per_group("bytes_out"),
    ),
    Metric(
        "rocketmq_producer_connections",
        "gauge",
        ("language", "version", "protocol_type"),
        "Connections of producers.",
        _producers,
    ),
    Metric(
        "rocketmq_consumer_connections",
        "gauge",
        ("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        "Connections of consumers.",
        _consumers,
    ),
    Metric(
        "rocketmq_processor_watermark",
        "gauge",
        ("processor",),
        "Requests read and not yet answered, per processor pool.",
        _watermark,
    ),
    Metric(
        "rocketmq_broker_permission",
        "gauge",
        (),
        "Permission bits of the broker: 4 read, 2 write.",
        _one(lambda s: s.broker_permission()),
    ),
    Metric("rocketmq_topic_number", "gauge", (), "Topics known.", _one(lambda s: s.topic_number())),
    Metric(
        "rocketmq_consumer_group_number",
        "gauge",
        (),
        "Consumer groups known.",
        _one(lambda s: s.consumer_group_number()),
    ),
    Metric(
        "rocketmq_storage_size_bytes",
        "gauge",
        STORAGE_LABELS,
        "Used space of the file system that the store lies on.",
        _one(lambda s: s.storage_size_bytes(), *STORAGE),
    ),
    Metric(
        "rocketmq_storage_flush_behind_bytes",
        "gauge",
        STORAGE_LABELS,
        "Bytes of the log written and not yet known to be on disk.",
        _one(lambda s: s.flush_behind_bytes(), *STORAGE),
    ),
    Metric(
        "rocketmq_storage_dispatch_behind_bytes",
        "gauge",
        STORAGE_LABELS,
        "Bytes of the log written and not yet in their consume queues.",
        _one(lambda s: s.dispatch_behind_bytes(), *STORAGE),
    ),
    Metric(
        "aerobee_index_behind_bytes",
        "gauge",
        (),
        "Bytes of the log that consumers see and queries by key do not yet.",
        _one(lambda s: s.store.index_behind_bytes),
    ),
    Metric(
        "aerobee_index_keys_total",
        "counter",
        (),
        "Keys of messages put into the index.",
        _one(lambda s: s.store.keys_indexed),
    ),
    Metric(
        "aerobee_connections",
        "gauge",
        (),
        "Connections open on the broker's ports.",
        _one(lambda s: s.remoting.connections),
    ),
    Metric(
        "aerobee_requests_total",
        "counter",
        (),
        "Requests read, whatever became of them.",
        _one(lambda s: s.remoting.requests),
    ),
    Metric(
        "aerobee_unread_deleted_messages_total",
        "counter",
        _OUT,
        "Messages deleted before the group had consumed them.",
        _unread_deleted,
    ),
    Metric(
        "aerobee_log_segments_deleted_total",
        "counter",
        ("reason",),
        "Log segments deleted because they were expired, or for space before their time.",
        _segments_deleted,
    ),
    Metric(
        "aerobee_loop_lag_seconds",
        "histogram",
        (),
        "By how much a timer of the event loop came late.",
        _one(lambda s: s.broker.loop.lag),
    ),
    Metric(
        "aerobee_fdatasync_seconds",
        "histogram",
        (),
        "Time of one sync of a store file.",
        _one(lambda s: s.store.sync_seconds),
    ),
)
"""The whole exposition, in this order; process_* figures follow."""


def _common_labels(sources: Sources) -> dict[str, str]:
    """What every series says about where it comes from; the operator cannot override our own."""
    return {
        **sources.labels,
        "cluster": sources.cluster,
        "node_id": sources.node_id,
        "node_type": "broker",
    }


def pages(sources: Sources) -> Iterator[bytes]:
    """The text of a scrape in pieces of at most PAGE_SAMPLES samples.

    Each piece is read and written when it is asked for, so a scrape of many series can let others
    run in between; counters of one scrape may therefore be a few turns of the loop apart.
    """
    for family, samples in _families(sources):
        head = True
        while page := list(islice(samples, PAGE_SAMPLES)):
            family.samples = page
            text = generate_latest(_Single(family))
            # A family has its HELP and TYPE once, before its first sample.
            yield text if head else text.split(b"\n", 2)[2]
            head = False


class _Single(Collector):
    def __init__(self, family: Family) -> None:
        self.family = family

    def collect(self) -> Iterable[Family]:
        return (self.family,)


def _families(sources: Sources) -> Iterator[tuple[Family, Iterator[Sample]]]:
    common = _common_labels(sources)
    for metric in METRICS:
        yield _family(metric), _samples(metric, common, sources)
    for extra in chain(_otel_families(), ProcessCollector(registry=None).collect()):
        samples, extra.samples = iter(extra.samples), []
        yield extra, samples


def _family(metric: Metric) -> Family:
    return Family(metric.name.removesuffix("_total"), metric.help, metric.kind)


def _samples(metric: Metric, common: Mapping[str, str], sources: Sources) -> Iterator[Sample]:
    scope = {"otel_scope_name": SCOPE} if metric.name.startswith("rocketmq_") else {}
    for values, reading in metric.read(sources):
        own = (
            {"otel_metric_overflow": "true"}
            if values is None
            else dict(zip(metric.labels, values, strict=True))
        )
        labels = {**common, **scope, **own}
        if isinstance(reading, Durations):
            yield from _buckets(metric.name, labels, reading)
        else:
            yield Sample(metric.name, labels, reading)


def _buckets(name: str, labels: Mapping[str, str], durations: Durations) -> Iterator[Sample]:
    total = 0
    for bound, count in zip((*durations.bounds, "+Inf"), durations.counts, strict=True):
        total += count
        yield Sample(f"{name}_bucket", {**labels, "le": str(bound)}, total)
    yield Sample(f"{name}_count", dict(labels), total)
    yield Sample(f"{name}_sum", dict(labels), durations.total_s)


def _otel_families() -> Iterator[Family]:
    """The two constant series of every OpenTelemetry exporter, as the Java broker has them."""
    for name, labels in (
        ("otel_scope", {"otel_scope_name": SCOPE}),
        ("target", {"service_name": "aerobee"}),
    ):
        family = Family(name, "Where these series come from.", "info")
        family.samples.append(Sample(f"{name}_info", labels, 1))
        yield family


def document() -> str:
    """The page docs/metrics.md, from the table."""
    lines = [
        "# Metrics",
        "",
        "Generated from `broker/metrics.py` by `python -m broker.metrics docs/metrics.md`;"
        " do not edit.",
        "",
        "`GET /metrics` on port 5557 (`metricsPromExporterPort`). Names, labels and label values of"
        " `rocketmq_*` are those of RocketMQ 5.x.",
        "Every `rocketmq_*` and `aerobee_*` series also carries `cluster`, `node_id` (the broker"
        ' name) and `node_type="broker"`;',
        f'`rocketmq_*` series carry `otel_scope_name="{SCOPE}"`. Booleans are "true" and "false".',
        "Series per topic and group end with their topic or group. Beyond"
        f" {SERIES_LIMIT:,} of them, new ones are counted together in one series with"
        ' `otel_metric_overflow="true"`.',
        "",
        "| name | type | labels of its own | meaning |",
        "|---|---|---|---|",
        *(
            f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels) or '–'}"
            f" | {metric.help} |"
            for metric in METRICS
        ),
        "",
        "On Linux the usual figures of the process stand beside them: `process_cpu_seconds_total`,"
        " `process_resident_memory_bytes`, `process_virtual_memory_bytes`,"
        " `process_start_time_seconds`, `process_open_fds`, `process_max_fds`.",
        "`otel_scope_info` and `target_info` are constant, for dashboards that join on them.",
        "",
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Write the page, or with --check say by the exit code whether it is up to date."""
    check, *rest = arguments if arguments[:1] == ["--check"] else ["", *arguments]
    path = Path(rest[0]) if rest else Path("docs/metrics.md")
    if not check:
        path.write_text(document(), encoding="utf-8")
        return 0
    if path.exists() and path.read_text(encoding="utf-8") == document():
        return 0
    sys.stderr.write(f"{path} is not what broker/metrics.py says: run python -m broker.metrics\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
