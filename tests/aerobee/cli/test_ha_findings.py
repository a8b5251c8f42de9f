"""Why replication lags, stands or refuses: the rules on groups as their members describe them."""

import re
from pathlib import Path
from typing import Any

import pytest

from aerobee.admin import BrokerInfo, ReplicaInfo, ReplicationStatus
from aerobee.cli.ha_findings import KINDS, GroupLook, Look, admits, findings_of, free_bytes
from aerobee.cli.ha_members import Member

DOCS = Path(__file__).parents[3] / "docs" / "diagnosis.md"
MASTER: dict[str, str] = {"brokerRole": "ASYNC_MASTER", "haPeers": "10.0.0.0/24"}
SLAVE: dict[str, str] = {"brokerRole": "SLAVE", "haPeers": "10.0.0.1"}
GiB = 1 << 30


def look(number: int, status: ReplicationStatus | None, **more: Any) -> Look:
    broker = BrokerInfo(
        cluster="C", name="b", broker_id=number, address=f"10.0.0.{number + 1}:10911"
    )
    settings = (MASTER if status is None or status.is_master else SLAVE) | more.get("settings", {})
    return Look(
        Member(broker, status, more.get("problem", "")),
        settings,
        more.get("stats", {}),
        more.get("grown", 0),
    )


def master(*replicas: ReplicaInfo, end: int = 1_000, **more: Any) -> ReplicationStatus:
    return ReplicationStatus(is_master=True, max_offset=end, replicas=replicas, **more)


def slave(end: int = 1_000, state: str = "following", **more: Any) -> ReplicationStatus:
    return ReplicationStatus(is_master=False, max_offset=end, state=state, **more)


def replica(lag: int = 0, **more: Any) -> ReplicaInfo:
    given: dict[str, Any] = {"in_sync": True, "lag_s": 0.0, "standing": "follows"}
    given |= {"peer": "10.0.0.2:4711"}
    return ReplicaInfo(acknowledged=1_000 - lag, lag=lag, **(given | more))


LATE = replica(500, lag_s=9.0)
WELL = look(0, master(replica())), look(1, slave())
SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
CASES: list[tuple[str, tuple[Look, ...], float]] = [
    ("not_reachable", (WELL[0], look(1, None, problem="it does not answer")), 0),
    ("two_masters", (WELL[0], look(1, master(epoch=3))), 0),
    ("no_master", (look(0, None), look(1, slave(state="unreachable"))), 0),
    ("none_elected", (look(1, slave(state="searching", member=2)),), 0),
    ("master_not_known", (look(1, slave(master_address="10.0.0.9:10912")),), 0),
    ("unclean_master", (look(0, master(replica(), unclean_epoch=4)), WELL[1]), 0),
    ("disk_full", (WELL[0], look(1, slave(), stats={"commitLogDiskRatio": "0.97"})), 0),
    (
        "disk_nearly_full",
        (
            WELL[0],
            look(
                1,
                slave(),
                settings={"mappedFileSizeCommitLog": str(GiB)},
                stats={"commitLogDirCapacity": "Total : 9.0 GiB, Free : 1023.9 MiB."},
            ),
        ),
        0,
    ),
    (
        "segment_sizes",
        (
            look(0, master(replica()), settings={"mappedFileSizeCommitLog": "4194304"}),
            look(1, slave(state="diverged"), settings={"mappedFileSizeCommitLog": "8388608"}),
        ),
        0,
    ),
    (
        "another_cluster",
        (
            look(0, master(), settings={"brokerClusterName": "C"}),
            look(1, slave(state="stuck"), settings={"brokerClusterName": "D"}),
        ),
        0,
    ),
    ("diverged", (look(0, master()), look(1, slave(state="diverged", problem="at 9"))), 0),
    ("unrelated", (look(0, master()), look(1, slave(state="diverged", member=2))), 0),
    (
        "deleted",
        (
            look(0, master(), stats={"commitLogMinOffset": "900"}),
            look(1, slave(800, state="stuck")),
        ),
        0,
    ),
    ("ahead", (look(0, master(replica(standing="ahead", in_sync=False))), WELL[1]), 0),
    ("stuck", (look(0, master()), look(1, slave(state="stuck", problem="no room"))), 0),
    (
        "not_listed",
        (
            look(0, master(), settings={"haPeers": "10.0.1.0/24"}),
            look(1, slave(state="unreachable")),
        ),
        0,
    ),
    ("apart", (look(0, master()), look(1, slave(state="unreachable", problem="refused"))), 0),
    ("another_master", (look(0, master()), WELL[1]), 0),
    ("not_counted", (look(0, master(member=1)), look(1, slave(member=2))), 0),
    ("silent", (look(0, master(replica(standing="silent", in_sync=False))), WELL[1]), 0),
    ("behind", (look(0, master(LATE)), look(1, slave(500))), 0),
    ("falls_behind", (look(0, master(LATE), grown=9), look(1, slave(500), grown=5)), 1),
    ("gets_nothing", (look(0, master(LATE)), look(1, slave(500))), 1),
    ("catches_up", (look(0, master(LATE), grown=5), look(1, slave(500), grown=9)), 1),
    ("asynchronous", WELL, 0),
    (
        "waits_for_nobody",
        (look(0, master(replica()), settings=SYNC | {"inSyncReplicas": "1"}), WELL[1]),
        0,
    ),
    ("acknowledges_nothing", (look(0, master(member=1, problem="2 is away")),), 0),
    ("too_few_in_sync", (look(0, master(replica(in_sync=False)), settings=SYNC), WELL[1]), 0),
    ("no_peers", (WELL[0], look(1, slave(), settings={"haPeers": ""})), 0),
]


@pytest.mark.parametrize(("kind", "looks", "seconds"), CASES, ids=[case[0] for case in CASES])
def test_each_problem_is_found_and_said_with_what_helps(
    kind: str, looks: tuple[Look, ...], seconds: float
) -> None:
    found = {one.kind: one for one in findings_of(GroupLook("b", looks, seconds))}
    assert kind in found, found
    said = found[kind]
    assert said.severity is KINDS[kind].severity
    assert said.text
    assert said.advice
    assert "{" not in said.text + said.advice
    assert not re.search(r": *(;|$)", said.text), "a reason is announced, and none follows"


def test_there_is_a_case_of_each_kind_and_a_row_of_the_documentation() -> None:
    assert [case[0] for case in CASES] == list(KINDS)
    text = DOCS.read_text("utf-8")
    missing = [kind for kind in KINDS if f"`{kind}`" not in text]
    assert not missing


def test_of_a_pair_that_waits_for_its_slave_nothing_is_said() -> None:
    group = GroupLook("b", [look(0, master(replica()), settings=SYNC), WELL[1]])
    assert findings_of(group) == []


def test_a_slave_that_has_stopped_is_not_proposed_as_the_master() -> None:
    stopped = look(1, slave(2_000, state="diverged"))
    kinds = {one.kind for one in findings_of(GroupLook("b", [stopped]))}
    assert kinds == {"diverged"}
    other = look(2, slave(900, state="unreachable"))
    found = {one.kind: one for one in findings_of(GroupLook("b", [stopped, other]))}
    assert found["no_master"].advice.endswith(f"aerobee ha promote {other.address}")


def test_a_log_of_other_segments_is_not_to_be_cut() -> None:
    looks = next(case[1] for case in CASES if case[0] == "segment_sizes")
    assert "diverged" not in {one.kind for one in findings_of(GroupLook("b", looks))}


def test_errors_come_first() -> None:
    group = GroupLook("b", [look(0, master()), look(1, slave(state="stuck"))])
    assert [one.kind for one in findings_of(group)] == ["stuck", "asynchronous"]


def test_a_shadow_is_no_slave() -> None:
    shadow = look(1, slave(state="unreachable", shadow=True))
    assert findings_of(GroupLook("b", [look(0, master()), shadow])) == []


@pytest.mark.parametrize(
    ("peers", "host", "listed"),
    [
        ("", "10.0.0.1", False),
        ("10.0.0.1;10.0.1.0/24", "10.0.1.7", True),
        ("10.0.0.1;10.0.1.0/24", "10.0.2.7", False),
        ("fd00::/8", "fd00::1", True),
        ("10.0.0.1", "a-name", True),
        ("", "a-name", False),
    ],
)
def test_peers_list_an_address_or_do_not(peers: str, host: str, listed: bool) -> None:
    assert admits(peers, host) is listed


@pytest.mark.parametrize(
    ("told", "free"),
    [
        ("Total : 9.0 GiB, Free : 1.5 MiB.", 1_572_864),
        ("Total : 9.0 GiB, Free : 0 B.", 0),
        ("Total : 0 B, Free : 0 B.", None),
        ("Free : many", None),
        ("", None),
    ],
)
def test_free_space_is_read_as_brokers_tell_it(told: str, free: int | None) -> None:
    assert free_bytes({"commitLogDirCapacity": told}) == free


def named(number: int, status: ReplicationStatus) -> Look:
    """A member in Kubernetes: registered under its name, and connected by its address."""
    broker = BrokerInfo(
        cluster="C", name="b", broker_id=number, address=f"b-{number}.headless.mq.svc:10911"
    )
    return Look(Member(broker, status, ""), MASTER if status.is_master else SLAVE, {}, 0)


def test_a_slave_under_a_name_has_the_connection_that_no_other_one_explains() -> None:
    """It was said to have none: `aerobee ha status` ended with 1 for good."""
    near, far = replica(peer="10.0.0.7:4711"), replica(900, peer="10.0.0.8:4711", lag_s=9.0)
    follows: dict[str, Any] = {"master_address": "b-0.headless.mq.svc:10912"}
    one, two = slave(**follows), slave(100, **follows)
    members = [named(1, two), named(0, master(far, near)), named(2, one)]
    group = GroupLook("b", members)
    assert group.replicas[members[0].address] == far
    assert group.replicas[members[2].address] == near
    elsewhere = named(1, slave(master_address="c-0.headless.mq.svc:10912"))
    assert GroupLook("b", [elsewhere, members[1]]).replicas == {}
