"""What the Java broker 5.5.0 tells Prometheus: its metrics with their labels and buckets.

    python -m tests.interop.java_metrics

runs it through sends, pulls, pops, transactions, timers, hand-backs and refusals and writes
`java_metrics.json`; to be run again for a new RocketMQ version. It takes about a minute.
"""

from __future__ import annotations

import json
import tempfile
import urllib.request
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from aerobee.admin import GroupConfig
from aerobee.blocking import (
    AdminClient,
    ConsumeFrom,
    Message,
    PopConsumer,
    Producer,
    PullConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from tests.kit.java import toolkit
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.ports import HOST, free_port
from tests.kit.raw_client import RawConnection
from tests.kit.waiting import eventually

RECORDED: Final = Path(__file__).with_name("java_metrics.json")
VALUES_OF: Final = (
    "request_code",
    "response_code",
    "result",
    "is_long_polling",
    "protocol_type",
    "invocation_status",
    "processor",
    "consume_mode",
    "message_type",
    "timer_bound_s",
)
"""Labels whose values are RocketMQ's own words."""
UNKNOWN_CODE, PULL_MESSAGE, UPDATE_TOPIC = 9_999, 11, 17
LATE: Final = {"rocketmq_timer_dequeue_total", "rocketmq_send_to_dlq_messages_total"}
LATE_WITHIN_S: Final = 90.0


def work(names: str, broker: str) -> None:
    """Make each kind of request once; every client ends before this returns."""
    with (
        AdminClient(names) as admin,
        Producer(names, group="P") as producer,
        TransactionProducer(names, group="TP", checker=_undecided) as transactions,
        PullConsumer("G", names, start_from=ConsumeFrom.FIRST, retry=True) as consumer,
        PopConsumer("POPS", names, start_from=ConsumeFrom.FIRST) as pops,
        RawConnection(broker) as raw,
    ):
        admin.create_topic("T", queues=2)
        admin.create_group(GroupConfig(name="G"))
        raw.call(UPDATE_TOPIC, {"topic": "not a name"})
        for number in range(20):
            producer.send(Message("T", b"%d" % number))
        producer.send_oneway(Message("T", b"one-way"))
        producer.send(Message("T", b"later", delay=20))
        producer.send(Message("T", b"later", delay_level=1))
        half = Message("T", b"half")
        transactions.send_in_transaction(half, lambda _: TransactionState.COMMIT)
        transactions.send_in_transaction(half, lambda _: TransactionState.ROLLBACK)
        consumer.subscribe("T")
        got: list[ReceivedMessage] = []
        while not got:
            got = consumer.poll()
        consumer.nack(got[0], level=-1)
        consumer.commit()
        pops.ack(pops.receive("T", max_messages=4, wait=5)[0])
        raw.call(UNKNOWN_CODE)
        raw.call(PULL_MESSAGE, {"topic": "T"})


def _undecided(_: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


def scrape(port: int) -> str:
    """The text of a scrape."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as page:
        text: str = page.read().decode()
    return text


def families(text: str) -> dict[str, dict[str, Any]]:
    """Name → type, labels, buckets, and the values of those labels that have a fixed set."""
    found: dict[str, dict[str, Any]] = {}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {key for sample in family.samples for key in sample.labels}
        values = {
            key: sorted({sample.labels[key] for sample in family.samples if key in sample.labels})
            for key in sorted(labels & set(VALUES_OF))
        }
        bounds = {s.labels["le"] for s in family.samples if "le" in s.labels} - {"+Inf"}
        found[name] = {
            "type": family.type,
            "labels": sorted(labels - {"le"}),
            "buckets": sorted(map(float, bounds)),
            "values": values,
        }
    return found


def main() -> None:
    """Write down what the Java broker serves."""
    kit = toolkit("5.5.0")
    with tempfile.TemporaryDirectory() as home:
        root = Path(home)
        names = JavaNamesrv(kit, root / "names")
        port = free_port()
        broker = JavaBroker(
            toolkit=kit,
            data=root / "data",
            home=root / "broker",
            namesrv_address=names.address,
            settings={
                "timerWheelEnable": "true",
                "metricsExporterType": "PROM",
                "metricsPromExporterPort": port,
                "traceTopicEnable": "true",
            },
        )
        with broker:
            work(names.address, broker.address)
            eventually(
                lambda: families(scrape(port)).keys() >= LATE,
                within_s=LATE_WITHIN_S,
                what="what was delayed has come",
            )
            text = scrape(port)
        names.stop()
    RECORDED.write_text(json.dumps(families(text), indent=1) + "\n")


if __name__ == "__main__":
    main()
