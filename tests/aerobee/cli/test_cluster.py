"""`aerobee cluster`, `connections`, `broker config` and `top` against a real broker."""

import json
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from aerobee import __version__
from aerobee.blocking import AdminClient, PullConsumer
from aerobee.cli.cluster import first_number, today, uptime
from aerobee.errors import BrokerNotFoundError
from tests.aerobee.cli.conftest import Call
from tests.conftest import AnyBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import HOST, free_port
from tests.kit.raw_client import RawConnection, send_fields
from tests.kit.waiting import eventually

pytestmark = pytest.mark.service


def test_brokers_are_shown_with_their_figures(call: Call, broker: AnyBroker) -> None:
    (row,) = call("cluster", "info", "--json").document
    assert (row["id"], row["address"]) == (0, broker.address)
    assert row["version"].startswith("V5")
    assert (row["state"], row["aerobee"]) == ("up", __version__)
    assert row["uptime_s"] >= 0
    assert row["replication"] is None
    titles, values = (line.split("\t") for line in call("cluster", "info").out.splitlines())
    shown = dict(zip(titles, values, strict=True))
    assert shown["broker"] == row["broker"]
    assert shown["uptime"].endswith(" s")


HUGE = "9" * 5_000
"""More digits than int() takes."""


@pytest.mark.parametrize("told", ["NaN", "nan 1 1", "inf", "-Infinity", "1e400", "1e308", HUGE, ""])
def test_what_is_no_figure_is_not_known(told: str) -> None:
    assert first_number(told) is None
    assert uptime(f"[ {told} days, 0 hours, 0 minutes, 0 seconds ]") is None
    assert today({"msgPutTotalTodayNow": told, "msgPutTotalTodayMorning": "0"}, "msgPut") is None


def test_a_figure_is_read_as_brokers_tell_it() -> None:
    assert first_number("0.5 1.5 2.5") == 0.5
    assert uptime("[ 1 days, 1 hours, 1 minutes, 1 seconds ]") == 90_061
    told = {"msgPutTotalTodayNow": "7", "msgPutTotalTodayMorning": "3"}
    assert today(told, "msgPut") == 4
    larger = {"msgPutTotalTodayNow": "9" * 4_000, "msgPutTotalTodayMorning": "3"}
    assert today(larger, "msgPut") is None


class Gone(NamedTuple):
    """A broker that is registered and does not answer; `vanish` ends its connection."""

    address: str
    vanish: Callable[[], None]


@pytest.fixture
def group(call: Call, topic: str) -> str:
    """A group that all brokers know; to make it with a dead one among them is refused."""
    assert call("group", "create", f"g-{topic}").code == 0
    return f"g-{topic}"


@pytest.fixture
def gone(broker: AnyBroker, topic: str) -> Iterator[Gone]:
    with registered(broker, topic, f"127.0.0.1:{free_port()}", 0) as gone:
        yield gone


@pytest.fixture
def leaderless(broker: AnyBroker, topic: str, group: str) -> Iterator[str]:
    """The name of a broker of which only a slave is registered, and answers. It has a topic."""
    with registered(broker, topic, broker.address, 1):
        yield "gone"


@contextmanager
def registered(broker: AnyBroker, topic: str, address: str, broker_id: int) -> Iterator[Gone]:
    queues = {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    # A broker whose first registration has one topic alone is refused.
    configs = {name: {"topicName": name, **queues} for name in (topic, "of-the-gone")}
    version = {"stateVersion": 0, "timestamp": 1, "counter": 1}
    table = {"topicConfigTable": configs, "dataVersion": version}
    body = json.dumps({"topicConfigSerializeWrapper": table, "filterServerList": []}).encode()
    there = {
        "brokerName": "gone",
        "brokerAddr": address,
        "clusterName": "DefaultCluster",
        "brokerId": broker_id,
    }
    more = {"haServerAddr": address, "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF}
    with RawConnection(broker.namesrv_address) as names:
        assert names.call(103, there | more, body).code == 0
        yield Gone(address, names.close)
    with RawConnection(broker.namesrv_address) as names:
        assert names.call(104, there).code == 0


def test_one_broker_that_does_not_answer_hides_no_other(call: Call, gone: Gone) -> None:
    """The first command of a person in trouble: it showed nothing then."""
    done = call("cluster", "info", "--json")
    rows = {row["broker"]: row for row in done.document}
    dead = rows.pop("gone")
    assert (dead["state"], dead["version"], dead["in_per_s"]) == ("dead", None, None)
    (alive,) = rows.values()
    assert alive["state"] == "up"
    assert alive["version"].startswith("V5")
    assert done.code == 4
    assert f"broker gone ({gone.address}) is dead: " in done.err


def test_a_broker_that_died_is_shown_after_the_name_server_has_dropped_it(
    call: Call, gone: Gone
) -> None:
    """Its connection ends with it, and with the connection its place in every route."""
    gone.vanish()

    def lost() -> bool:
        return "without a word" in call("cluster", "info").err

    eventually(lost, within_s=30, what="a broker that is lost")
    done = call("cluster", "info", "--json")
    states = {row["broker"]: row["state"] for row in done.document}
    assert (states.pop("gone"), list(states.values()), done.code) == ("dead", ["up"], 4)


def test_a_file_of_definitions_lacks_a_lost_master_and_that_is_said(
    call: Call, gone: Gone, tmp_path: Path
) -> None:
    """A nightly export would be taken for all of the cluster."""
    gone.vanish()
    eventually(lambda: "without a word" in call("cluster", "info").err, within_s=30, what="a loss")
    file = tmp_path / "definitions.json"
    for words in (("export", str(file)), ("diff", str(file)), ("import", str(file), "--yes")):
        done = call("definitions", *words)
        assert (done.code, "broker gone" in done.err) == (4, True), words
    assert json.loads(file.read_text())["aerobee_definitions"] == 1


NO_MASTER = "broker gone has no master now"


def test_a_group_without_a_master_is_not_left_out_in_silence(
    call: Call, broker: AnyBroker, topic: str, group: str, leaderless: str
) -> None:
    """As for the seconds of each failover: its messages, groups and users were not there, and what
    was made everywhere was not made there.
    """
    rows = [row for row in call("cluster", "info", "--json").document if row["broker"] == "gone"]
    assert {row["id"]: row["state"] for row in rows} == {0: "dead", 1: "up"}
    asked = (
        ("group", "list"),
        ("group", "lag", group),
        ("group", "lag", f"not-{group}"),
        ("group", "describe", group),
        ("connections",),
        ("dlq", "list"),
        ("why", "--topic", topic, "--key", "k"),
        ("users", "list"),
        ("definitions", "export"),
        ("top", "--once"),
        ("broker", "config", "get", "fileReservedTime", "--broker", leaderless),
    )
    for words in asked:
        done = call(*words)
        assert (done.code, NO_MASTER in done.err) == (4, True), (words, done)
    (row,) = (row for row in call("group", "list", "--json").document if row["group"] == group)
    assert (row["lag"], row["dead"]) == (None, ["gone"])
    there = call("group", "describe", f"not-{group}")
    assert (there.code, "no broker that answers knows" in there.err) == (4, True)


def test_what_the_others_know_is_shown_while_a_group_has_no_master(
    call: Call, broker: AnyBroker, group: str, leaderless: str, tmp_path: Path
) -> None:
    done = call("broker", "config", "get", "fileReservedTime", "--all", "--json")
    assert (done.code, NO_MASTER in done.err) == (4, True)
    assert "fileReservedTime" in [row["key"] for row in done.document]
    bundle = tmp_path / "b.tar.gz"
    assert call("support", "bundle", str(bundle)).code == 0
    with tarfile.open(bundle) as archive:
        file = archive.extractfile("aerobee-support/tables.json")
        assert file is not None
        assert json.load(file)["groups"] >= 1


def test_a_user_changed_while_a_group_has_no_master_is_said_to_miss_there(
    broker: AnyBroker, leaderless: str
) -> None:
    """The master that is away has the user as before, and may come back with it."""
    with (
        AdminClient(broker.namesrv_address) as admin,
        pytest.raises(BrokerNotFoundError, match=NO_MASTER),
    ):
        admin.create_user("bob", "bobs-secret", broker=leaderless)


def test_a_shadow_has_no_master_and_misses_none(
    call: Call, broker: AnyBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR")  # a shadow that registered there would be a slave of it
    settings = {
        "brokerIP1": HOST,
        "brokerRole": "SLAVE",
        "brokerId": 1,
        "shadow": True,
        "haMasterAddress": broker.address,
    }
    with BrokerProcess(data=tmp_path / "shadow", settings=settings) as shadow:
        done = call("cluster", "info", "--json", "--namesrv", shadow.namesrv_address)
    assert [(row["id"], row["state"]) for row in done.document] == [(1, "up")]
    assert (done.code, done.err) == (0, "")


def test_a_slave_that_follows_alone_at_its_name_server_misses_no_master(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in another place, which may not register where its master does."""
    monkeypatch.delenv("NAMESRV_ADDR")
    pair = {"brokerName": "b", "brokerIP1": HOST, "haPeers": HOST}
    with BrokerProcess(data=tmp_path / "master", settings=pair) as master:
        settings = pair | {
            "brokerRole": "SLAVE",
            "brokerId": 1,
            "haMasterAddress": f"{HOST}:{master.ports.ha}",
        }
        with (
            BrokerProcess(data=tmp_path / "slave", settings=settings) as slave,
            AdminClient(slave.namesrv_address) as admin,
        ):
            at, where = slave.address, ("--namesrv", slave.namesrv_address)
            eventually(
                lambda: admin.replication_status(at).state == "following",
                within_s=60.0,
                what="a slave that follows",
            )
            done = call("cluster", "info", "--json", *where)
            assert ([row["id"] for row in done.document], done.code, done.err) == ([1], 0, "")
            master.kill()
            eventually(
                lambda: call("cluster", "info", *where).code == 4,
                within_s=60.0,
                what="a master that is missing",
            )


def test_what_only_a_missing_master_has_is_defined_at_no_other(
    call: Call, topic: str, leaderless: str, tmp_path: Path
) -> None:
    """As the topic of one group, in a file that is imported while the group elects."""
    file = tmp_path / "definitions.json"
    topics = {"of-gone": {leaderless: {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6}}}
    file.write_text(json.dumps({"aerobee_definitions": 1, "topics": topics}))
    done = call("definitions", "diff", str(file), "--json")
    assert (done.code, NO_MASTER in done.err, done.document) == (4, True, [])


def test_a_change_everywhere_says_which_group_has_no_master(
    call: Call, broker: AnyBroker, topic: str, group: str, leaderless: str
) -> None:
    changes = (
        ("topic", "create", f"other-{topic}"),
        ("topic", "delete", f"other-{topic}", "--yes"),
        ("group", "create", f"other-{group}"),
        ("group", "pause", group, "--yes"),
        ("group", "resume", group),
        ("group", "delete", f"other-{group}", "--yes"),
        ("broker", "config", "set", "fileReservedTime=72", "--all"),
        ("broker", "clean", "topics", "--yes"),
        ("broker", "write-permission", leaderless, "on"),
    )
    for words in changes:
        done = call(*words)
        assert (done.code, NO_MASTER in done.err) == (4, True), (words, done)
        assert not done.out, words
    for words in (
        ("group", "create", f"other-{group}"),
        ("broker", "config", "set", "fileReservedTime=72", "--all"),
        ("broker", "clean", "topics", "--yes"),
    ):
        assert "no error at" in call(*words).err, words
    assert call("group", "describe", f"other-{group}", "--json").document["name"]


@pytest.mark.parametrize("vanished", [False, True])
def test_lag_at_a_dead_broker_is_unknown_and_no_zero(
    call: Call, group: str, gone: Gone, vanished: bool
) -> None:
    if vanished:
        gone.vanish()
        eventually(
            lambda: "without a word" in call("cluster", "info").err, within_s=30, what="a loss"
        )
    listed = call("group", "list", "--json")
    of_top = call("top", "--json")
    for done, rows in ((listed, listed.document), (of_top, of_top.document["groups"])):
        (row,) = [row for row in rows if row["group"] == group]
        assert (row["lag"], row["lag_at_least"], row["dead"]) == (None, 0, ["gone"])
        assert (done.code, "is dead" in done.err) == (4, True)
    assert [row["state"] for row in of_top.document["brokers"] if row["broker"] == "gone"] == [
        "dead"
    ]
    done = call("group", "lag", group, "--json")
    assert [(row["broker"], row["lag"]) for row in done.document] == [("gone", None)]
    assert done.code == 4
    said = call("group", "lag", group).out.splitlines()[-1]
    assert said == "at least 0 messages behind in 0 queues, unknown at gone"
    assert call("connections", "--json").code == 4
    assert call("dlq", "list", "--json").code == 4
    found = call("group", "doctor", group)
    assert (found.code, "broker gone did not answer" in found.out) == (1, True)


def test_a_dead_broker_hides_nothing_of_the_others_and_is_no_proof(
    call: Call, broker: AnyBroker, topic: str, group: str, gone: Gone
) -> None:
    """What is at a dead broker is unknown: no count, and no word that there is nothing."""
    with RawConnection(broker.address) as connection:
        assert connection.call(310, send_fields(topic, 0), b"x").code == 0
    described = call("topic", "describe", topic, "--json")
    shown = described.document
    assert (shown["messages"], shown["messages_at_least"], shown["dead"]) == (None, 1, ["gone"])
    (there,) = shown["brokers"]
    tail = call("message", "tail", topic, "--json")
    assert [message["topic"] for message in tail.document] == [topic]
    known = call("group", "describe", group, "--json")
    assert list(known.document["configs"]) == [there["broker"]]
    for done in (described, tail, known):
        assert (done.code, "broker gone" in done.err) == (4, True)
    for words in (("dlq", "list"), ("group", "describe")):
        done = call(*words, "no-such-group")
        assert (done.code, "no broker that answers knows" in done.err) == (4, True), words


def test_who_is_connected_is_shown(call: Call, broker: AnyBroker, topic: str) -> None:
    call("topic", "create", topic)
    with PullConsumer(f"g-{topic}", broker.namesrv_address) as consumer:
        consumer.subscribe(topic)
        done = call("connections", "--group", f"g-{topic}", "--json")
        assert [(row["kind"], row["language"]) for row in done.document] == [("consumer", "PYTHON")]
        done = call("connections", "--jsonl")
        assert f"g-{topic}" in done.out
        assert "producers are left out" in done.err or not done.err


def test_the_connections_of_a_client_are_closed(call: Call, broker: AnyBroker, topic: str) -> None:
    call("topic", "create", topic)
    group = f"g-{topic}"

    def members() -> list[str]:
        return [row["client"] for row in call("connections", "--group", group, "--json").document]

    with PullConsumer(group, broker.namesrv_address) as consumer:
        consumer.subscribe(topic)
        (client,) = members()
        done = call("connections", "close", client, "--dry-run", "--json")
        assert [(row["connections"], row["closed"]) for row in done.document] == [(1, False)]
        assert call("connections", "close", client, given="n\n").code == 1
        assert members() == [client]
        done = call("connections", "close", client, "--yes", "--json")
        assert [(row["client"], row["closed"]) for row in done.document] == [(client, True)]
        eventually(lambda: members() == [client], within_s=60, what="a member that came back")
    done = call("connections", "close", "nobody", "--yes")
    assert (done.code, "no client with the id nobody is connected" in done.err) == (1, True)


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


def test_the_levels_of_all_brokers_are_one_document(call: Call) -> None:
    (name,) = {row["broker"] for row in call("cluster", "info", "--json").document}
    levels = call("broker", "log-level", "--all", "--json").document
    assert [row["broker"] for row in levels] == [name]
    assert call("broker", "log-level", "--json").document == {"level": levels[0]["level"]}
    assert call("broker", "log-level", "--all").out == f"{name} {levels[0]['level']}\n"


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
