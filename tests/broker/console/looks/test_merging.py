"""One snapshot of several brokers: what is not known is never zero."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from aerobee.broker.access.authority import Account, Authority
from aerobee.broker.access.policies import Policy, PolicyType
from aerobee.broker.console.looks.merging import merged, missing_of
from aerobee.broker.console.looks.snapshot import OVERVIEW, ClusterLook
from aerobee.broker.console.looks.viewers import Viewer
from aerobee.client.steps.admin.broker_tables import BrokerTables, Extent, Progress, progress_in
from aerobee.client.steps.admin.brokers import Broker
from aerobee.remoting.wire.bodies.auth import PolicyEntryInfo
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.bodies.topic import TopicConfig
from aerobee.store.format.system_names import DLQ_PREFIX

ROW: dict[str, Any] = {
    "cluster": "c", "id": 0, "address": "127.0.0.1:1", "state": "up", "in_per_s": 1.0,
    "out_per_s": 2.0, "in_today": 3, "disk": 0.5, "own": False, "why": "",
}  # fmt: skip
DEAD = {"state": "dead", "in_per_s": None, "disk": None, "why": "it does not answer"}


def tables(name: str, lag: int, **more: Any) -> BrokerTables:
    """A broker with a topic and a group that is behind in it."""
    behind = frozenset({"T"} if lag else ())
    given: dict[str, Any] = {
        "topics": {"T": TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)},
        "groups": {"g": SubscriptionGroupConfig(group_name="g")},
        "progress": {"g": Progress(lag, 0, 0, 1.0, frozenset({"T"}), behind)},
        "members": {"g": None},
        "extents": {"T": Extent(10, 20, 1_000, 1, 2.0)},
        "waits_s": {"g": 5.0} if lag else {},
    }
    return BrokerTables(target=Broker(name, "127.0.0.1:1", "c"), **given | more)


def look_at(*rows: dict[str, Any], **told: BrokerTables) -> ClusterLook:
    return ClusterLook(rows=[ROW | row for row in rows], tables=told)


def test_rows_of_one_name_are_one() -> None:
    look = look_at({"broker": "a"}, {"broker": "b"}, a=tables("a", 3), b=tables("b", 4))
    snapshot = merged(None, look, 1)
    (topic,) = snapshot.topics
    assert (topic["messages"], topic["write_queues"], topic["in_per_s"]) == (20, 4, 4.0)
    assert topic["groups"] == ["g"]
    (group,) = snapshot.groups
    assert (group["lag"], group["lag_at_least"], group["lag_s"]) == (7, 7, 5.0)
    assert (group["members"], group["enabled"]) == (0, True)
    assert [found["kind"] for found in snapshot.findings] == ["no_member"]
    figures = snapshot.overview
    assert (figures["in_per_s"], figures["out_per_s"], figures["disk_percent"]) == (2.0, 4.0, 50.0)
    assert (figures["lag"], figures["topics"], figures["groups"]) == (7, 1, 1)


def test_where_a_broker_is_missing_counts_are_not_known() -> None:
    look = look_at({"broker": "a"}, {"broker": "b"} | DEAD, a=tables("a", 3))
    snapshot = merged(None, look, 1)
    (topic,), (group,) = snapshot.topics, snapshot.groups
    assert (topic["messages"], topic["messages_at_least"]) == (None, 10)
    assert (group["lag"], group["lag_at_least"]) == (None, 3)
    assert snapshot.overview["lag"] is None
    assert snapshot.overview["lag_at_least"] == 3
    assert snapshot.missing == ["b"]
    assert snapshot.findings[0]["kind"] == "broker_unreachable"
    assert "it does not answer" in snapshot.findings[0]["text"]


def test_a_master_that_is_missing_has_no_address_to_look_at() -> None:
    missing = DEAD | {"address": "", "why": "only slaves of it are registered"}
    look = look_at({"broker": "a"} | missing, {"broker": "a", "id": 1}, a=tables("a", 3))
    found = merged(None, look, 1).findings[0]
    assert found["text"] == "broker a has no master now: only slaves of it are registered"
    assert found["advice"] == "aerobee ha doctor"


def test_a_slave_stands_for_its_dead_master() -> None:
    look = look_at({"broker": "a"} | DEAD, {"broker": "a", "id": 1}, a=tables("a", 3))
    assert missing_of(look) == []
    assert merged(None, look, 1).groups[0]["lag"] == 3


def test_of_a_slave_here_the_rows_are_those_of_its_master() -> None:
    """A slave knows no client that talks to its master alone: its groups would have no members."""
    at_slave = {"members": 0, "lag": 9, "lag_at_least": 9, "dead_letters": 0, "lag_s": 1.0}
    group = merged(None, look_at({"broker": "a"}, a=tables("a", 3)), 1).groups[0]
    own = replace(
        merged(None, ClusterLook(), 1),
        overview=dict.fromkeys(OVERVIEW) | {"broker": "a", "log_bytes": 7},
        groups=[{**group, **at_slave}],
    )
    here = {"broker": "a", "id": 1, "own": True}
    look = look_at({"broker": "a"}, here, a=tables("a", 3))
    shown = merged(own, look, 1)
    assert (shown.groups[0]["lag"], len(shown.groups)) == (3, 1)
    assert shown.overview["log_bytes"] == 7
    alone = merged(own, look_at({"broker": "a"} | DEAD, here), 1)
    assert alone.groups[0]["lag"] == 9, "its master does not answer"


def test_the_time_is_that_of_the_oldest_part() -> None:
    look = look_at({"broker": "a"}, a=tables("a", 3))
    own = replace(merged(None, ClusterLook(), 1), overview=dict.fromkeys(OVERVIEW), at_ms=50)
    assert merged(own, replace(look, at_ms=40), 60).at_ms == 40
    assert merged(own, replace(look, at_ms=55), 60).at_ms == 50
    assert merged(None, replace(look, at_ms=40), 60).at_ms == 40
    assert merged(None, ClusterLook(failure="no"), 60).at_ms == 60


def test_a_finding_is_there_for_who_may_see_it_however_many_others_have() -> None:
    names = [f"g{number:03}" for number in range(300)] + ["mine"]
    behind = Progress(5, 0, 0, 0.0, frozenset({"T"}), frozenset({"T"}))
    many = tables(
        "a",
        5,
        groups={name: SubscriptionGroupConfig(group_name=name) for name in names},
        progress=dict.fromkeys(names, behind),
        members=dict.fromkeys(names),
    )
    account = Account("ann", b"secret")
    entry = PolicyEntryInfo(resource="Group:mine", actions=["Get"], decision="Allow")
    authority = Authority({"ann": account}.get, lambda _: [Policy(PolicyType.CUSTOM, [entry])])
    ann = Viewer(address="127.0.0.1", account=account, authority=authority)
    snapshot = merged(None, look_at({"broker": "a"}, a=many), 1)
    assert [found["group"] for found in snapshot.findings_of(ann)] == ["mine"]


def test_what_was_not_asked_yet_is_not_known() -> None:
    asked: dict[str, Any] = {"members": {}, "extents": {}, "progress": None, "waits_s": {}}
    snapshot = merged(None, look_at({"broker": "a"}, a=tables("a", 0, **asked)), 1)
    (topic,), (group,) = snapshot.topics, snapshot.groups
    assert (topic["messages"], topic["in_per_s"]) == (None, None)
    assert (group["lag"], group["members"], group["lag_s"]) == (None, None, None)
    assert snapshot.findings == []


def test_what_a_broker_does_not_tell_is_not_counted_as_none() -> None:
    told = tables("a", 0, progress=None)
    (group,) = merged(None, look_at({"broker": "a"}, a=told), 1).groups
    assert [group[name] for name in ("in_flight", "per_s", "retries")] == [None, None, None]


def test_a_group_is_said_to_have_no_member_where_all_brokers_told() -> None:
    row = {"broker": "a"}, {"broker": "b"}
    not_asked = tables("b", 4, members={})
    snapshot = merged(None, look_at(*row, a=tables("a", 3), b=not_asked), 1)
    assert snapshot.groups[0]["members"] is None
    assert "no_member" not in {found["kind"] for found in snapshot.findings}
    missing = merged(None, look_at(row[0], row[1] | DEAD, a=tables("a", 3)), 1)
    assert missing.groups[0]["members"] is None
    assert missing.groups[0]["dead_letters"] is None, "the other broker may have some"
    names = ("topics", "groups", "dead_letters")
    assert [missing.overview[name] for name in names] == [None, None, None]


def test_a_rate_that_is_no_number_is_not_known() -> None:
    for rate in (math.nan, math.inf):
        progress = {"g": progress_in([], rate)}
        (group,) = merged(
            None, look_at({"broker": "a"}, a=tables("a", 0, progress=progress)), 1
        ).groups
        assert group["per_s"] is None


def test_dead_letters_are_found_by_their_topic() -> None:
    letters = f"{DLQ_PREFIX}g"
    told = tables(
        "a",
        0,
        topics={letters: TopicConfig(topic_name=letters)},
        extents={letters: Extent(4, 4, 1_000, 1, None)},
    )
    snapshot = merged(None, look_at({"broker": "a"}, a=told), 1)
    (row,) = snapshot.dead_letters
    assert (row["group"], row["letters"], row["last"]) == ("g", 4, "1970-01-01T00:00:01Z")
    assert snapshot.topics[0]["kind"] == "dead"
    assert snapshot.groups[0]["dead_letters"] == 4


def test_of_an_unknown_cluster_nothing_is_zero() -> None:
    snapshot = merged(None, ClusterLook(failure="no name server answers"), 1)
    figures = snapshot.overview
    names = ("lag", "topics", "groups", "dead_letters", "in_per_s", "disk_percent", "connections")
    assert {name: figures[name] for name in names} == dict.fromkeys(names)
    assert "no name server answers" in snapshot.findings[0]["text"]
