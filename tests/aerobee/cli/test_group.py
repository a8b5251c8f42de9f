"""`aerobee group` against a real broker."""

import queue
from datetime import UTC, datetime

import pytest

from aerobee import ConsumeFrom
from aerobee.admin import LagHistory, LagSample
from aerobee.blocking import PushConsumer
from aerobee.broker.metrics.samples import HOUR
from aerobee.cli.group import show_history
from aerobee.cli.output import Output
from aerobee.testing import TestBroker
from aerobee.testing.plugin import aerobee_virtual_broker as aerobee_virtual_broker
from tests.aerobee.cli.conftest import Call
from tests.conftest import AnyBroker
from tests.kit.waiting import eventually

pytestmark = pytest.mark.service


@pytest.fixture
def group(call: Call, topic: str) -> str:
    """A group at offset 1 of a queue with 3 messages."""
    group = f"g-{topic}"
    call("topic", "create", topic, "--queues", "1")
    call("produce", topic, "x", "--count", "3")
    call("group", "create", group)
    done = call("group", "reset", group, topic, "--to", "offset:1", "--yes")
    assert done.code == 0, done.err
    return group


def test_groups_are_listed_with_their_lag(call: Call, topic: str, group: str) -> None:
    rows = call("group", "list", "--json").document
    (row,) = [row for row in rows if row["group"] == group]
    assert (row["lag"], row["members"], row["topics"]) == (2, 0, [topic])
    assert not any(row["group"].startswith("CID_RMQ_SYS_") for row in rows)
    every = call("group", "list", "--system", "--jsonl").out
    assert "CID_RMQ_SYS_TRANS" in every


def test_lag_is_shown_queue_by_queue(call: Call, topic: str, group: str) -> None:
    (row,) = call("group", "lag", group, "--json").document
    assert (row["topic"], row["queue"], row["end"], row["lag"]) == (topic, 0, 3, 2)
    assert call("group", "lag", group).out.endswith("2 messages behind in 1 queue\n")
    done = call("group", "lag", "nobody")
    assert (done.code, done.err) == (1, "aerobee: no broker knows group nobody\n")


def test_the_lag_of_the_last_hour_is_told_without_prometheus(
    aerobee_virtual_broker: TestBroker, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = aerobee_virtual_broker
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv)
    call("topic", "create", "t", "--queues", "1")
    call("group", "create", "g")
    call("group", "reset", "g", "t", "--to", "first", "--yes")
    done = call("group", "lag", "g", "--history")
    assert (done.code, done.out) == (0, "0 messages behind in 1 queue\n")
    assert done.err.startswith("no lag is noted yet: brokers do it every ten minutes")
    for count in (2, 3):
        assert call("produce", "t", "x", "--count", str(count)).code == 0
        broker.advance(HOUR.period_s, jumps=HOUR.period_s)
    rows = call("group", "lag", "g", "--topic", "t", "--history", "--json").document
    assert [(row["topic"], row["lag"]) for row in rows] == [("t", 2), ("t", 5)]
    assert all(datetime.fromisoformat(row["at"]).tzinfo for row in rows)
    done = call("group", "lag", "g", "--history")
    assert (len(done.out.splitlines()), done.out.splitlines()[-1]) == (
        4,
        "5 messages behind in 1 queue",
    )
    assert call("group", "lag", "nobody", "--history").code == 1


def test_a_history_obeys_no_broker(capsys: pytest.CaptureFixture[str]) -> None:
    bad = "t\x1b[2J\nx"
    sample = LagSample(topic=bad, broker=bad, at=datetime.now(UTC), lag=1)
    show_history(LagHistory(group="g", samples=[sample], without=[bad]), Output())
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert len(printed.out.splitlines()) == 2
    assert "keeps no history of lags" in printed.err


def test_a_reset_asks_and_a_dry_run_changes_nothing(call: Call, topic: str, group: str) -> None:
    done = call("group", "reset", group, topic, "--to", "last", "--dry-run")
    assert done.out.endswith("1 queue would be moved\n")
    assert call("group", "reset", group, topic, "--to", "last", given="n\n").code == 1
    assert call("group", "lag", group, "--json").document[0]["lag"] == 2
    done = call("group", "reset", group, topic, "--to", "1h ago", "--back-only", "--yes", "--json")
    assert [(row["before"], row["after"]) for row in done.document] == [(1, 0)]
    done = call("group", "reset", group, topic, "--to", "first", "--yes")
    assert done.out == "nothing to move\n"
    assert call("group", "reset", group, topic, "--to", "yesterday").code == 2


def test_a_reset_of_one_queue_leaves_the_others(call: Call, topic: str) -> None:
    call("topic", "create", topic, "--queues", "2")
    call("produce", topic, "x", "--count", "8")
    call("group", "create", f"g-{topic}")
    move = ("group", "reset", f"g-{topic}", topic, "--yes", "--json")
    broker = call(*move, "--to", "first").document[0]["broker"]
    (row,) = call(*move, "--to", "offset:1", "--queue", f"{broker}:1").document
    assert (row["queue"], row["before"], row["after"]) == (1, 0, 1)
    assert "no queue" in call(*move, "--to", "first", "--queue", f"{broker}:7").err
    assert "BROKER:ID" in call(*move, "--to", "first", "--queue", "1").err


def test_what_a_group_receives_is_limited_and_its_other_settings_stay(
    call: Call, topic: str
) -> None:
    group = f"g-{topic}"
    call("group", "create", group, "--retries", "3")
    (row,) = call("group", "alter", group, "--max-rate", "5/s", "--json").document
    assert (row["max_messages_per_s"], row["max_bytes_per_s"]) == (5, None)
    call("group", "alter", group, "--max-bytes", "1MiB/s")
    call("group", "create", group, "--retries", "4")
    (config,) = call("group", "describe", group, "--json").document["configs"].values()
    limits = config["max_messages_per_s"], config["max_bytes_per_s"]
    assert (config["retry_max"], limits) == (4, (5, 1 << 20))
    (row,) = call("group", "alter", group, "--max-rate", "none", "--json").document
    assert (row["max_messages_per_s"], row["max_bytes_per_s"]) == (None, 1 << 20)
    (row,) = call("group", "alter", group, "--priority-factor", "0", "--json").document
    assert (row["priority_factor"], row["max_bytes_per_s"]) == (0, 1 << 20)
    call("group", "create", group, "--retries", "5")
    (config,) = call("group", "describe", group, "--json").document["configs"].values()
    assert (config["priority_factor"], config["retry_max"]) == (0, 5)
    assert call("group", "alter", group, "--priority-factor", "101").code == 2
    assert call("group", "alter", group).code == 2
    assert call("group", "alter", "nobody", "--max-rate", "1/s").code == 1


def test_a_group_is_paused_and_goes_on_with_its_other_settings(
    call: Call, broker: AnyBroker, topic: str
) -> None:
    group = f"g-{topic}"
    call("topic", "create", topic, "--queues", "1")
    call("group", "create", group, "--retries", "3", "--orderly")
    done = call("group", "pause", group, "--dry-run", "--json")
    assert [(row["consumes"], row["changed"]) for row in done.document] == [(True, False)]
    assert call("group", "pause", group, given="n\n").code == 1
    assert call("group", "pause", group, "--yes").out.endswith(f"group {group} is paused\n")
    (config,) = call("group", "describe", group, "--json").document["configs"].values()
    assert (config["enabled"], config["retry_max"], config["orderly"]) == (False, 3, True)
    advice = call("group", "doctor", group)
    assert (advice.code, f"aerobee group resume {group}" in advice.out) == (1, True)
    seen: queue.Queue[bytes] = queue.Queue()

    def member() -> bool:
        return bool(call("connections", "--group", group, "--json").document)

    consumer = PushConsumer(group, broker.namesrv_address, start_from=ConsumeFrom.FIRST)
    consumer.subscribe(topic, handler=lambda messages: seen.put(messages[0].body))
    with consumer:
        call("produce", topic, "waits")
        eventually(member, within_s=30, what="a member that stays")
        assert seen.empty()
        done = call("group", "resume", group, "--json")
        assert [(row["consumed"], row["consumes"]) for row in done.document] == [(False, True)]
        assert seen.get(timeout=30) == b"waits"
    for what in ("pause", "resume"):
        refused = call("group", what, "nobody", *(["--yes"] if what == "pause" else []))
        assert (refused.code, refused.err) == (1, "aerobee: no broker knows group nobody\n")


def test_a_dry_run_for_a_group_that_is_not_there_is_refused_like_the_reset(
    call: Call, topic: str, group: str
) -> None:
    for words in (["--dry-run"], ["--yes"]):
        done = call("group", "reset", "billlng", topic, "--to", "last", *words)
        assert (done.code, done.err) == (1, "aerobee: no broker knows group billlng\n")


def test_offsets_are_cloned_and_groups_described_and_deleted(
    call: Call, topic: str, group: str
) -> None:
    other = f"{group}-other"
    call("group", "create", other, "--retries", "2")
    assert call("group", "clone", group, other, "--yes").out.endswith("1 queue moved\n")
    for pair in ((group, "nobody"), ("nobody", other)):
        done = call("group", "clone", *pair, "--yes")
        assert (done.code, done.err) == (1, "aerobee: no broker knows group nobody\n")
    found = call("group", "describe", other, "--json").document
    assert (list(found["topics"]), found["connections"]["members"]) == ([topic], [])
    assert next(iter(found["configs"].values()))["retry_max"] == 2
    assert "retries" in call("group", "describe", other).out
    assert "would delete" in call("group", "delete", other, "--dry-run").out
    assert call("group", "delete", other, "--yes").code == 0
    done = call("group", "describe", other)
    assert (done.code, done.err) == (1, f"aerobee: no broker knows group {other}\n")
