"""Renders the table of metrics as the text that Prometheus reads.

In: sources, plain counters and calls that answer at once. Out: pages of the text format. Nothing
is counted here and nothing is kept between two scrapes. This file alone imports prometheus_client.

A metric is a line of `METRICS`, or for a name server alone of its own table. Source: semantics
§20.1.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from aerobee.broker.metrics.metric_table import METRICS
from aerobee.store.stats import Durations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aerobee.broker.metrics.figures import ServerSources
    from aerobee.broker.metrics.metric import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PAGE_SAMPLES: Final = 100
"""Samples per page: rendered in one step, about 1 ms, before others get their turn."""

SCOPE: Final = "broker-meter"
"""The OpenTelemetry scope that the Java broker names on each of its series."""

NOT_SERVED: Final = {
    "rocketmq_pop_buffer_scan_time_consume_milliseconds": "check points and acknowledgements of"
    " pops are not buffered, so no buffer is scanned",
    "rocketmq_rocksdb_*": "consume queues and timers are files, not RocksDB",
    "rocketmq_tiered_store_*": "there is no tiered storage",
    "rocketmq_proxy_up": "it is a metric of RocketMQ's proxy, not of its broker",
}
"""RocketMQ's metrics that are not here, and why."""
NOT_LABELLED: Final = {
    "rocketmq_messages_out_total": {"is_retry"},
    "rocketmq_throughput_out_total": {"is_retry"},
}
"""Labels of RocketMQ's that are not here: it has them on some series of a metric, those of pops."""

SHORT_NAMES: Final = {
    metric.name: metric.name.rpartition("_")[0]
    for metric in METRICS
    if metric.name.startswith("rocketmq_")
    and metric.name.endswith(("_milliseconds", "_seconds", "_storage_size_bytes"))
}
"""The names without unit of RocketMQ 5.1.0 to 5.1.3, which `metricsLegacyNames` adds."""


def _common_labels(sources: ServerSources) -> dict[str, str]:
    """The labels of every series about its origin; the operator cannot override our own."""
    return {
        **sources.labels,
        "cluster": sources.cluster,
        "node_id": sources.node_id,
        "node_type": sources.node_type,
    }


def pages(sources: ServerSources) -> Iterator[bytes]:
    """The text of a scrape in pieces of at most PAGE_SAMPLES samples.

    Each piece is read and rendered when it is requested, so a scrape of many series can let others
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


def _families(sources: ServerSources) -> Iterator[tuple[Family, Iterator[Sample]]]:
    common = _common_labels(sources)
    for metric in sources.metrics:
        yield _family(metric), _samples(metric, common, sources)
        short = SHORT_NAMES.get(metric.name)
        if short is not None and sources.short_names:
            named = metric._replace(name=short)
            yield _family(named), _samples(named, common, sources)
    for extra in chain(_otel_families(), ProcessCollector(registry=None).collect()):
        samples, extra.samples = iter(extra.samples), []
        yield extra, samples


def _family(metric: Metric[Any]) -> Family:
    return Family(metric.name.removesuffix("_total"), metric.help, metric.kind)


def _samples(
    metric: Metric[Any], common: Mapping[str, str], sources: ServerSources
) -> Iterator[Sample]:
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
    for bound, count in zip((*map(float, durations.bounds), "+Inf"), durations.counts, strict=True):
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
