"""`aerobee cluster`, `connections`, `broker config` and `top` against a real broker."""

import zlib

import pytest

from aerobee.blocking import PullConsumer
from tests.aerobee.cli.conftest import Call
from tests.conftest import AnyBroker
from tests.kit.ports import free_port
from tests.kit.raw_client import RawConnection

pytestmark = pytest.mark.service


def test_brokers_are_shown_with_their_figures(call: Call, broker: AnyBroker) -> None:
    (row,) = call("cluster", "info", "--json").document
    assert (row["id"], row["address"]) == (0, broker.address)
    assert row["version"].startswith("V5")
    lines = call("cluster", "info").out.splitlines()
    assert lines[0].split("\t")[:2] == ["cluster", "broker"]


def test_one_broker_that_does_not_answer_hides_no_other(call: Call, broker: AnyBroker) -> None:
    """The first command of a person in trouble: it showed nothing then."""
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{}},"filterServerList":[]}'
    there = {
        "brokerName": "gone",
        "brokerAddr": f"127.0.0.1:{free_port()}",
        "clusterName": "DefaultCluster",
        "brokerId": 0,
    }
    more = {"haServerAddr": there["brokerAddr"], "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF}
    with RawConnection(broker.namesrv_address) as names:
        assert names.call(103, there | more, body).code == 0
        done = call("cluster", "info", "--json")
        assert names.call(104, there).code == 0
    versions = {row["broker"]: row["version"] for row in done.document}
    assert versions.pop("gone") is None
    assert all(version.startswith("V5") for version in versions.values())
    assert len(versions) == 1
    assert (done.code, f"to {there['brokerAddr']}" in done.err) == (4, True)


def test_who_is_connected_is_shown(call: Call, broker: AnyBroker, topic: str) -> None:
    call("topic", "create", topic)
    with PullConsumer(f"g-{topic}", broker.namesrv_address) as consumer:
        consumer.subscribe(topic)
        done = call("connections", "--group", f"g-{topic}", "--json")
        assert [(row["kind"], row["language"]) for row in done.document] == [("consumer", "PYTHON")]
        done = call("connections", "--jsonl")
        assert f"g-{topic}" in done.out
        assert "producers are left out" in done.err or not done.err


def test_settings_of_a_running_broker_are_shown(call: Call) -> None:
    done = call("broker", "config", "get", "brokerName", "--json")
    assert [row["key"] for row in done.document] == ["brokerName"]
    assert len(call("broker", "config", "get").out.splitlines()) > 50
    assert call("broker", "config", "get", "nonsense").code == 2
    assert call("broker", "config", "set", "nonsense").code == 2
    assert call("broker", "config", "set", "deleteWhen=05", "trace_on=true").out.splitlines() == [
        "deleteWhen=05",
        "trace_on=true",
    ]
    assert call("broker", "config", "get", "delete_when", "--json").document == [
        {"key": "deleteWhen", "value": "05"}
    ]
    refused = call("broker", "config", "set", "deleteWhen=06", "brokerName=x")
    assert (refused.code, "can not change while running" in refused.err) == (1, True)
    assert call("broker", "config", "get", "--broker", "nobody").code == 4


def test_top_in_a_pipe_is_one_look(call: Call, topic: str) -> None:
    call("topic", "create", topic)
    call("group", "create", f"g-{topic}")
    found = call("top", "--json").document
    assert len(found["brokers"]) == 1
    assert f"g-{topic}" in [row["group"] for row in found["groups"]]
    assert call("top", "--sort", "group").code == 0
    only = call("top", "--filter", f"G-{topic}", "--json").document
    assert [row["group"] for row in only["groups"]] == [f"g-{topic}"]
    refused = call("top", "--sort", "weight")
    assert refused.code == 2
    assert "the columns are group, members, lag" in refused.err


def test_top_shows_what_is_sent_to_topics_and_who_is_connected(
    call: Call, broker: AnyBroker, topic: str
) -> None:
    call("topic", "create", topic)
    found = call("top", "--view", "topics", "--json").document
    assert {"topic": topic, "in_per_s": 0.0, "bytes_per_s": 0.0} in found["topics"]
    with PullConsumer(f"g-{topic}", broker.namesrv_address) as consumer:
        consumer.subscribe(topic)
        found = call("top", "--view", "connections", "--json").document
        assert f"g-{topic}" in [row["group"] for row in found["connections"]]
