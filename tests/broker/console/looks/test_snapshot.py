"""The snapshot leaves out what a viewer may not see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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


def viewer(*resources: str) -> Viewer:
    entries = [
        PolicyEntryInfo(resource=resource, actions=["Get"], decision="Allow")
        for resource in resources
    ]
    account = Account("ann", b"secret")
    policies = [Policy(PolicyType.CUSTOM, entries)]
    return Viewer(
        address="127.0.0.1",
        account=account,
        authority=Authority({"ann": account}.get, lambda _: policies),
    )


def test_a_viewer_sees_the_rows_of_what_it_may_get() -> None:
    ann = viewer("Topic:Orders")
    assert SNAPSHOT.topics_of(ann) == [{"topic": "Orders"}]
    assert not SNAPSHOT.groups_of(ann)
    assert not SNAPSHOT.clients_of(ann)
    assert not SNAPSHOT.dead_letters_of(ann)
    assert [row["text"] for row in SNAPSHOT.findings_of(ann)] == ["disk", "type"]


def test_the_counts_of_an_overview_are_of_what_the_viewer_may_see() -> None:
    def group(name: str, lag: int | None) -> dict[str, Any]:
        known = {"lag": lag, "lag_at_least": lag or 0, "lag_s": 3.0 * (lag or 0)}
        return {"group": name, "system": False, "dead_letters": lag, **known}

    figures = {"in_per_s": 7.0, "lag": 9, "topics": 2}
    whole = replace(
        SNAPSHOT,
        overview=figures,
        topics=[{"topic": name, "kind": "normal"} for name in ("Orders", "Bills")],
        groups=[group("billing", 4), group("shipping", 5)],
        dead_letters=[{"group": "billing", "letters": 4}, {"group": "shipping", "letters": 5}],
    )
    assert whole.overview_of(viewer("Topic:*", "Group:*")) is whole.overview
    mine = whole.overview_of(viewer("Topic:Orders", "Group:billing"))
    names = ("in_per_s", "topics", "groups", "lag", "oldest_unread_s", "dead_letters")
    assert [mine[name] for name in names] == [7.0, 1, 1, 4, 12.0, 4]
    nothing = whole.overview_of(viewer("Topic:Orders"))
    assert [nothing[name] for name in ("groups", "lag", "dead_letters")] == [0, 0, 0]
    unknown = replace(whole, missing=["b"]).overview_of(viewer("Topic:Orders"))
    assert [unknown[name] for name in ("topics", "groups", "lag")] == [None, None, None]
