"""The clients of a group, and the judge of what they saw, on a pair whose faults are known."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from tests.faults.switches import PROMOTE, switched
from tests.kit.client_history import Recorder, anomalies, verdict
from tests.kit.group_clients import (
    QUEUES,
    TOPIC,
    GroupClients,
    group_names,
    longest_silence_s,
    make_topic,
    read_everything,
)
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection, pull_fields
from tests.kit.reading import FOUND, NOTHING, PULL_MESSAGE
from tests.kit.replicas import SUCCESS, Replicas, log_end
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kit.client_history import Event

pytestmark = pytest.mark.faults
MACHINES = ["here"]
FEW, WITHIN_S = 40, 60.0
TABLES_WITHIN_S = 10.0
"""A slave of ours has the offsets of its master's groups so soon."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Replicas]:
    """One whose master does not wait for its slave."""
    settings = {"brokerRole": "ASYNC_MASTER", "inSyncReplicas": 1}
    with Replicas(tmp_path, of_master=settings, of_slave={"haPeers": HOST}) as pair:
        make_topic(pair.master.address, group_names(MACHINES))
        yield pair


def clients(pair: Replicas, recorder: Recorder) -> GroupClients:
    members = {"m1": pair.master.address, "m2": pair.slave.address}
    return GroupClients(recorder, members, MACHINES, lambda _: nullcontext())


def until_known(address: str) -> None:
    """A slave has the topics of its master."""
    with RawConnection(address) as link:
        fields = pull_fields("known", TOPIC, QUEUES - 1, 0)
        eventually(
            lambda: link.call(PULL_MESSAGE, fields).code in (FOUND, NOTHING),
            within_s=WITHIN_S,
            what="the slave knows the topic",
        )


def until_equal(pair: Replicas) -> None:
    eventually(
        lambda: log_end(pair.slave.address) == log_end(pair.master.address) > 0,
        within_s=WITHIN_S,
        what="the logs are equal",
    )


def kinds(events: list[Event]) -> dict[str, int]:
    found: dict[str, int] = {}
    for event in events:
        found[event.what] = found.get(event.what, 0) + 1
    return found


def test_planned_switches_show_no_anomaly(pair: Replicas, tmp_path: Path) -> None:
    with Recorder(tmp_path / "history.jsonl") as recorder:
        with clients(pair, recorder) as told:
            told.acks.wait_for(FEW)
            switched(pair.master, pair.slave)
            told.acks.wait_for(FEW)
            switched(pair.slave, pair.master)
            told.acks.wait_for(FEW)
        until_equal(pair)
        read_everything(recorder, {"m1": pair.master.address, "m2": pair.slave.address})
        events = recorder.events()
    found = anomalies(events, forgets_s=TABLES_WITHIN_S)
    assert not found, verdict(found)
    seen = kinds(events)
    assert seen["stored"] >= 3 * FEW
    assert seen["failed"] > 0
    assert {"read", "committed", "found", "end"} <= seen.keys()
    assert 0 < longest_silence_s(events) < WITHIN_S


def test_what_a_promoted_slave_lacks_is_found(pair: Replicas, tmp_path: Path) -> None:
    """The slave is down while the master acknowledges more, and then it is the master."""
    with Recorder(tmp_path / "history.jsonl") as recorder:
        with clients(pair, recorder) as told:
            told.acks.wait_for(FEW)
            until_known(pair.slave.address)
            pair.slave.kill()
            told.acks.wait_for(FEW)
            pair.master.kill()
            pair.slave.start()
            with RawConnection(pair.slave.address, timeout_s=30) as link:
                assert link.call(PROMOTE, {}).code == SUCCESS
            told.acks.wait_for(2 * FEW)
        read_everything(recorder, {"m2": pair.slave.address})
        found = anomalies(recorder.events(), forgets_s=TABLES_WITHIN_S)
    assert {"lost", "inconsistent"} <= {one.kind for one in found}, verdict(found)
