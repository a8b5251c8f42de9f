"""`aerobee topic` against a real broker."""

import json
from dataclasses import replace

import pytest

from aerobee.admin import ClusterInfo
from aerobee.blocking import AdminClient
from aerobee.client.system_names import is_system_topic
from tests.aerobee.cli.conftest import Call, Run

pytestmark = pytest.mark.service


def test_a_topic_is_made_and_listed(run: Run, topic: str) -> None:
    done = run("topic", "create", topic, "--queues", "3", "--perm", "rw")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"topic {topic}: 3 queues per broker, rw\n"
    assert topic in run("topic", "list").stdout.splitlines()
    names = [
        json.loads(line)["topic"] for line in run("topic", "list", "--jsonl").stdout.splitlines()
    ]
    assert topic in names
    assert not any(is_system_topic(name) for name in names)
    assert "TBW102" in run("topic", "list", "--system").stdout.splitlines()
    last = run("produce", topic, "x", "--queue", "3")
    assert "has queues 0 to 2" in last.stderr


def test_a_name_that_is_none_is_exit_code_2(run: Run) -> None:
    done = run("topic", "create", "a/b")
    assert done.returncode == 2
    assert done.stderr == "aerobee: topic 'a/b': use letters, digits and % | _ -\n"


def test_nobody_there_is_exit_code_4(run: Run) -> None:
    assert run("topic", "list", "-n", "127.0.0.1:1").returncode == 4


def test_what_is_not_named_stays_when_a_topic_is_altered(call: Call, topic: str) -> None:
    assert call("topic", "create", topic, "--queues", "2", "--type", "fifo").code == 0
    done = call("topic", "alter", topic, "--perm", "r")
    assert (done.code, done.err) == (0, "")
    (config,) = call("topic", "describe", topic, "--json").document["brokers"]
    assert (config["read_queues"], config["perm"], config["type"]) == (2, "r", "FIFO")
    assert call("topic", "alter", topic).code == 2


def test_a_topic_takes_only_so_much_in_a_second(call: Call, topic: str) -> None:
    call("topic", "create", topic, "--queues", "1")
    done = call("topic", "alter", topic, "--max-rate", "1/s", "--max-bytes", "10MiB/s")
    assert (done.code, done.err) == (0, "")
    (config,) = call("topic", "describe", topic, "--json").document["brokers"]
    assert (config["max_messages_per_s"], config["max_bytes_per_s"]) == (1, 10 << 20)
    assert call("topic", "alter", topic, "--max-rate", "none", "--max-bytes", "none").code == 0
    (config,) = call("topic", "describe", topic, "--json").document["brokers"]
    assert (config["max_messages_per_s"], config["max_bytes_per_s"]) == (None, None)
    for wrong in ("fast", "-1", "1MiB/s"):
        assert call("topic", "alter", topic, "--max-rate", wrong).code == 2


def test_a_topic_that_may_not_be_written_or_read_is_exit_code_1(call: Call, topic: str) -> None:
    call("topic", "create", topic, "--perm", "r")
    refused = call("produce", topic, "x")
    assert (refused.code, refused.err) == (
        1,
        f"aerobee: no queue of topic {topic} can be written\n",
    )
    call("topic", "alter", topic, "--perm", "w")
    refused = call("consume", topic, "--no-follow")
    assert (refused.code, refused.err) == (1, f"aerobee: no queue of topic {topic} can be read\n")


def test_shrinking_says_what_becomes_invisible_and_asks(call: Call, topic: str) -> None:
    call("topic", "create", topic, "--queues", "4")
    call("produce", topic, "x", "--queue", "3", "--count", "5")
    for words in (("alter", topic, "--queues", "2"), ("create", topic, "--queues", "2")):
        done = call("topic", *words, given="n\n")
        assert done.code == 1
        assert f"consumers will not see 5 messages of {topic}" in done.err
    assert len(call("topic", "describe", topic, "--json").document["queues"]) == 4
    assert call("topic", "alter", topic, "--queues", "2", given="y\n").code == 0
    assert call("topic", "alter", topic, "--queues", "1", "--yes").code == 0


def test_a_topic_is_described_for_people(call: Call, topic: str) -> None:
    call("topic", "create", topic, "--queues", "2")
    call("produce", topic, "x", "--queue", "1")
    lines = call("topic", "describe", topic).out.splitlines()
    assert lines[0].split() == ["topic", topic]
    assert lines[1].split() == ["messages", "1"]
    assert [line.split("\t")[4] for line in lines[-2:]] == ["0", "1"]


def test_a_topic_is_deleted_when_that_is_meant(call: Call, topic: str) -> None:
    call("topic", "create", topic)
    assert "would delete" in call("topic", "delete", topic, "--dry-run").out
    assert topic in call("topic", "list").out
    assert call("topic", "delete", topic, "--yes").code == 0
    assert topic not in call("topic", "list").out


def test_what_is_lost_with_a_topic_is_told_first(call: Call, topic: str) -> None:
    made = call("topic", "create", topic, "--queues", "1", "--json").document
    assert (made["topic"], made["queues"], made["perm"]) == (topic, 1, "rw")
    call("produce", topic, "x", "--count", "3")
    (changed,) = call("topic", "alter", topic, "--perm", "r", "--json").document
    assert (changed["topic"], changed["perm"]) == (topic, "r")
    group = f"g-{topic}"
    assert call("group", "create", group, "--json").document["retry_max"] == 16
    call("group", "reset", group, topic, "--to", "offset:1", "--yes")
    lost = call("topic", "delete", topic, "--dry-run", "--json").document
    assert lost == {"topic": topic, "messages": 3, "groups": {group: 2}, "deleted": False}
    assert f"consumed by {group} (2 behind)" in call("topic", "delete", topic, "--yes").out
    gone = call("group", "delete", group, "--yes", "--json").document
    assert gone == {"group": group, "members": 0, "deleted": True}


def test_an_error_is_one_line_whatever_the_server_says(call: Call) -> None:
    done = call("topic", "describe", "never-made")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.err.startswith("aerobee: no route for topic never-made")


def test_in_one_cluster_what_lies_in_another_is_neither_lost_nor_hidden(
    call: Call, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("topic", "create", topic, "--queues", "2")
    call("produce", topic, "x", "--count", "4", "--queue", "1")
    group = f"g-{topic}"
    call("group", "create", group)
    call("group", "reset", group, topic, "--to", "offset:1", "--yes")
    there = ("--cluster", "DefaultCluster")
    lost = call("topic", "delete", topic, "--dry-run", "--json", *there).document
    assert (lost["messages"], lost["groups"]) == (4, {group: 3})
    shrunk = ("topic", "create", topic, "--queues", "1")
    assert "4 messages" in call(*shrunk, *there, given="n\n").err
    assert call("topic", "delete", topic, "--dry-run", "--cluster", "none").code == 4

    own = AdminClient.cluster_info

    def beside_another(admin: AdminClient) -> ClusterInfo:
        info = own(admin)
        another = replace(info.brokers[0], name="another", cluster="Other", address="10.0.0.9:1")
        return replace(info, brokers=[*info.brokers, another])

    monkeypatch.setattr(AdminClient, "cluster_info", beside_another)
    other = ("--cluster", "Other")
    lost = call("topic", "delete", topic, "--dry-run", "--json", *other).document
    assert (lost["messages"], lost["groups"]) == (0, {})
    monkeypatch.setattr(AdminClient, "create_topic", lambda *_, **__: None)
    assert call(*shrunk, *other).code == 0, "nothing is hidden, so nobody is asked"
