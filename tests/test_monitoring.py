"""conf/prometheus and conf/grafana against a real Prometheus and a broker that has work."""

from __future__ import annotations

import json
import re
import socket
import threading
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from aerobee import ConsumeFrom, Message, ReceivedMessage
from aerobee.admin import GroupConfig
from aerobee.blocking import AdminClient, PopConsumer, Producer, PullConsumer
from aerobee.store.format.ha import FrameReader, encode_report
from tests.dashboards import DASHBOARDS, expressions, files
from tests.kit.broker_process import BrokerProcess
from tests.kit.prometheus import promtool, serving
from tests.kit.raw_client import RawConnection, pull_fields
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.prometheus import Prometheus

CONF = Path(__file__).parents[1] / "conf"
ALERTS = CONF / "prometheus" / "alerts.yml"
NODE = 'cluster="C",node_id="b",node_type="broker",instance="i",job="aerobee"'
PULL = 11
LATENCY = "rocketmq_rpc_latency_milliseconds"
PAIR = f'{NODE},consumer_group="g",topic="t",is_system="false"'


class Fires(NamedTuple):
    """Series, as promtool writes them, that make an alert fire at some minute."""

    series: dict[str, str]
    minute: int = 20


def one(name: str, values: str, labels: str = NODE) -> Fires:
    """A single series."""
    return Fires({f"{name}{{{labels}}}": values})


CASES = {
    "AerobeeDown": one("up", "0x60"),
    # It ends soon after each start: seldom seen down for long.
    "AerobeeBrokerDown": one("aerobee_broker_up", "0 0 1 0 0 0 1 0x60", f'{NODE},broker="b-1"'),
    "AerobeeStoreRefusesPuts": one("aerobee_store_refuses_puts", "1x60"),
    "AerobeeDiskFilling": Fires(
        {
            f"aerobee_storage_available_bytes{{{NODE}}}": "20x60",
            f"aerobee_storage_capacity_bytes{{{NODE}}}": "100x60",
        }
    ),
    "AerobeeDiskAlmostFull": Fires(
        {
            f"aerobee_storage_available_bytes{{{NODE}}}": "10x60",
            f"aerobee_storage_capacity_bytes{{{NODE}}}": "100x60",
        }
    ),
    "AerobeeFlushBehind": one("rocketmq_storage_flush_behind_bytes", "300000000x60"),
    "AerobeeDispatchBehind": one("rocketmq_storage_dispatch_behind_bytes", "100000000x60"),
    "AerobeeSlowSync": Fires(
        {
            f'aerobee_fdatasync_seconds_bucket{{{NODE},le="0.5"}}': "0+9x60",
            f'aerobee_fdatasync_seconds_bucket{{{NODE},le="1.0"}}': "0+10x60",
            f'aerobee_fdatasync_seconds_bucket{{{NODE},le="+Inf"}}': "0+10x60",
        }
    ),
    "AerobeeLoopStalls": Fires(
        {
            f'aerobee_loop_lag_seconds_bucket{{{NODE},le="0.5"}}': "0+9x60",
            f"aerobee_loop_lag_seconds_count{{{NODE}}}": "0+10x60",
        }
    ),
    "AerobeeRefusesRequests": one(
        "aerobee_pool_refused_total", "0+600x60", f'{NODE},processor="send"'
    ),
    "AerobeeSlowSends": Fires(
        {
            f'{LATENCY}_bucket{{{NODE},request_code="send_message_v2",le="1000.0"}}': "0+9x60",
            f'{LATENCY}_bucket{{{NODE},request_code="send_message_v2",le="2000.0"}}': "0+10x60",
            f'{LATENCY}_bucket{{{NODE},request_code="send_message_v2",le="+Inf"}}': "0+10x60",
        }
    ),
    "AerobeeRequestsFail": one(
        f"{LATENCY}_count",
        "0+60x60",
        f'{NODE},request_code="send_message",response_code="system_error"',
    ),
    "AerobeeRefusesConnections": one("aerobee_connections_refused_total", "0+1x60"),
    "AerobeeNearLimit": Fires(
        {
            f'aerobee_limit_used{{{NODE},limit="maxTopics"}}': "9x60",
            f'aerobee_limit{{{NODE},limit="maxTopics"}}': "10x60",
        }
    ),
    "AerobeeFewDescriptorsLeft": Fires(
        {f"process_open_fds{{{NODE}}}": "90x60", f"process_max_fds{{{NODE}}}": "100x60"}
    ),
    "AerobeeDamagedRecords": one("aerobee_damaged_records_total", "0+1x60"),
    "AerobeeMessagesSetAside": Fires(
        # It appears with the first event: a rate alone would say nothing.
        {f'aerobee_set_aside_messages_total{{{NODE},service="timers"}}': "_x10 1x50"}
    ),
    "AerobeeMessagesUnreadable": one(
        "aerobee_unreadable_messages_total", "1x60", f'{NODE},service="pull"'
    ),
    "AerobeeSlaveGone": one("aerobee_replication_slaves", "2x8 1x50"),
    "AerobeeSlaveBehind": one(
        "aerobee_replication_slave_lag_seconds", "90x60", f'{NODE},slave="10.0.0.2"'
    ),
    "AerobeeSlaveStopped": one("aerobee_replication_state", "1x60", f'{NODE},state="diverged"'),
    "AerobeeSlaveAlone": one("aerobee_replication_state", "1x60", f'{NODE},state="unreachable"'),
    "AerobeeGroupWithoutMaster": one("aerobee_failover_master_known", "0x60"),
    "AerobeeGroupOfFew": one("aerobee_failover_sync_set_members", "3x5 2x55"),
    "AerobeeTimersLate": one("rocketmq_timer_dequeue_latency_milliseconds", "60x60"),
    "AerobeeGroupFallsBehind": one("rocketmq_consumer_lag_latency_milliseconds", "600000x60", PAIR),
    "AerobeeGroupHasNoMembers": one("rocketmq_consumer_lag_messages", "7x60", PAIR),
    "AerobeeDeadLetters": Fires({f"rocketmq_send_to_dlq_messages_total{{{PAIR}}}": "_x15 1x50"}),
    "AerobeeUnreadMessagesDeleted": Fires(
        {f"aerobee_unread_deleted_messages_total{{{PAIR}}}": "_x15 5x50"}
    ),
}


def test_the_dashboards_are_those_of_the_table_of_panels() -> None:
    for path, text in files():
        assert path.read_text() == text, f"{path.name}: python -m tests.dashboards --write"


def test_rules_and_settings_are_what_prometheus_takes() -> None:
    for arguments in (
        ("check", "rules", str(ALERTS)),
        ("check", "config", str(CONF / "prometheus" / "prometheus.yml")),
        ("check", "config", str(CONF / "prometheus" / "compose.yml")),
    ):
        done = promtool(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_says_what_each_alert_means() -> None:
    page = (CONF.parent / "docs/operations/monitor.md").read_text("utf-8")
    table = page.partition("## What the alerts mean")[2].partition("\n\nUnder systemd")[0]
    named = re.findall(r"\b(Aerobee[A-Z]\w+)", table)
    assert sorted(named) == sorted(re.findall(r"alert: (\w+)", ALERTS.read_text()))


def test_each_alert_fires(tmp_path: Path) -> None:
    alerts = re.findall(r"alert: (\w+)", ALERTS.read_text())
    assert sorted(alerts) == sorted(CASES), "an alert without a case, or the other way round"
    cases = [
        {
            "name": alert,
            "interval": "1m",
            "input_series": [{"series": s, "values": v} for s, v in case.series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                    "eval_time": f"{case.minute}m",
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ],
        }
        for alert, case in CASES.items()
    ]
    suite = tmp_path / "cases.yml"
    suite.write_text(json.dumps({"rule_files": [str(ALERTS)], "tests": cases}))
    done = promtool("test", "rules", str(suite))
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def following(broker: BrokerProcess) -> Iterator[None]:
    """A slave that reports every second that it has everything."""
    over = threading.Event()

    def follow() -> None:
        frames, end = FrameReader(), 0
        with socket.create_connection(("127.0.0.1", broker.ports.ha), timeout=1) as master:
            while not over.is_set():
                master.sendall(encode_report(end))
                with suppress(TimeoutError):
                    for frame in frames.feed(master.recv(1 << 16)):
                        end = frame.physical_offset + len(frame.data)

    slave = threading.Thread(target=follow)
    slave.start()
    try:
        yield
    finally:
        over.set()
        slave.join()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose clients go on working until the module ends."""
    root = tmp_path_factory.mktemp("monitored")
    with BrokerProcess(data=root / "data", settings={"haPeers": "127.0.0.1"}) as broker:
        names = broker.namesrv_address
        with (
            following(broker),
            AdminClient(names) as admin,
            Producer(names, group="P") as producer,
            PullConsumer("G", names, start_from=ConsumeFrom.FIRST, retry=True) as consumer,
            PopConsumer("POPS", names, start_from=ConsumeFrom.FIRST) as pops,
        ):
            admin.create_topic("T", queues=2)
            admin.create_group(GroupConfig(name="G"))
            for number in range(20):
                producer.send(Message("T", b"%d" % number))
            producer.send(Message("T", b"later", delay=3_600))
            consumer.subscribe("T")
            got: list[ReceivedMessage] = []
            while not got:
                got = consumer.poll()
            consumer.nack(got[0], level=-1)
            pops.receive("T", max_messages=4, wait=5)
            with RawConnection(broker.address) as connection:
                assert connection.call(PULL, pull_fields("G", "no such", 0, 0)).code != 0
            yield broker


@pytest.fixture(scope="module")
def prometheus(
    broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    target = f"127.0.0.1:{broker.ports.metrics}"
    with serving(folder, target, ALERTS) as server:
        eventually(lambda: server.scrapes() >= 3, within_s=60, what="three scrapes")
        yield server


ABSENT = {"rocketmq_half_messages"}
"""Series that need a transaction which stays open."""


def test_every_query_of_every_dashboard_gives_a_series(prometheus: Prometheus) -> None:
    def without() -> list[str]:
        return [
            f"{dashboard.name}: {expression}"
            for dashboard in DASHBOARDS
            for expression in expressions(dashboard)
            if not any(name in expression for name in ABSENT)
            and not prometheus.series(filled(expression))
        ]

    eventually(lambda: not without(), within_s=30, what=f"series of all: {without()}")


def filled(expression: str) -> str:
    """An expression as Grafana sends it with all values chosen."""
    return re.sub(r"\$(cluster|node|topic|group)\b", ".*", expression).replace(
        "$__rate_interval", "1m"
    )


def test_a_healthy_broker_fires_no_alert_but_that_of_its_dead_letter(
    prometheus: Prometheus,
) -> None:
    groups = prometheus.get("rules")["groups"]
    wrong = [rule for group in groups for rule in group["rules"] if rule["health"] == "err"]
    assert not wrong
    firing = {
        alert["labels"]["alertname"]
        for alert in prometheus.get("alerts")["alerts"]
        if alert["state"] == "firing"
    }
    assert firing == {"AerobeeDeadLetters"}


def test_promtool_finds_nothing_wrong_with_names_of_our_own(broker: BrokerProcess) -> None:
    url = f"http://127.0.0.1:{broker.ports.metrics}/metrics"
    with urllib.request.urlopen(url, timeout=10) as page:
        text = page.read().decode()
    done = promtool("check", "metrics", stdin=text)
    complaints = (done.stdout + done.stderr).splitlines()
    ours = [line for line in complaints if not line.startswith("rocketmq_")]
    assert not ours
    assert all("use base unit" in line for line in complaints), "RocketMQ's names are in ms"
