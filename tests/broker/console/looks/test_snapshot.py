"""The snapshot leaves out what a viewer may not see."""

from __future__ import annotations

from aerobee.broker.access.authority import Account, Authority
from aerobee.broker.access.policies import Policy, PolicyType
from aerobee.broker.console.looks.snapshot import Snapshot
from aerobee.broker.console.looks.viewers import Viewer
from aerobee.remoting.wire.bodies.auth import PolicyEntryInfo

SNAPSHOT = Snapshot(
    at_ms=1,
    took_ms=1.0,
    overview={},
    findings=[
        {"text": "disk", "topic": None, "group": None},
        {"text": "lag", "topic": "Orders", "group": "billing"},
        {"text": "type", "topic": "Orders", "group": None},
    ],
    topics=[{"topic": "Orders"}, {"topic": "Bills"}],
    groups=[{"group": "billing"}],
    clients=[{"group": "billing"}],
    dead_letters=[{"group": "billing"}],
)


def test_a_viewer_sees_the_rows_of_what_it_may_get() -> None:
    entry = PolicyEntryInfo(resource="Topic:Orders", actions=["Get"], decision="Allow")
    policies = [Policy(PolicyType.CUSTOM, [entry])]
    account = Account("ann", b"secret")
    ann = Viewer(
        address="127.0.0.1",
        account=account,
        authority=Authority({"ann": account}.get, lambda _: policies),
    )
    assert SNAPSHOT.topics_of(ann) == [{"topic": "Orders"}]
    assert not SNAPSHOT.groups_of(ann)
    assert not SNAPSHOT.clients_of(ann)
    assert not SNAPSHOT.dead_letters_of(ann)
    assert [row["text"] for row in SNAPSHOT.findings_of(ann)] == ["disk", "type"]
