"""Every name, label, bucket and word that the Java broker 5.5.0 tells Prometheus is ours, too."""

from __future__ import annotations

import json

from aerobee.broker.counters.broker_stats import DELAY_BOUNDS_S, FINISH_BOUNDS_S, SIZE_BOUNDS_BYTES
from aerobee.broker.counters.creation_times import BOUNDS_MS as CREATION_BOUNDS_MS
from aerobee.broker.metrics import metric_table, metrics
from aerobee.broker.metrics.readings import REQUEST_CODES, RESPONSE_CODES
from aerobee.remoting.latency import BOUNDS_MS, ONEWAY_RESULT, SUCCESS_RESULT, UNSENT_RESULT
from tests.interop.java_metrics import RECORDED

JAVA = json.loads(RECORDED.read_bytes())
COMMON = {"cluster", "node_id", "node_type", "otel_scope_name"}


def test_every_metric_of_the_java_broker_is_here_with_its_labels() -> None:
    ours = {metric.name: metric for metric in metric_table.METRICS}
    missing = JAVA.keys() - ours.keys() - {"target_info"}
    assert missing <= metrics.NOT_SERVED.keys()
    for name in JAVA.keys() & ours.keys():
        metric = ours[name]
        labels = COMMON | {*metric.labels} | metrics.NOT_LABELLED.get(name, set())
        assert (name, JAVA[name]["type"], set(JAVA[name]["labels"])) == (name, metric.kind, labels)


def test_every_bucket_of_the_java_broker_is_ours() -> None:
    bounds = {
        "rocketmq_rpc_latency_milliseconds": BOUNDS_MS,
        "rocketmq_topic_create_execution_time_milliseconds": CREATION_BOUNDS_MS,
        "rocketmq_consumer_group_create_execution_time_milliseconds": CREATION_BOUNDS_MS,
        "rocketmq_message_size": SIZE_BOUNDS_BYTES,
        "rocketmq_finish_message_latency_milliseconds": FINISH_BOUNDS_S,
        "rocketmq_delay_message_latency_seconds": DELAY_BOUNDS_S,
    }
    histograms = {name for name, one in JAVA.items() if one["buckets"]}
    assert histograms - metrics.NOT_SERVED.keys() == bounds.keys()
    for name, ours in bounds.items():
        assert JAVA[name]["buckets"] == list(ours), name


def test_requests_and_their_ends_have_the_words_of_the_java_broker() -> None:
    words = JAVA["rocketmq_rpc_latency_milliseconds"]["values"]
    assert set(words["request_code"]) - {"9999"} <= set(REQUEST_CODES.values())
    assert set(words["response_code"]) <= set(RESPONSE_CODES.values())
    assert set(words["result"]) == {SUCCESS_RESULT, ONEWAY_RESULT, UNSENT_RESULT}
