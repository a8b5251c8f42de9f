"""`aerobee broker clean`, `aerobee broker write-permission` and `aerobee cluster kv`."""

import pytest

from tests.aerobee.cli.conftest import Call
from tests.kit.waiting import eventually

pytestmark = pytest.mark.service


@pytest.mark.parametrize("what", ["files", "queues", "topics"])
def test_brokers_clean_when_told_and_only_then(call: Call, what: str) -> None:
    (row,) = call("broker", "clean", what, "--dry-run", "--json").document
    assert (row["what"], row["asked"]) == (what, False)
    assert call("broker", "clean", what, given="n\n").code == 1
    (row,) = call("broker", "clean", what, "--yes", "--broker", row["broker"], "--json").document
    assert row["asked"]
    assert call("broker", "clean", what, "--yes").out.startswith("broker\twhat\tasked\n")
    done = call("broker", "clean", what, "--broker", "nobody", "--yes")
    assert done.code == 4
    assert done.err.startswith("aerobee: the name server knows no master of nobody; it knows: ")


def test_producers_leave_a_broker_and_come_back(call: Call, topic: str) -> None:
    call("topic", "create", topic)
    (row,) = call("broker", "clean", "topics", "--dry-run", "--json").document
    broker = row["broker"]
    assert call("broker", "write-permission", broker, "off", given="n\n").code == 1
    answer = call("broker", "write-permission", broker, "off", "--yes", "--json").document
    assert (answer["write"], answer["topics"] > 0) == (False, True)
    assert call("produce", topic, "x", "--count", "1").code != 0
    assert "is on" in call("broker", "write-permission", broker, "on").out
    eventually(
        lambda: call("produce", topic, "x", "--count", "1").code == 0,
        within_s=10.0,
        what="producers are back",
    )
    assert call("broker", "write-permission", "nobody", "on").code == 4


def test_name_servers_keep_what_they_are_told(call: Call) -> None:
    place = ("ORDER_TOPIC_CONFIG", "Orders")
    assert call("cluster", "kv", "list", place[0], "--json").document == []
    answer = call("cluster", "kv", "set", *place, "b:4", "--dry-run", "--json").document
    assert answer == {"key": "Orders", "before": None, "after": "b:4", "changed": False}
    assert call("cluster", "kv", "set", *place, "b:4", "--json").document["changed"]
    assert call("cluster", "kv", "list", place[0], "--json").document == [
        {"key": "Orders", "value": "b:4"}
    ]
    assert call("cluster", "kv", "delete", *place, given="n\n").code == 1
    answer = call("cluster", "kv", "delete", *place, "--yes", "--json").document
    assert (answer["before"], answer["after"]) == ("b:4", None)
    assert call("cluster", "kv", "list", place[0], "--json").document == []
