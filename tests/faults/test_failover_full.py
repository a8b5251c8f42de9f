"""A master whose disk is full makes way for a member with room; without one the group stays."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from tests.kit.broker_process import ROOMY
from tests.kit.etcd import EtcdNode
from tests.kit.failover_group import LEASE_S, FailoverGroup, Ledger
from tests.kit.health import events
from tests.kit.raw_client import RawConnection
from tests.kit.reading import committed_offsets
from tests.kit.replicas import SUCCESS
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.ours]

WITHIN_S = 90.0
UPDATE_BROKER_CONFIG, UPDATE_CONSUMER_OFFSET, CREATE_GROUP = 25, 15, 200


def full(group: FailoverGroup, members: Iterable[int], *, is_full: bool) -> None:
    """Have the disks of these members be too full for sends, or not any more."""
    nearly_all_gib = (shutil.disk_usage(group.members[1].data).total >> 30) - 1
    limits = dict.fromkeys(ROOMY, f"{nearly_all_gib}GiB") if is_full else ROOMY
    lines = "\n".join(f"{key}={limit}" for key, limit in limits.items())
    for member in members:
        with RawConnection(group.members[member].address) as connection:
            answer = connection.call(UPDATE_BROKER_CONFIG, {}, lines.encode())
        assert answer.code == SUCCESS, answer


def told(group: FailoverGroup, member: int, event: str) -> int:
    return sum(one["event"] == event for one in events(group.members[member].log.read_text()))


def test_the_lease_goes_to_who_has_room_and_stays_where_nobody_has(tmp_path: Path) -> None:
    with (
        EtcdNode(data=tmp_path / "etcd") as etcd,
        # What the command line says wins over changes while a broker runs.
        FailoverGroup(tmp_path / "group", [etcd], settings=dict.fromkeys(ROOMY)) as group,
    ):
        full(group, group.members, is_full=False)
        ledger = Ledger(group)
        first = ledger.send(8, "before")
        with RawConnection(group.members[first].address) as connection:
            readers = b'{"groupName": "readers"}'
            assert connection.call(CREATE_GROUP, {}, readers).code == SUCCESS
        full(group, [first], is_full=True)
        second = group.until_master(but=first)
        assert told(group, first, "failover.makes_way") == 1
        assert ledger.send(8, "with room") == second
        # Nobody has room any more: the lease stays, and what is not a put is served.
        full(group, group.members, is_full=True)
        eventually(
            lambda: ledger.ask(second, 0, b"refused") != SUCCESS, within_s=WITHIN_S, what="no room"
        )
        epoch = group.record()["epoch"]
        threading.Event().wait(3 * LEASE_S)
        assert group.record()["epoch"] == epoch
        # It dies, and one without room is the master all the same.
        group.members[second].kill()
        eventually(
            lambda: told_leads(group, behind=epoch),
            within_s=WITHIN_S,
            what="a master without room",
        )
        third = group.record()["master"]
        with RawConnection(group.members[third].address) as connection:
            fields = {"consumerGroup": "readers", "topic": "t", "queueId": 0, "commitOffset": 1}
            assert connection.call(UPDATE_CONSUMER_OFFSET, fields).code == SUCCESS
            assert committed_offsets(connection, "readers", "t", 1) == {0: 1}
        # One that is no master has room again.
        (other,) = set(group.members) - {second, third}
        full(group, [other], is_full=False)
        assert group.until_master() == other
        ledger.send(8, "room again")
        full(group, [third], is_full=False)
        group.members[second].start()
        group.until_complete()
        ledger.expect_everywhere()


def told_leads(group: FailoverGroup, *, behind: int) -> bool:
    """Whether the master of the record serves, in an epoch behind that one."""
    record = group.record()
    lines = events(group.members[record["master"]].log.read_text())
    led = [line["epoch"] for line in lines if line["event"] == "failover.leads"]
    return bool(record["epoch"] > behind and record["epoch"] in led)
