"""The metrics of each process that serves, a broker or a name server alone: connections, requests,
access control, TLS and the event loop. Source: semantics §20.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.metrics.metric import Metric, single
from aerobee.broker.metrics.readings import REQUEST_CODES, RESPONSE_CODES, boolean
from aerobee.remoting.latency import BOUNDS_MS, LatencyKey
from aerobee.store.stats import Durations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aerobee.broker.metrics.figures import ServerSources
    from aerobee.broker.metrics.metric import Reading
    from aerobee.remoting.latency import Latency


def rpc_latency(sources: ServerSources) -> Iterator[Reading]:
    """The latency of requests in ms, by their code and that of their answer."""
    latencies = sources.remoting.latencies
    for fields, latency in list(latencies.kinds.items()):
        kind = LatencyKey._make(fields)
        labels = (
            "remoting",
            _word(REQUEST_CODES, kind.request_code),
            _word(RESPONSE_CODES, kind.response_code),
            boolean(kind.held),
            kind.result,
        )
        yield labels, _in_ms(latency)
    if any(latencies.overflow.counts):
        yield None, _in_ms(latencies.overflow)


def _word(words: Mapping[int, str], code: int) -> str:
    """A code as RocketMQ's exporter names it; an unknown one as its number."""
    return words.get(code) or str(code)


def _in_ms(latency: Latency) -> Durations:
    durations = Durations(BOUNDS_MS)
    durations.counts = list(latency.counts)
    durations.total_s = latency.total_s * 1_000
    return durations


def handshakes(sources: ServerSources) -> Iterator[Reading]:
    """TLS handshakes by result."""
    yield ("done",), sources.remoting.tls_handshakes
    for reason, count in sources.remoting.tls_failed.items():
        yield (reason,), count


def access_refused(sources: ServerSources) -> Iterator[Reading]:
    """Requests that access control refused, by what was wrong."""
    access = sources.access
    yield ("not_authenticated",), access.not_authenticated
    yield ("not_authorized",), access.not_authorized


def connections_cut(sources: ServerSources) -> Iterator[Reading]:
    """Connections that had to go, by reason."""
    yield ("late",), sources.remoting.connections_late
    yield ("displaced",), sources.remoting.connections_displaced


def certificate_ends(sources: ServerSources) -> Iterator[Reading]:
    """When the certificate of the listeners ends, if they have a valid one."""
    if (expires_s := sources.remoting.tls_expires_s) is not None:
        yield (), expires_s


def build_info(sources: ServerSources) -> Iterator[Reading]:
    """Always 1; what there is to say is in the labels."""
    yield tuple(sources.build), 1


SERVER_METRICS: Final[tuple[Metric[ServerSources], ...]] = (
    Metric(
        "aerobee_build_info",
        "gauge",
        ("version", "python"),
        "Always 1: the version of Aerobee that runs, and of Python.",
        build_info,
    ),
    single(
        "aerobee_start_time_seconds",
        "gauge",
        "When this process began to serve, in seconds since 1970: time() minus it is the uptime.",
        lambda s: s.began_ms / 1000,
    ),
    Metric(
        "rocketmq_rpc_latency_milliseconds",
        "histogram",
        ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
        "Time from the arrival of a request, waiting in the kernel included, until its answer was"
        " sent.",
        rpc_latency,
    ),
    single(
        "aerobee_connections",
        "gauge",
        "Connections open on the broker's ports.",
        lambda s: s.remoting.connections,
    ),
    single(
        "aerobee_connections_refused_total",
        "counter",
        "Connections closed as they came: maxConnections, maxConnectionsOfAddress, or no"
        " descriptors but the store's.",
        lambda s: s.remoting.connections_refused,
    ),
    Metric(
        "aerobee_connections_cut_total",
        "counter",
        ("reason",),
        "Connections closed because no request of them was let pass within firstRequestTimeout"
        " (late), or for a peer that needed the place (displaced).",
        connections_cut,
    ),
    Metric(
        "aerobee_access_refused_total",
        "counter",
        ("reason",),
        "Requests that access control refused: no known account has signed them"
        " (not_authenticated), or it lacks the right (not_authorized).",
        access_refused,
    ),
    single(
        "aerobee_access_dropped_total",
        "counter",
        "Those among them that were one-way: their senders were not told.",
        lambda s: s.access.dropped,
    ),
    single(
        "aerobee_tls_connections",
        "gauge",
        "Connections through TLS open on the broker's ports, of aerobee_connections.",
        lambda s: s.remoting.tls_connections,
    ),
    Metric(
        "aerobee_tls_handshakes_total",
        "counter",
        ("result",),
        "TLS handshakes that were done, and connections closed before: plain ones where TLS is"
        " enforced, no trust in a certificate, no common protocol, too late, too many (crowded).",
        handshakes,
    ),
    Metric(
        "aerobee_tls_certificate_ends_timestamp_seconds",
        "gauge",
        (),
        "When the certificate of the listeners ends. Missing without one that is valid.",
        certificate_ends,
    ),
    single(
        "aerobee_unsent_bytes",
        "gauge",
        "Bytes of answers that peers have not taken, on all connections together.",
        lambda s: s.remoting.unsent_bytes,
    ),
    single(
        "aerobee_requests_too_fast_total",
        "counter",
        "Requests refused because their address or user sends more than the settings allow.",
        lambda s: s.remoting.requests_too_fast,
    ),
    single(
        "aerobee_requests_total",
        "counter",
        "Requests read, whatever became of them.",
        lambda s: s.remoting.requests,
    ),
    single(
        "aerobee_loop_lag_seconds",
        "histogram",
        "By how much a timer of the event loop came late.",
        lambda s: s.loop.lag,
    ),
    single(
        "aerobee_loop_lag_longest_seconds",
        "gauge",
        "The longest of these, since the start.",
        lambda s: s.loop.lag.max_s,
    ),
    single(
        "aerobee_loop_stalls_total",
        "counter",
        "How often the event loop stood still for longer than loopStallMillis.",
        lambda s: s.loop.stalls,
    ),
)
"""The metrics of each process that serves, a name server alone as well."""
