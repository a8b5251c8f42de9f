"""What turns the table of metrics into the text that Prometheus reads.

In: `Sources`, plain counters and calls that answer at once. Out: pages of the text format. Nothing
is counted here and nothing is kept between two scrapes. This file alone imports prometheus_client.

A metric is a line of `METRICS`. Source: semantics §20.1.
"""

from __future__ import annotations

import sys
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from aerobee.broker.metric_table import METRICS
from aerobee.broker.stats import SERIES_LIMIT
from aerobee.store.stats import Durations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from aerobee.broker.metric_table import Metric
    from aerobee.broker.stats import Sources

__all__ = ["CONTENT_TYPE", "METRICS", "PAGE_SAMPLES", "document", "main", "pages"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PAGE_SAMPLES: Final = 100
"""Samples per page: what is put into text in one go, about 1 ms, before others get their turn."""

SCOPE: Final = "broker-meter"
"""The OpenTelemetry scope that the Java broker names on each of its series."""


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
        "Generated from `broker/metrics.py` by `python -m aerobee.broker.metrics docs/metrics.md`;"
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
    sys.stderr.write(f"{path} is out of date: run python -m aerobee.broker.metrics {path}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
